"""Entries of one directory packed together, to be sent between processes as one piece."""

from __future__ import annotations

import errno
import marshal
import os
from collections.abc import Iterable, Iterator, Sequence
from stat import S_IFDIR, S_IFLNK, S_IFREG
from time import monotonic
from typing import Any, NamedTuple

from hostprep.host.fscrypt import is_locked
from hostprep.staging.files.holes import with_data_blocks
from hostprep.staging.model import RANGE_BYTES, Entry, space_on_target
from hostprep.staging.tree import Plain, list_if_few, look_up
from hostprep.system.own_directory import is_own
from hostprep.system.trees import DirCache
from hostprep.units import PAGE_BYTES

BATCH_FILES = 128
BATCH_BYTES = 16 * 1024 * 1024
# Several workers look at a directory with more entries than this.
LARGE_DIRECTORY = 1024

# A directory, its contents, and for a large one the names that nobody has looked at.
Listed = tuple[str, tuple[Any, ...], list[str]]


class Batch(NamedTuple):
    """Entries of one directory that are copied together, packed with ``marshal``."""

    directory: str
    files: int
    size_bytes: int
    space_bytes: int
    hole_bytes: int
    packed: bytes

    def entries(self) -> list[Entry]:
        """Unpack."""
        return [Entry._make(item) for item in marshal.loads(self.packed)]


def split_batches(batches: Iterable[Batch], most_files: int | None) -> Iterator[Batch]:
    """Yield the batches, those over twice ``most_files`` in pieces; None leaves all as they are."""
    for batch in batches:
        if most_files is None or batch.files <= 2 * most_files:
            yield batch
        else:
            yield from pack_batches(batch.directory, batch.entries(), most_files)


def pack_batches(
    directory: str, entries: Sequence[Entry], most_files: int = BATCH_FILES
) -> list[Batch]:
    """Return batches for ``entries`` of one directory."""
    batches: list[Batch] = []
    chunk: list[Entry] = []
    size_bytes = 0

    def end() -> None:
        space = sum(space_on_target(entry) for entry in chunk)
        holes = sum(entry.hole_bytes for entry in chunk)
        packed = marshal.dumps([tuple(entry) for entry in chunk])
        batches.append(Batch(directory, len(chunk), size_bytes, space, holes, packed))

    for entry in entries:
        chunk.append(entry)
        size_bytes += entry.size
        if len(chunk) >= most_files or size_bytes >= BATCH_BYTES:
            end()
            chunk, size_bytes = [], 0
    if chunk:
        end()
    return batches


def list_batches(source: DirCache, directory: str, *, from_server: bool, encrypts: bool) -> Listed:
    """List a directory of the source in batches: (directory, its contents, names).

    A locked directory is an error, because the names shown in it are not those of its files.
    ``names``, for ``look_up_batches``, are those of a directory with many entries, see
    ``list_if_few``. The result is plain tuples, as a worker sends them.
    """
    try:
        descriptor = source.fd(directory)
        if encrypts and is_locked(descriptor):
            raise OSError(errno.ENOKEY, os.strerror(errno.ENOKEY))
        entries, names = list_if_few(descriptor, LARGE_DIRECTORY, from_server=from_server)
    except OSError as error:
        return directory, _unreadable(error), []
    return directory, _batches(descriptor, entries, from_server=from_server), names


def look_up_batches(
    source: DirCache, directory: str, names: list[str], *, from_server: bool
) -> tuple[float, tuple[Any, ...]]:
    """Return the seconds that looking up ``names`` took, and their part of ``list_batches``."""
    started = monotonic()
    try:
        descriptor = source.fd(directory)
        entries = look_up(descriptor, names)
    except OSError as error:
        return monotonic() - started, _unreadable(error)
    seconds = monotonic() - started
    return seconds, _batches(descriptor, entries, from_server=from_server)


def _unreadable(error: OSError) -> tuple[Any, ...]:
    return [], [], [], [], error.strerror or str(error)


def _batches(descriptor: int, entries: list[Plain], *, from_server: bool) -> tuple[Any, ...]:
    """Return (subdirectories, specials, singles, batches, no error).

    This runs once for each entry of a data set.
    """
    subdirectories, specials, singles, batches = [], [], [], []
    batch: list[tuple[Any, ...]] = []
    size_bytes = space_bytes = hole_bytes = 0
    part_of_page = PAGE_BYTES - 1
    for entry in entries:
        mode, size = entry[1], entry[2]
        kind = mode & 0o170000
        if kind == S_IFDIR:
            if not is_own(entry[0]):
                subdirectories.append(entry)
            continue
        if kind == S_IFREG:
            allocated = entry[6] * 512
            if allocated < size:
                entry = with_data_blocks(descriptor, entry, from_server=from_server)
                allocated = entry[6] * 512
            if entry[7] > 1 or size > RANGE_BYTES:
                singles.append(entry)
                continue
            data_bytes = size
            if allocated < size:
                data_bytes = allocated
                hole_bytes += size - allocated
            space_bytes += (data_bytes + part_of_page) & ~part_of_page
        elif kind != S_IFLNK:
            specials.append((entry[0], mode))
            continue
        batch.append(entry)
        size_bytes += size
        if len(batch) >= BATCH_FILES or size_bytes >= BATCH_BYTES:
            packed = marshal.dumps(batch)
            batches.append((len(batch), size_bytes, space_bytes, hole_bytes, packed))
            batch, size_bytes, space_bytes, hole_bytes = [], 0, 0, 0
    if batch:
        batches.append((len(batch), size_bytes, space_bytes, hole_bytes, marshal.dumps(batch)))
    return subdirectories, specials, singles, batches, None
