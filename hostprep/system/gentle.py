"""Giving way to everything else on the machine in processor, disk and memory."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_GROUP = Path("/proc/self/autogroup")
_ENABLED = Path("/proc/sys/kernel/sched_autogroup_enabled")
_VICTIM = Path("/proc/self/oom_score_adj")
_LOWEST = 19
# The kernel allows such changes by ordinary users ten times a second, for the whole machine.
_TRIES, _PAUSE_SECONDS = 10, 0.1


def step_behind() -> None:
    """Give this process, and its later children, the lowest priority and idle disk I/O."""
    import psutil

    os.nice(_LOWEST)
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def be_killed_first() -> None:
    """If memory runs out, make the kernel kill this process before all others.

    The contents of a tmpfs do not count for the process that wrote them, so the kernel would kill
    another process, the largest.
    """
    with suppress(OSError):  # there is no /proc, or it is read-only
        _VICTIM.write_text("1000")


def step_behind_other_sessions() -> None:
    """Make this process, which must not lead a process group, give way to other sessions as well.

    If the kernel groups processes by session (sched(7), autogroup), as on most machines, all
    sessions that want a processor get the same share of it, and a priority only counts within a
    session. So the process gets a session of its own, with the lowest priority among sessions. It
    has no terminal then: Ctrl-C and a hang-up do not reach it.
    """
    with suppress(OSError):  # no such kernel, or no /proc: then priorities count everywhere
        if _ENABLED.read_text().strip() != "1":
            return
        os.setsid()
        for _ in range(_TRIES):
            try:
                _GROUP.write_text(str(_LOWEST))
                return
            except BlockingIOError:
                time.sleep(_PAUSE_SECONDS)
