"""The sides that an update compares, of a huge directory a part after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import compress
from typing import NamedTuple

from hostprep.staging.batches import Batch, pack_batches
from hostprep.staging.model import Entry, Recorded
from hostprep.staging.parted import PART_ENTRIES, part_of, parts_for, split
from hostprep.staging.plans.target_tree import TargetTree
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.source.scan import Listing


class Part(NamedTuple):
    """What there is of a directory, or of some names in it; see ``diff_directory``."""

    source: Sequence[Entry]
    manifest: Mapping[str, Recorded]
    promised: Set[str]
    journal: Mapping[str, Recorded]
    published: Mapping[str, Entry]
    private: Mapping[str, Entry]


class Sides(NamedTuple):
    """Where to look for what is to be compared."""

    manifest: ManifestIndex
    journal: ManifestIndex
    published: TargetTree
    private: TargetTree

    def parts(self, listing: Listing) -> Iterator[Part]:
        """Yield what there is of a directory of the source."""
        directory = listing.directory
        parts = parts_for(max(listing.totals.files, self.manifest.entries(directory)))
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
                manifest.records(published),
                manifest.promised(),
                journal.records(),
                published,
                private,
            )

    def staged(self, directory: str) -> Iterator[tuple[dict[str, Recorded], dict[str, Entry]]]:
        """Yield what is on record of a directory that is published, and what lies there."""
        parts = parts_for(self.manifest.entries(directory))
        for manifest, published in zip(
            self.manifest.by_names(directory, parts),
            self.published.by_names(directory, parts),
            strict=True,
        ):
            yield manifest.records(published), published


class Chosen:
    """Those files of a listing that are copied, noted part by part; not those copied one by one.

    They are copied in the order of the listing, which mostly is that of the disk.
    """

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._any = False
        self._of_parts: list[bytes] = []  # of each of its entries: whether it is copied

    def note(self, part: Iterable[Entry], copied: Iterable[Entry]) -> None:
        """Note what is ``copied`` of the next part of the listing."""
        names = {entry.name for entry in copied}
        self._any = self._any or bool(names)
        self._of_parts.append(bytes(entry.name in names for entry in part))

    def batches(self) -> Iterator[Batch]:
        """Yield them packed; where all of one of the listing's batches is copied, that one."""
        if not self._any:
            return
        parts = len(self._of_parts)
        chosen = [iter(each) for each in self._of_parts]
        run: list[Entry] = []
        for batch in self._listing.batches:
            entries = batch.entries()
            found = [
                *compress(entries, [next(chosen[part_of(entry.name, parts)]) for entry in entries])
            ]
            if len(found) < batch.files:
                run += found
            if run and (len(found) == batch.files or len(run) >= PART_ENTRIES):
                yield from pack_batches(batch.directory, run)
                run = []
            if len(found) == batch.files:
                yield batch
        yield from pack_batches(self._listing.directory, run)
