"""Namespaces that hold everything a fleet needs, and that nothing in them outlives."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType

_SCRIPT = Path(__file__).with_name("fence.sh")


class Fence:
    """Mounts, network, processes and control groups apart from the machine's, while it is entered.

    ``hosts`` is a folder that is an empty tmpfs inside; ``address`` (with its prefix length) is
    this machine's on the bridge ``fleet0``. Where this process ends, however that is, the kernel
    takes away all that is inside.
    """

    def __init__(self, hosts: Path, address: str) -> None:
        self._line = [str(_SCRIPT), str(hosts), address]
        self._holder: subprocess.Popen[str] | None = None
        self._pid = 0

    def __enter__(self) -> Fence:
        self._holder = subprocess.Popen(
            self._line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        first = self._holder.stdout.readline()
        if not first:
            self.__exit__(None, None, None)
            raise RuntimeError("the namespaces for the hosts could not be made")
        self._pid = int(first)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._holder is not None and self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait(timeout=30)

    def entering(self, namespaces: str = "--all") -> list[str]:
        """Return the words to put before a command that is to run inside."""
        return ["nsenter", "--target", str(self._pid), namespaces, "--"]

    def run(
        self, *words: str | Path, check: bool = True, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and return what it said; with ``check`` it must succeed."""
        done = subprocess.run(
            [*self.entering(), *map(os.fspath, words)], capture_output=True, text=True,
            errors="replace", timeout=seconds, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(
                f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}"
            )
        return done
