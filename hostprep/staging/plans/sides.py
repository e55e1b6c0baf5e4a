"""The sides that an update compares, for a huge directory one part after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from heapq import merge
from itertools import chain, islice
from operator import attrgetter
from typing import NamedTuple

from hostprep.staging.batches import Batch, pack_batches
from hostprep.staging.model import Entry, Recorded
from hostprep.staging.parted import PART_ENTRIES, parts_for, split
from hostprep.staging.plans.target_tree import TargetTree
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.source.scan import Listing


class Part(NamedTuple):
    """The contents of a directory, or of some names in it; see ``diff_directory``."""

    source: Sequence[Entry]
    manifest: Mapping[str, Recorded]
    promised: Set[str]
    journal: Mapping[str, Recorded]
    published: Mapping[str, Entry]
    private: Mapping[str, Entry]


class Sides(NamedTuple):
    """Where to find what is to be compared."""

    manifest: ManifestIndex
    journal: ManifestIndex
    published: TargetTree
    private: TargetTree

    def parts(self, listing: Listing) -> Iterator[Part]:
        """Yield the parts of a directory of the source."""
        directory = listing.directory
        parts = parts_for(max(listing.files, self.manifest.entries(directory)))
        for source, manifest, journal, published, private in zip(
            split(listing.plain(), parts),
            self.manifest.by_names(directory, parts),
            self.journal.by_names(directory, parts),
            self.published.by_names(directory, parts),
            self.private.by_names(directory, parts),
            strict=True,
        ):
            yield Part(
                [Entry._make(item) for item in source],
                manifest.records(self._here(directory, published)),
                manifest.promised(),
                journal.records(),
                published,
                private,
            )

    def staged(self, directory: str) -> Iterator[tuple[dict[str, Recorded], dict[str, Entry]]]:
        """Yield the records of a published directory, and its present entries."""
        parts = parts_for(self.manifest.entries(directory))
        for manifest, published in zip(
            self.manifest.by_names(directory, parts),
            self.published.by_names(directory, parts),
            strict=True,
        ):
            yield manifest.records(self._here(directory, published)), published

    def _here(self, directory: str, published: dict[str, Entry]) -> Mapping[str, Entry]:
        """Return what records in a directory are of: the data set itself is recorded in itself."""
        own = None if directory else self.published.stat("")
        return published if own is None else {**published, ".": own}


def in_order(parts: Sequence[Sequence[Batch]]) -> Iterator[Batch]:
    """Yield what is copied of a directory's parts, in the order in which it was listed.

    That is the order of inodes, which mostly is that of the disk, and each part has it, too.
    """
    if len(parts) == 1:
        yield from parts[0]
        return
    # Only one batch of each part is unpacked at a time.
    runs = [chain.from_iterable(batch.entries() for batch in part) for part in parts]
    merged = merge(*runs, key=attrgetter("ino"))
    while some := list(islice(merged, PART_ENTRIES)):
        yield from pack_batches(parts[0][0].directory, some)
