"""How a child or its process group ends: observed without reaping it, so that it stays ours.

Its number cannot go to another process until it is reaped.
"""

from __future__ import annotations

import os
import signal
import time


def how_it_ended(status: int) -> str:
    """Say how a process ended, from ``Popen.returncode``: "by SIGKILL", "with status 1"."""
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:  # of the real-time signals, only the first and the last have names
        return f"by signal {-status}"


def status_of(pid: int) -> int | None:
    """Return how a child ended, in the form of ``Popen.returncode``, without reaping it."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def ended_within(pid: int, seconds: float) -> bool:
    """Wait this long for a child to end, and return whether it has."""
    deadline = time.monotonic() + seconds
    while status_of(pid) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def has_members(group: int) -> bool:
    """Return whether a process group has a member that has not ended."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, _, its_group, *_ = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(its_group) == group and state not in (b"Z", b"X"):
            return True
    return False
