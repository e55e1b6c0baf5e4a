"""Entries of one directory packed together: what travels between processes as one piece."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hostprep.staging.model import Entry, space_on_target

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
