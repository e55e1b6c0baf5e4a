"""This process's limits (``ulimit``) on open files, file size and address space."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

_M_ARENA_MAX = -8  # malloc.h of glibc


def open_files() -> int:
    """Return how many files this process may have open (``ulimit -n``).

    This limit is never infinite: the kernel accepts none above ``fs.nr_open``.
    """
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files(wanted: int) -> int:
    """Raise that limit to ``wanted``, as far as the hard limit allows, and return the result.

    The usual soft limit is 1024, for programs that use select(2); the hard limit is far above it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = hard == resource.RLIM_INFINITY
    if soft < wanted and (infinite or soft < hard):
        soft = wanted if infinite else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def file_size_limit() -> int | None:
    """Return how large a file this process may write (``ulimit -f``), None for no limit."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def lift_file_size() -> None:
    """Lift that limit as far as allowed: it only guards against files that grow without end.

    Root has it from the user who ran sudo; without root the hard limit stays.
    """
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for limit in (resource.RLIM_INFINITY, hard):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return


def address_space_left() -> int | None:
    """Return how many more bytes this process may map (``ulimit -v``), None for no limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    used = limit // 2  # in case it is unknown
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        used = pages * resource.getpagesize()
    return max(0, limit - used)


def keep_to_one_heap() -> None:
    """If the address space is limited, make all threads share one heap from now on.

    malloc reserves 64 MiB for each separate heap, and keeps them when the thread is gone: a few
    threads would leave nothing for anybody else, nor for forked children.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    import ctypes

    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # musl has a single heap anyway
        libc.mallopt(_M_ARENA_MAX, 1)
