"""What one reaches by SSH as root: hosts of a fleet, and whole machines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any


def make_key(folder: Path) -> Path:
    """Return a new private key in ``folder``; the public one lies beside it, as ``key.pub``."""
    key = folder / "key"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hostprep-tests", "-f", key]
    subprocess.run(words, check=True)
    return key


class Remote:
    """One of them; ``ssh_words`` are what stands before a command for it, its name the last."""

    @property
    def ssh_words(self) -> list[str | Path]:
        raise NotImplementedError

    def ssh(
        self, command: str, *, check: bool = True, seconds: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command there as root; with ``check`` it must succeed."""
        *_, name = words = self.ssh_words
        done = subprocess.run(
            [*words, command], capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=seconds,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(
                f"{name}: {command} ended with {done.returncode}: {done.stdout}{done.stderr}"
            )
        return done

    def hostprep(self, words: str, expect: int = 0, within: str = "") -> dict[str, Any]:
        """Run ``hostprep WORDS --json``, ``within`` another command; insist on its exit code."""
        done = self.ssh(f"{within} hostprep {words} --json", check=False)
        assert done.returncode == expect, f"{done.returncode}: {done.stdout}{done.stderr}"
        found: dict[str, Any] = json.loads(done.stdout)
        return found
