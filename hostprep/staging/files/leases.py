"""Opening a file on which another process has a lease (fcntl(2)), as Samba and NFS servers take."""

from __future__ import annotations

import os
import time
from pathlib import Path

_BREAK_TIME = Path("/proc/sys/fs/lease-break-time")
_USUAL_SECONDS = 45  # the kernel's own default
_SPARE_SECONDS = 5
_POLL_SECONDS = 0.01
# A holder that gives its lease up when asked takes less time than the first, as a rule. One that
# does not may have leases on all files, and each costs as long as the kernel lets it: beyond the
# first, a process bears the second of that in all, however many of its threads wait at a time.
_ANSWER_SECONDS = 5.0
_MOST_SECONDS = 180.0

# What is left of the second. Nothing, once a file could not be opened for longer than any lease
# lasts: then it is no lease that bars the files here (an archive may not have them on disk), and
# nothing is waited for.
_left_seconds = _MOST_SECONDS
_counted_until = 0.0  # on the monotonic clock


def open_unleased(name: str, flags: int, *, dir_fd: int) -> int:
    """Open a file; where a lease is on it, wait until its holder has given it up.

    ``flags`` have O_NONBLOCK, for the sake of a fifo that took the file's place. With it the open
    fails at once where it would wait, and has the kernel ask the holder, who has
    ``fs.lease-break-time`` seconds; then the kernel takes the lease away. Raises OSError as
    ``os.open`` does, BlockingIOError also where a process has waited long enough: the next run
    finds the leases gone that this one has asked for.
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
