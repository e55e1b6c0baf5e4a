"""How a child ends, and its process group: looked at without waiting for it, so that it stays ours.

Until it is waited for, its number cannot go to another process.
"""

from __future__ import annotations

import os
import signal
import time


def how_it_ended(status: int) -> str:
    """Say of a ``Popen.returncode`` how a process ended: "by SIGKILL", "with status 1"."""
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal, of which only the first and the last have names
        return f"by signal {-status}"


def status_of(pid: int) -> int | None:
    """Return how a child ended, as ``Popen.returncode`` has it; it is not waited for yet."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def ended_within(pid: int, seconds: float) -> bool:
    """Return whether a child has ended, when it has or so many seconds are over."""
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
            continue  # it ended meanwhile
        if int(its_group) == group and state not in (b"Z", b"X"):
            return True
    return False
