"""What of a source was left out, by name: beside the record, for the readers of the manifest.

The record itself, which all may read, tells how many entries that are, and what mends it.

Without their names most of those are the same. A source may have millions, each of them 74 bytes of
a record that has to stay readable: so very many are told as one of each kind, with how often it
comes as ``times``. Versions before that read one of each, and take no names for those.
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
from hostprep.staging.model import ITS_HARD_LINK, Skipped
from hostprep.staging.record.manifest import manifest_path
from hostprep.staging.record.readers import ROOT, as_kept, readers_of
from hostprep.system.kept import made_of, parse_kept, read_kept
from hostprep.system.own_files import write_atomically

# In the place of a name that is not for all.
NAMELESS = "?"
# So many the record has one by one, as all versions read them.
_MOST_SINGLE = 10_000
# More than a run has memory for, whatever a damaged record says.
_MOST = 100_000_000


def skipped_path(record_folder: Path) -> Path:
    """Return the file's path in the folder of a record."""
    return record_folder / "skipped.json"


def keep_skipped(
    record_folder: Path, skipped: Sequence[Skipped], *, durable: bool, done: bool
) -> None:
    """Write down what was left out; of root's nobody else reads it before the run is ``done``."""
    path = skipped_path(record_folder)
    if not skipped:
        path.unlink(missing_ok=True)
        return
    readers = readers_of(manifest_path(record_folder)) if done else ROOT
    mode, gid, uid = as_kept(record_folder, readers)
    text = json.dumps([asdict(item) for item in skipped], indent=2)
    write_atomically(path, [text.encode()], durable=durable, mode=mode, gid=gid, uid=uid)


def nameless(item: Skipped) -> Skipped:
    """Return what all may know of it: its reason only where that tells what helps, and no name."""
    reason = ""
    if item.cure:  # of a hard link the reason names another
        reason = item.reason.partition(" (to ")[0].partition(ITS_HARD_LINK)[0]
    return replace(item, path=NAMELESS, reason=reason)


def fields_of(skipped: Sequence[Skipped]) -> list[dict[str, Any]]:
    """Return what the record has of them, for ``without_names``; few kinds of many entries."""
    items = [nameless(item) for item in skipped]
    if len(items) <= _MOST_SINGLE:
        return [asdict(item) for item in items]
    return [{**asdict(item), "times": times} for item, times in Counter(items).items()]


def without_names(fields: Any) -> tuple[Skipped, ...]:
    """Return what was left out, as the record has it.

    Raises ``TypeError`` where something is missing or of another kind.
    """
    items = [made_of(Skipped, each) for each in fields]
    times = [each.get("times", 1) for each in fields]
    if not all(map(is_count, times)) or sum(times) > _MOST:
        raise TypeError("its count of what was left out is none")
    return tuple(chain.from_iterable(map(repeat, items, times)))


def with_names(record_folder: Path, skipped: tuple[Skipped, ...]) -> tuple[Skipped, ...]:
    """Return what was left out with its names, where this user may read them.

    As it is where it has them, as in records of earlier versions.
    """
    if all(item.path != NAMELESS for item in skipped):
        return skipped
    try:
        items = parse_kept(read_kept(skipped_path(record_folder)))
        named = tuple(made_of(Skipped, item) for item in items)
    except (OSError, ValueError, TypeError):
        return skipped
    if len(named) != len(skipped):  # as of a damaged count, which may be of very many
        return skipped
    # In whatever order: a record that has one of each kind does not tell it.
    return named if Counter(map(nameless, named)) == Counter(skipped) else skipped
