"""Records of data sets that cannot be read: whose they are, and what helps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized

from hostprep.dataclass import dataclass
from hostprep.readiness.context import Context
from hostprep.readiness.model import Finding, Remedy, Status
from hostprep.spec.model import DatasetSpec
from hostprep.staging.record.records import record_id

NONE_KNOWN = "no data set is in the spec, and none is on record."


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that cannot be read, so that what it is of may be there, whole, or neither.

    ``target`` is that of the spec's data set which it is of, None where it is of none of them.
    ``subject`` is then that data set's name, else the name of the record's folder.
    """

    subject: str
    target: str | None
    message: str
    hint: str


def look_at_damaged(context: Context) -> tuple[DamagedRecord, ...]:
    """Return what is wrong with the records that cannot be read, none where all can."""
    damaged = context.damaged
    if not damaged:
        return ()
    known = {status.record.target for status in context.datasets}  # of the machine's, or one's own
    wanted = {
        record_id(each.name, target): each
        for each in (context.spec.datasets if context.spec else ())
        for target in targets_of(each)
        if target not in known
    }
    found = []
    for folder, error in damaged.items():
        of = wanted.get(folder)
        hint = (error.hint or "mend that, or move its folder away").removeprefix(
            "nothing was changed; "
        )
        found.append(
            DamagedRecord(
                folder if of is None else of.name,
                None if of is None else of.target,
                error.message,
                f"{hint}; what was staged is nobody's then: move that away too, and stage it again",
            )
        )
    return tuple(found)


def not_judged(
    found: Sized, damaged: tuple[DamagedRecord, ...], none: str = "no data set is staged here."
) -> Iterator[Finding]:
    """Yield the UNKNOWN for each damaged record, or the SKIP that there is nothing at all."""
    if not (found or damaged):
        yield Finding(Status.SKIP, "data sets", none)
    for each in damaged:
        yield Finding(
            Status.UNKNOWN,
            each.subject,
            each.message,
            remedy=Remedy(("hostprep status",), each.hint),
        )


def targets_of(wanted: DatasetSpec) -> tuple[str, ...]:
    """Return the paths under which it may be on record: as written, and without symlinks."""
    if wanted.to is None:
        return (wanted.target,)
    return wanted.target, os.path.join(os.path.realpath(wanted.to), wanted.name)
