"""Records of data sets that cannot be read: which data set they are of, and what helps."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sized

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._sources import Way, ask_way
from hostprep.readiness.context import Context
from hostprep.readiness.model import Finding, Remedy, Status
from hostprep.readiness.side_by_side import at_once
from hostprep.spec.model import DatasetSpec
from hostprep.staging.record.records import record_id

NONE_KNOWN = "no data set is in the spec, and none is on record."


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that cannot be read; its data set may be complete, incomplete, or not there.

    ``target`` is that of the spec's data set to which the record belongs, None if it belongs to
    none of them. ``subject`` is that data set's name, or else the name of the record's folder.
    """

    subject: str
    target: str | None
    message: str
    hint: str


def look_at_damaged(context: Context) -> tuple[DamagedRecord, ...]:
    """Return what is wrong with each record that cannot be read."""
    damaged = context.damaged
    if not damaged:
        return ()
    known = {status.record.target for status in context.datasets}  # this machine's or user's
    datasets = context.spec.datasets if context.spec else ()
    targets = targets_of(context, datasets)
    wanted = {
        record_id(each.name, target): each
        for each in datasets
        for target in targets[each.target]
        if target not in known
    }
    found = []
    for folder, error in damaged.items():
        of = wanted.get(folder)
        hint = (error.hint or "fix that, or move its folder away").removeprefix(
            "nothing was changed; "
        )
        found.append(
            DamagedRecord(
                folder if of is None else of.name,
                None if of is None else of.target,
                error.message,
                f"{hint}; the staged copy is then on no record: move it away too, and stage it"
                " again",
            )
        )
    return tuple(found)


def not_judged(
    found: Sized, damaged: tuple[DamagedRecord, ...], none: str = "no data set is staged here."
) -> Iterator[Finding]:
    """Yield the UNKNOWN for each damaged record, or a SKIP if there is nothing to judge at all."""
    if not (found or damaged):
        yield Finding(Status.SKIP, "data sets", none)
    for each in damaged:
        yield Finding(
            Status.UNKNOWN,
            each.subject,
            each.message,
            remedy=Remedy(("hostprep status",), each.hint),
        )


def targets_of(context: Context, wanted: Collection[DatasetSpec]) -> dict[str, tuple[str, ...]]:
    """Return by target the paths under which it may be on record: as is and without symlinks."""
    by_to = ways_of(context, wanted)
    found = {}
    for each in wanted:
        real = by_to[each.to].real if each.to else None
        also = () if real is None else (os.path.join(real, each.name),)
        found[each.target] = (each.target, *also)
    return found


def ways_of(context: Context, wanted: Collection[DatasetSpec]) -> dict[str | None, Way]:
    """Return where each `to:` leads; several that hang take no longer than one."""
    places = tuple({each.to: None for each in wanted if each.to})
    ways = at_once(lambda place: ask_way(context, place), places)
    return dict(zip(places, ways, strict=True))
