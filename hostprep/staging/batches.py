"""Entries of one directory packed together: what travels between processes as one piece."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from stat import S_IFDIR, S_IFLNK, S_IFREG
from typing import Any, NamedTuple

from hostprep.staging.model import RANGE_BYTES, Entry, space_on_target
from hostprep.staging.tree import DirCache, list_directory

BATCH_FILES = 128
BATCH_BYTES = 16 * 1024 * 1024


class Batch(NamedTuple):
    """Entries of one directory that are copied in one go, packed with ``marshal``."""

    directory: str
    files: int
    size_bytes: int
    space_bytes: int
    packed: bytes

    def entries(self) -> list[Entry]:
        """Unpack."""
        return [Entry._make(item) for item in marshal.loads(self.packed)]


def split_batches(batches: Iterable[Batch], most_files: int | None) -> Iterator[Batch]:
    """Yield the batches, those of over twice ``most_files`` in pieces; None leaves all whole."""
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
        packed = marshal.dumps([tuple(entry) for entry in chunk])
        batches.append(Batch(directory, len(chunk), size_bytes, space, packed))

    for entry in entries:
        chunk.append(entry)
        size_bytes += entry.size
        if len(chunk) >= most_files or size_bytes >= BATCH_BYTES:
            end()
            chunk, size_bytes = [], 0
    if chunk:
        end()
    return batches


def list_batches(source: DirCache, directory: str, *, by_inode: bool) -> tuple[Any, ...]:
    """List a directory of the source in batches; see ``scan.Listing`` for what is returned.

    Plain tuples, as a worker sends them: this runs once for each entry of a data set.
    """
    try:
        entries = list_directory(source.fd(directory), by_inode=by_inode)
    except OSError as error:
        return directory, [], [], [], [], error.strerror or str(error)
    subdirectories, specials, singles, batches = [], [], [], []
    batch: list[tuple[Any, ...]] = []
    size_bytes = space_bytes = 0
    for entry in entries:
        mode, size = entry[1], entry[2]
        kind = mode & 0o170000
        if kind == S_IFDIR:
            subdirectories.append(entry)
            continue
        if kind == S_IFREG:
            if entry[7] > 1 or size > RANGE_BYTES:
                singles.append(entry)
                continue
            allocated = entry[6] * 512
            space_bytes += ((allocated if allocated < size else size) + 4095) & ~4095
        elif kind != S_IFLNK:
            specials.append((entry[0], mode))
            continue
        batch.append(entry)
        size_bytes += size
        if len(batch) >= BATCH_FILES or size_bytes >= BATCH_BYTES:
            batches.append((len(batch), size_bytes, space_bytes, marshal.dumps(batch)))
            batch, size_bytes, space_bytes = [], 0, 0
    if batch:
        batches.append((len(batch), size_bytes, space_bytes, marshal.dumps(batch)))
    return directory, subdirectories, specials, singles, batches, None
