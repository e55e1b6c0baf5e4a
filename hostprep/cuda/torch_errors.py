"""What an exception of torch says, in one line; and what of it is the host's."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
# Batches travel from the workers in files that torch names so, in /dev/shm; where that is full, a
# worker is told when it makes the file, or gets SIGBUS when it writes to it.
_SHARED_MEMORY = re.compile(r"Bus error|shared memory|/torch_\d+", re.IGNORECASE)
_DESCRIPTORS = "Too many open files"


def in_a_line(error: Exception) -> str:
    """Return what happened: the first line, then comes torch's advice on debugging kernels.

    Of an exception in a DataLoader's worker that says no more than where it was caught; what it
    was follows the worker's traceback.
    """
    return line_after_traceback(str(error)) or str(error).partition("\n")[0]


def line_after_traceback(text: str) -> str | None:
    """Return the first line of what was raised by the last traceback in ``text``, None without."""
    _, found, rest = text.rpartition(_TRACEBACK)
    lines = rest.splitlines() if found else []
    return next((line for line in lines if line.strip() and not line.startswith(" ")), None)


def cure_for_the_host(line: str) -> str | None:
    """Return what to do where the host gave workers too little, None where that is not said.

    ``line`` is what ``in_a_line`` returned.
    """
    if _DESCRIPTORS in line:  # first: torch speaks of shared memory there, too
        return "ulimit -S -n 65536"
    if _SHARED_MEMORY.search(line):
        return (
            "make /dev/shm larger than `df -h /dev/shm` shows it: mount -o remount,size=SIZE"
            " /dev/shm; in a container: docker run --shm-size=SIZE or --ipc=host"
        )
    return None
