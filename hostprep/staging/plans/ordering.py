"""The order in which files are read: for a disk with an arm, the order in which they lie on it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator

from hostprep.host.fiemap import first_physical
from hostprep.staging.batches import Batch, pack_batches
from hostprep.staging.model import Entry
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.system.trees import DirCache

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TICK_FILES = 256


def order_files(
    plan: CopyPlan, order: str, source_fd: int, on_tick: Callable[[int], None] | None = None
) -> None:
    """Put the plan's files into ``order``: ``listed`` leaves them, ``inode``, or ``physical``.

    ``physical`` is the order of the first extents on the device (FIEMAP), and of inode numbers
    where the file system does not tell. A disk's arm then sweeps over the data once instead of
    seeking for each file. Asking costs about 25 us a file whose inode is in memory.
    """
    if order == "listed":
        return
    asked = 0
    with DirCache(source_fd) as cache:

        def place(directory: str, entry: Entry) -> tuple[int, int]:
            nonlocal asked
            asked += 1
            if on_tick is not None and asked % _TICK_FILES == 0:
                on_tick(asked)
            if order == "inode" or not stat.S_ISREG(entry.mode) or not entry.size:
                return 0, entry.ino
            return _first_extent(cache, directory, entry.name), entry.ino

        placed = [
            (*place(batch.directory, entry), single)
            for batch in plan.batches
            for entry, single in _singles(batch)
        ]
        placed.sort()
        plan.batches = list(_merge(single for _, _, single in placed))
        plan.large.sort(key=lambda item: place(*item))


def _first_extent(source: DirCache, directory: str, name: str) -> int:
    try:
        descriptor = os.open(name, _OPEN, dir_fd=source.fd(directory))
    except OSError:  # of the file, or of a directory that has gone since the scan
        return 0  # the copy will meet it again and say so
    try:
        return first_physical(descriptor) or 0
    finally:
        os.close(descriptor)


def _singles(batch: Batch) -> Iterator[tuple[Entry, Batch]]:
    """Yield each entry of a batch with a batch of its own: packed, for they are held in memory."""
    for entry in batch.entries():
        yield entry, pack_batches(batch.directory, [entry])[0]


def _merge(singles: Iterable[Batch]) -> Iterator[Batch]:
    """Join neighbours of one directory into batches again."""
    run: list[Entry] = []
    directory = ""
    for single in singles:
        if run and single.directory != directory:
            yield from pack_batches(directory, run)
            run = []
        directory = single.directory
        run.extend(single.entries())
    if run:
        yield from pack_batches(directory, run)
