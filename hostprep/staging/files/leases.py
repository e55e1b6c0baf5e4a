"""Opening a file on which another process has a lease (fcntl(2)), as Samba and NFS servers do."""

from __future__ import annotations

import os
import time
from pathlib import Path

_BREAK_TIME = Path("/proc/sys/fs/lease-break-time")
_USUAL_SECONDS = 45  # the kernel's own default
_SPARE_SECONDS = 5
_POLL_SECONDS = 0.01
# A holder that gives up its lease when asked usually does so within the first of these. One that
# does not may have leases on all files, and each costs as much time as the kernel allows: a process
# spends at most the second, beyond the first, on all of them, however many of its threads wait.
_ANSWER_SECONDS = 5.0
_MOST_SECONDS = 180.0

# What is left of the second. It is set to 0 once a file could not be opened for longer than any
# lease lasts: then it is not a lease that blocks the files here (an archive may not have them on
# disk), and waiting is useless.
_left_seconds = _MOST_SECONDS
_counted_until = 0.0  # on the monotonic clock


def open_unleased(name: str, flags: int, *, dir_fd: int) -> int:
    """Open a file; if there is a lease on it, wait until its holder has given it up.

    ``flags`` include O_NONBLOCK, because a fifo may have taken the file's place. With it the open
    fails at once instead of waiting, and the kernel asks the holder, who has
    ``fs.lease-break-time`` seconds before the kernel removes the lease. Raises OSError as
    ``os.open`` does, and BlockingIOError if the process has waited long enough: by the next run the
    leases that this one asked for are gone.
    """
    global _left_seconds, _counted_until
    try:
        return os.open(name, flags, dir_fd=dir_fd)
    except BlockingIOError:
        if _left_seconds <= 0:
            raise
    begin = time.monotonic()
    until = begin + min(_longest_seconds(), _ANSWER_SECONDS + _left_seconds)
    while True:
        time.sleep(_POLL_SECONDS)
        try:
            descriptor = os.open(name, flags, dir_fd=dir_fd)
        except BlockingIOError:
            if time.monotonic() > until:
                _left_seconds = 0.0
                raise
        else:
            now = time.monotonic()
            _left_seconds -= max(0.0, now - max(begin + _ANSWER_SECONDS, _counted_until))
            _counted_until = max(_counted_until, now)
            return descriptor


def _longest_seconds() -> float:
    try:
        seconds = int(_BREAK_TIME.read_text())
    except (OSError, ValueError):
        seconds = _USUAL_SECONDS
    return seconds + _SPARE_SECONDS
