"""A manifest that has lost lines: entries that it lacks look like others' files, but are not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hostprep.errors import Refused
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.record.records import Record

NOBODY_KNOWS = "without the manifest nobody knows which of its entries are hostprep's"


class DamagedManifest(Refused):
    """Not all that was staged is on record.

    ``found`` says so as part of a sentence, ``anew`` what helps if no command was refused.
    """

    def __init__(self, record: Record, on_record: int) -> None:
        self.found = f"the manifest of {record.name} is missing or holds nothing"
        if on_record:
            self.found = (
                f"the manifest of {record.name} is damaged: it has {on_record:,} of the"
                f" {record.entries:,} entries that were staged"
            )
        away = f"move {shlex.quote(record.target)} away and"
        self.anew = f"{away} `hostprep stage` it again: {NOBODY_KNOWS}"
        super().__init__(
            f"{self.found}; nothing was changed.",
            f"{away} run the same command again: {NOBODY_KNOWS}",
        )


def has_lost(record: Record, on_record: int) -> bool:
    """Whether a manifest with this many entries lacks some of what was staged.

    After an interrupted update the manifest may be new already, and the record still the old one.
    """
    return record.phase == "staged" and on_record < record.entries


def damage(
    record: Record | None, manifest: ManifestIndex, strangers: Sequence[str]
) -> DamagedManifest | None:
    """Return what is wrong with a manifest by which ``strangers`` on the target are not ours.

    Its lines for the places of the strangers have been read by now. If there are none, then what it
    lacks is not on the target either, and a run repairs it.
    """
    if record is None or not strangers:
        return None
    on_record = manifest.count()
    return DamagedManifest(record, on_record) if has_lost(record, on_record) else None
