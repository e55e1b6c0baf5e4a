"""Which other processes use a device: checked before its stages, and again after them.

The survey's look may be minutes old when it is a device's turn, and a job may begin meanwhile. The
test recognises its own use of the device by process number; in a container NVML reports another
number for it, or none.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from hostprep.host.gpu import BUSY_PERCENT, Gpu, watch_gpu
from hostprep.host.reading import read_text

SETTLE_SECONDS = 2.5


def look_again(surveyed: Gpu) -> Gpu:
    """Return a device as it is now, without this process, whose context is there already.

    ``surveyed`` is its state before that, and is returned if NVML now says nothing. A device that
    seems busy without any process is watched for 2.5 s at most: what has just ended still counts.
    """
    until = time.monotonic() + SETTLE_SECONDS
    seen = watch_gpu(surveyed.index, 1)
    if not seen:
        return surveyed
    now = _without_us(seen[0], surveyed)
    least = now.utilisation_percent
    while least is not None and least >= BUSY_PERCENT and not now.processes:
        if time.monotonic() >= until or not (seen := watch_gpu(surveyed.index, 1)):
            break
        used = seen[0].utilisation_percent
        least = least if used is None else min(least, used)
    return replace(now, utilisation_percent=least)


def newcomers(before: Gpu) -> int | None:
    """Return how many processes are there now that were not ``before``, None if that is not known.

    Our own do not count.
    """
    seen = watch_gpu(before.index, 1)
    if not seen:
        return None
    now, then = _pids(seen[0]), _pids(before)
    if now is None or then is None:
        return None
    return len(_strangers(now, then))


def _without_us(now: Gpu, surveyed: Gpu) -> Gpu:
    then = _pids(surveyed)
    if now.processes is None or then is None:
        return now
    kept = _strangers({each.pid for each in now.processes}, then) | then
    return replace(now, processes=tuple(each for each in now.processes if each.pid in kept))


def _strangers(now: set[int], then: set[int]) -> set[int]:
    """Return which of ``now`` were not there ``then``, before this test, and are not its own."""
    new = now - then
    if os.getpid() in new:
        return {pid for pid in new if pid != os.getpid() and not _is_child(pid)}
    # Somebody has come since CUDA was started, so one of them is this process, by its number in
    # another namespace. Which one does not matter.
    return set(sorted(new)[1:])


def _pids(gpu: Gpu) -> set[int] | None:
    return None if gpu.processes is None else {each.pid for each in gpu.processes}


def _is_child(pid: int) -> bool:
    """Return whether it is our child; the parent is the 2nd field after the name, proc_pid(5)."""
    stat = read_text(Path(f"/proc/{pid}/stat"))
    return stat is not None and stat.rpartition(")")[2].split()[1] == str(os.getpid())
