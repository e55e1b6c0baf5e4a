"""Whether the source has changed since staging, or the copy, or both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter

from hostprep.staging.model import Entry, Recorded
from hostprep.staging.parted import parts_for, split
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.record.manifest import ManifestIndex


def who_changed(plan: CopyPlan, manifest: ManifestIndex) -> tuple[bool, bool]:
    """Return whether the source, and whether the copy, differs from what was staged.

    According to the manifest; mode, owner and time of directories do not count.
    """
    source, copy = bool(plan.delete or plan.delete_directories), False
    for directory, copied in groupby(plan.to_copy(), key=itemgetter(0)):
        entries: Iterable[Entry] = chain.from_iterable(some for _, some in copied)
        for part, known in _with_records(manifest, directory, entries):
            for entry in part:
                record = known.get(entry.name)
                as_staged = record is not None and record.same_as(entry)
                source, copy = source or not as_staged, copy or as_staged
            if source and copy:
                return True, True
    return source, copy


def _with_records(
    manifest: ManifestIndex, directory: str, entries: Iterable[Entry]
) -> Iterator[tuple[Iterable[Entry], dict[str, Recorded]]]:
    """Yield some of a directory's ``entries`` at a time, with their records."""
    parts = parts_for(manifest.entries(directory))
    if parts == 1:
        yield entries, manifest.records(directory)
        return
    known = manifest.by_names(directory, parts)
    for part, of in zip(split(map(tuple, entries), parts), known, strict=True):
        yield map(Entry._make, part), of.records()
