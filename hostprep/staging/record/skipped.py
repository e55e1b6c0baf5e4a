"""The names of what was left out of a data set, next to the record, for the manifest's readers.

The record itself, which everybody can read, says how many entries there are, and the remedy.

Without their names most of these are equal. A source may have millions, each of which would take 74
bytes of a record that has to stay readable. So if there are very many, one of each kind is stored,
with its number as ``times``. Earlier versions read one of each, and have no names for those.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from hostprep.kinds import is_count
from hostprep.staging.reasons import ITS_HARD_LINK, Skipped
from hostprep.staging.record.manifest import manifest_path
from hostprep.staging.record.readers import ROOT, as_kept, readers_of
from hostprep.system.kept import made_of, parse_kept, read_kept
from hostprep.system.own_files import write_atomically

# Replaces a name that is not for everybody.
NAMELESS = "?"
# Up to this many are stored one by one, as all versions read them.
_MOST_SINGLE = 10_000
# More than a run could have in memory; a record that says so is damaged.
_MOST = 100_000_000


def skipped_path(record_folder: Path) -> Path:
    """Return the file's path in the folder of a record."""
    return record_folder / "skipped.json"


def keep_skipped(
    record_folder: Path, skipped: Sequence[Skipped], *, durable: bool, done: bool
) -> None:
    """Record what was left out; only root can read root's file until the run is ``done``."""
    path = skipped_path(record_folder)
    if not skipped:
        path.unlink(missing_ok=True)
        return
    readers = readers_of(manifest_path(record_folder)) if done else ROOT
    mode, gid, uid = as_kept(record_folder, readers)
    text = json.dumps([asdict(item) for item in skipped], indent=2)
    write_atomically(path, [text.encode()], durable=durable, mode=mode, gid=gid, uid=uid)


def nameless(item: Skipped) -> Skipped:
    """Return what everybody may know of it: no name, and the reason only if it has a remedy."""
    return replace(item, path=NAMELESS, reason=_nameless_reason(item) if item.cure else "")


def _nameless_reason(item: Skipped) -> str:
    """Return the reason without another path, which that of a hard link names."""
    return item.reason.partition(" (to ")[0].partition(ITS_HARD_LINK)[0]


def fields_of(skipped: Sequence[Skipped]) -> list[dict[str, Any]]:
    """Return the record's form of them, for ``without_names``: many entries as a few kinds."""
    items = [nameless(item) for item in skipped]
    if len(items) <= _MOST_SINGLE:
        return [asdict(item) for item in items]
    return [{**asdict(item), "times": times} for item, times in Counter(items).items()]


def without_names(fields: Any) -> tuple[Skipped, ...]:
    """Return what was left out, according to the record.

    Raises ``TypeError`` if something is missing or of the wrong type.
    """
    items = [made_of(Skipped, each) for each in fields]
    times = [each.get("times", 1) for each in fields]
    if not all(map(is_count, times)) or sum(times) > _MOST:
        raise TypeError("its count of what was left out is not valid")
    return tuple(chain.from_iterable(map(repeat, items, times)))


def with_names(record_folder: Path, skipped: tuple[Skipped, ...]) -> tuple[Skipped, ...]:
    """Return what was left out with its names, if this user may read them.

    Unchanged if it already has them, as in records of earlier versions.
    """
    if all(item.path != NAMELESS for item in skipped):
        return skipped
    try:
        items = parse_kept(read_kept(skipped_path(record_folder)))
        named = tuple(made_of(Skipped, item) for item in items)
    except (OSError, ValueError, TypeError):
        return skipped
    if len(named) != len(skipped):  # the count is damaged, and may be huge
        return skipped
    return named if _agree(named, skipped) else skipped


def _agree(named: tuple[Skipped, ...], nameless_ones: tuple[Skipped, ...]) -> bool:
    """Whether the names are those of the record's entries, as far as the record tells of these.

    In any order: a record with one of each kind has no order of its own. Versions differ in which
    reasons have a remedy, and so in which of them a record has.
    """
    if Counter(item.failed for item in named) != Counter(item.failed for item in nameless_ones):
        return False
    reasons = Counter((item.failed, _nameless_reason(item)) for item in named)
    return Counter((item.failed, item.reason) for item in nameless_ones if item.reason) <= reasons
