"""Opening a file on which another process has a lease (fcntl(2)), as Samba and NFS servers take."""

from __future__ import annotations

import os
import time
from pathlib import Path

_BREAK_TIME = Path("/proc/sys/fs/lease-break-time")
_USUAL_SECONDS = 45  # the kernel's own default
_SPARE_SECONDS = 5
_POLL_SECONDS = 0.01

# Set once a file could not be opened for longer than any lease lasts: then it is none that bars
# the files here, but an archive's file that is not on its disk for instance, and is not waited for.
_barred_by_others = False


def open_unleased(name: str, flags: int, *, dir_fd: int) -> int:
    """Open a file; where a lease is on it, wait until its holder has given it up.

    ``flags`` have O_NONBLOCK, for the sake of a fifo that took the file's place. With it the open
    fails at once where it would wait, and has the kernel ask the holder, who has
    ``fs.lease-break-time`` seconds; then the kernel takes the lease away. Raises OSError as
    ``os.open`` does.
    """
    global _barred_by_others
    try:
        return os.open(name, flags, dir_fd=dir_fd)
    except BlockingIOError:
        if _barred_by_others:
            raise
    deadline = time.monotonic() + _longest_seconds()
    while True:
        time.sleep(_POLL_SECONDS)
        try:
            return os.open(name, flags, dir_fd=dir_fd)
        except BlockingIOError:
            if time.monotonic() > deadline:
                _barred_by_others = True
                raise


def _longest_seconds() -> float:
    try:
        seconds = int(_BREAK_TIME.read_text())
    except (OSError, ValueError):
        seconds = _USUAL_SECONDS
    return seconds + _SPARE_SECONDS
