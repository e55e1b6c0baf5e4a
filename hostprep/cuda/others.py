"""Who else is at a device: looked at before its stages, and again when they are through.

The survey's look may be minutes old when a device has its turn, and a job may begin meanwhile. What
the test itself has there is known by its process; in a container NVML names it by another number,
or names none.
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
    """Return a device as it is now, this process left out, whose context is there already.

    ``surveyed`` is what it was before that; it comes back where NVML says nothing now. One that
    seems busy with nobody on it is looked at for 2.5 s at most: what has just ended still counts.
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
    """Return how many processes are there now that were not ``before``, None where it is not told.

    Those of ours are none of them.
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
    """Return who of ``now`` was not there ``then``, before we were, and is none of ours."""
    new = now - then
    if os.getpid() in new:
        return {pid for pid in new if pid != os.getpid() and not _is_child(pid)}
    # Somebody is there since CUDA was started, so one of them is us, by a number of another
    # namespace. Which one does not matter.
    return set(sorted(new)[1:])


def _pids(gpu: Gpu) -> set[int] | None:
    return None if gpu.processes is None else {each.pid for each in gpu.processes}


def _is_child(pid: int) -> bool:
    """Return whether we started it; the parent is the second field behind the name, proc_pid(5)."""
    stat = read_text(Path(f"/proc/{pid}/stat"))
    return stat is not None and stat.rpartition(")")[2].split()[1] == str(os.getpid())
