"""Removes what killed workers, and their parent, leave behind."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_SHM = Path("/dev/shm")
# The kernel stamps files with a clock that advances only with its ticks.
_TICK_SECONDS = 0.1


def remove_batches(pids: Iterable[int], since: float, folder: Path = _SHM) -> None:
    """Remove the tensors that processes left in /dev/shm since ``since`` (as in ``time.time``).

    Torch names them after the process: batches of workers, and what their parent sent them. If
    containers share /dev/shm (docker --ipc=host), a training may have the same process numbers:
    what another user made, or was there before, is not ours.
    """
    for pid in pids:
        for path in folder.glob(f"torch_{pid}_*"):
            try:
                found = path.lstat()
                if found.st_uid == os.geteuid() and found.st_mtime > since - _TICK_SECONDS:
                    path.unlink()
            except FileNotFoundError:
                continue  # its worker ended after all, and cleaned up
