"""The records of a directory, or of part of it, after an update that may have been interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from stat import S_IMODE
from typing import NamedTuple

from hostprep.staging.model import Entry, Recorded


class Known(NamedTuple):
    """Records in their order: from ``before`` an interrupted update, and those ``since`` then.

    A name may have several, of which the latest counts.
    """

    before: list[Recorded]
    since: list[Recorded]

    def records(self, here: Mapping[str, Entry] | None = None) -> dict[str, Recorded]:
        """Return the records by name; of several, the latest counts.

        With ``here``, the entries that are there, a record that matches its entry takes precedence:
        an interrupted update has on record both what it was to replace, and by what.
        """
        found: dict[str, Recorded] = {}
        for record in self._all():
            earlier = found.get(record.name)
            there = here.get(record.name) if here and earlier else None
            if earlier is None or there is None:
                found[record.name] = record
            else:
                found[record.name] = _speaks_of(there, earlier, record)
        return found

    def versions(self) -> dict[str, list[Recorded]]:
        """Return all records of each entry by name, the latest last."""
        found: dict[str, list[Recorded]] = {}
        for record in self._all():
            found.setdefault(record.name, []).append(record)
        return found

    def promised(self) -> set[str]:
        """Return the names that an interrupted update was to add.

        Nothing of ours was there before, and perhaps nothing was put there.
        """
        if not self.since:
            return set()
        return {each.name for each in self.since} - {each.name for each in self.before}

    def _all(self) -> Iterator[Recorded]:
        return chain(self.before, self.since)


def _speaks_of(there: Entry, earlier: Recorded, later: Recorded) -> Recorded:
    """Return which of two records describes what is there.

    If an update was to change only mode or owner, these decide, as far as the target keeps them. If
    size, time, mode and owner are the same, the content may be either: it is unknown then, as if it
    had been staged without verification.
    """
    if not (earlier.present_as(there) and later.present_as(there)):
        return later if later.present_as(there) or not earlier.present_as(there) else earlier
    likeness = [
        (record.mode == S_IMODE(there.mode)) + ((record.uid, record.gid) == (there.uid, there.gid))
        for record in (earlier, later)
    ]
    if likeness[0] != likeness[1]:
        return earlier if likeness[0] > likeness[1] else later
    return later if later.content == earlier.content else later._replace(content=None)
