"""Waiting for files that were written a moment ago, so that a later write gets another time.

A file's size and time tell whether it changed. If a file system keeps whole seconds, all writes
within one second leave the same time, and one that comes after the copy would never be noticed: the
copy would stay old and be called fresh. So whoever reads such a file waits until its second is
over, just as git does not trust files that are as young as its index. The clock is this machine's;
times of a server with another clock are taken as they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

_SECOND_NS = 10**9
# A file system with finer times may keep them by the kernel's tick, of 10 ms at most (HZ=100);
# twice that, because a tick may come late.
_TICK_NS = 20 * 10**6
_LONGEST_NS = 2 * _SECOND_NS + _TICK_NS


def settle(times_ns: Iterable[int]) -> bool:
    """Wait until a write would get a later time than all of ``times_ns``; return if it had to."""
    now_ns = time.time_ns()
    since_ns, until_ns = now_ns - _LONGEST_NS, now_ns + _LONGEST_NS
    young = [moment for moment in times_ns if since_ns < moment < until_ns]
    if not young:
        return False
    left_ns = max(moment + _grain_ns(moment) for moment in young) - now_ns
    if left_ns <= 0:
        return False
    time.sleep(left_ns / _SECOND_NS)
    return True


def _grain_ns(moment_ns: int) -> int:
    """Return for how long writes may get the same time as this one, judging by its digits."""
    seconds, rest = divmod(moment_ns, _SECOND_NS)
    if rest:
        return _TICK_NS
    return _TICK_NS + (_SECOND_NS if seconds % 2 else 2 * _SECOND_NS)  # FAT only keeps even seconds
