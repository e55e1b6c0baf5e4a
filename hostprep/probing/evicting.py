"""Evicts files from memory before they are read cold: as many as there is time for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from hostprep.system import page_cache

_LOOKED_AT_FILES = 64
_EVICTED_FILES_AT_MOST = 40_000
# The kernel writes out what has been dirty for 30 s (dirty_expire_centisecs); a disk may lag.
_DIRTY_SECONDS = 120


def share_in_memory(names: Sequence[str], at: int | None, seconds: float) -> float | None:
    """Return the share of some files' pages that is in memory, of the last files, read last."""
    return page_cache.resident_share(in_time(names[-_LOOKED_AT_FILES:], seconds), at=at)


def in_time(names: Sequence[str], seconds: float) -> Iterator[str]:
    """Yield the names, at least one, until ``seconds`` are over.

    Checking a file means opening it: on a server that takes as long as a request.
    """
    deadline = time.monotonic() + seconds
    for name in names:
        yield name
        if time.monotonic() > deadline:
            return


def evict(
    alone: list[str], together: list[str], at: int | None, seconds: float, *, on_disks: bool
) -> tuple[list[str], list[str]]:
    """Evict files from memory, in turn from both lists, for ``seconds``; return those that were.

    ``at`` is a descriptor of the folder that the names are relative to; ``on_disks``: not a server.
    """
    forget = _forget_on_disk if on_disks else page_cache.evict
    most = min(len(alone), len(together), _EVICTED_FILES_AT_MOST // 2)
    count = 0
    for count, name in enumerate(in_time(alone[:most], seconds), start=1):
        forget(name, at=at)
        forget(together[count - 1], at=at)
    return alone[:count], together[:count]


def _forget_on_disk(name: str, *, at: int | None) -> None:
    """Evict a file from memory, and flush it only if some of it is dirty.

    For each flushed file the disk empties its own cache, even if nothing was dirty: that takes
    longer than reading the file, and only few could be evicted in time. On a server looking first
    would cost one more request.
    """
    page_cache.evict(name, written_out=True, at=at)
    share = page_cache.resident_share([name], at=at)
    # The kernel does not say for other users' files; but what was dirty for that long is flushed.
    if share or (share is None and _is_new(name, at)):
        page_cache.evict(name, at=at)


def _is_new(name: str, at: int | None) -> bool:
    """Return whether a file was changed so recently that some of it may still be dirty."""
    try:
        return time.time() - os.stat(name, dir_fd=at).st_ctime < _DIRTY_SECONDS
    except OSError:
        return False
