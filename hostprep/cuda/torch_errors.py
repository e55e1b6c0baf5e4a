"""What an exception of torch says, in one line; and which of them are the host's fault."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
# Workers pass batches in files that torch names like this, in /dev/shm; if that is full, a worker
# gets an error when it makes the file, or SIGBUS when it writes to it.
_SHARED_MEMORY = re.compile(r"Bus error|shared memory|/torch_\d+", re.IGNORECASE)
_DESCRIPTORS = "Too many open files"


def in_a_line(error: Exception) -> str:
    """Return what happened: the first line, before torch's advice on debugging kernels.

    For an exception in a DataLoader's worker the first line only says where it was caught; what it
    was follows the worker's traceback.
    """
    return line_after_traceback(str(error)) or str(error).partition("\n")[0]


def line_after_traceback(text: str) -> str | None:
    """Return the first line after the last traceback in ``text``: the error; None without one."""
    _, found, rest = text.rpartition(_TRACEBACK)
    lines = rest.splitlines() if found else []
    return next((line for line in lines if line.strip() and not line.startswith(" ")), None)


def cure_for_the_host(line: str) -> str | None:
    """Return what to do if the host gave workers too little, None if the line does not say so.

    ``line`` is what ``in_a_line`` returned.
    """
    if _DESCRIPTORS in line:  # first: torch mentions shared memory there, too
        return "ulimit -S -n 65536"
    if _SHARED_MEMORY.search(line):
        return (
            "make /dev/shm larger than `df -h /dev/shm` shows it: mount -o remount,size=SIZE"
            " /dev/shm; in a container: docker run --shm-size=SIZE or --ipc=host"
        )
    return None
