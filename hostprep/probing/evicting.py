"""Files out of memory, before they are read cold: as many as there is time for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from hostprep.system import page_cache

_LOOKED_AT_FILES = 64
_EVICTED_FILES_AT_MOST = 40_000
# What has been dirty for 30 s the kernel writes out (dirty_expire_centisecs); a disk may be late.
_DIRTY_SECONDS = 120


def share_in_memory(names: Sequence[str], at: int | None, seconds: float) -> float | None:
    """Return the share of some files' pages that is in memory; the last ones, read last."""
    return page_cache.resident_share(in_time(names[-_LOOKED_AT_FILES:], seconds), at=at)


def in_time(names: Sequence[str], seconds: float) -> Iterator[str]:
    """Yield the names, at least one, until ``seconds`` are over.

    To ask about a file is to open it: on a server that takes as long as a request does.
    """
    deadline = time.monotonic() + seconds
    for name in names:
        yield name
        if time.monotonic() > deadline:
            return


def evict(
    alone: list[str], together: list[str], at: int | None, seconds: float, *, on_disks: bool
) -> tuple[list[str], list[str]]:
    """Take files out of memory, in turn from both lists, for so long; return those that were.

    ``at`` is a descriptor of the folder that they begin at; ``on_disks``: not on a server.
    """
    forget = _forget_on_disk if on_disks else page_cache.evict
    most = min(len(alone), len(together), _EVICTED_FILES_AT_MOST // 2)
    count = 0
    for count, name in enumerate(in_time(alone[:most], seconds), start=1):
        forget(name, at=at)
        forget(together[count - 1], at=at)
    return alone[:count], together[:count]


def _forget_on_disk(name: str, *, at: int | None) -> None:
    """Take a file out of memory, and write it out only where some of it has to be.

    Of each that is written out the disk empties its own cache, also where nothing was dirty: that
    takes longer than to read it, and few files would be taken out in time. On a server to look
    first would be one more request.
    """
    page_cache.evict(name, written_out=True, at=at)
    share = page_cache.resident_share([name], at=at)
    # Of files of others nobody is told; but what is dirty for so long was written out.
    if share or (share is None and _is_new(name, at)):
        page_cache.evict(name, at=at)


def _is_new(name: str, at: int | None) -> bool:
    """Return whether a file was changed so lately that some of it may still be dirty."""
    try:
        return time.time() - os.stat(name, dir_fd=at).st_ctime < _DIRTY_SECONDS
    except OSError:
        return False
