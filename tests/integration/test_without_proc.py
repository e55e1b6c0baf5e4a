"""A chroot in which nobody has mounted /proc: it is said, with the cure, and nothing is done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def without_proc(*words: str) -> subprocess.CompletedProcess[str]:
    script = 'umount --lazy /proc && exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "hostprep", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        ("facts",),
        ("facts", "/mnt"),
        ("status",),
        ("recommend", "--no-measure"),
        ("mount", "/mnt/volume", "--size", "1M"),
        ("mount", "/mnt/volume", "--size", "1%"),
        ("unmount", "/mnt/volume"),
        ("stage", "/etc", "--to", "/mnt/fast"),
    ],
    ids=" ".join,
)
def test_a_command_says_so(words: tuple[str, ...]) -> None:
    done = without_proc(*words)
    assert done.returncode == 1 and "/proc/" in done.stderr and "cannot be read" in done.stderr
    assert done.stderr.endswith("  -> is /proc mounted? mount -t proc proc /proc\n")
    assert not Path("/mnt/volume").exists() and not Path("/mnt/fast").exists()


def test_checks_say_so() -> None:
    done = without_proc("check", "--json")
    assert done.returncode in (3, 4), done.stderr
    unknown = [each for each in json.loads(done.stdout)["checks"] if each["status"] == "UNKNOWN"]
    assert {"HP020", "HP021", "HP022", "HP023", "HP030"} <= {each["code"] for each in unknown}
    for each in unknown:
        assert "a bug in hostprep" not in each["remedy"]["hint"], each
        assert not each["message"].endswith(".."), each
