"""What workers that were killed leave behind."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_SHM = Path("/dev/shm")
# The kernel stamps files by a clock that it moves on with each of its ticks.
_TICK_SECONDS = 0.1


def remove_batches(pids: Iterable[int], since: float, folder: Path = _SHM) -> None:
    """Remove the batches that workers left in /dev/shm since ``since``, as ``time.time`` has it.

    Torch names them by the process. Where containers share /dev/shm (docker --ipc=host), a training
    may have the same numbers: what another user made, or was there before, is not our workers'.
    """
    for pid in pids:
        for path in folder.glob(f"torch_{pid}_*"):
            try:
                found = path.lstat()
                if found.st_uid == os.geteuid() and found.st_mtime > since - _TICK_SECONDS:
                    path.unlink()
            except FileNotFoundError:
                continue  # its worker ended after all, and tidied up
