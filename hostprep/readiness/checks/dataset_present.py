"""Is every data set of the spec there, and complete?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import limit_hint
from hostprep.host.fscrypt import UNLOCK
from hostprep.readiness.checks._boot import ask_boot
from hostprep.readiness.checks._datasets import JudgedDataset, judged_datasets, making_way
from hostprep.readiness.checks._disks import is_there
from hostprep.readiness.checks._records import (
    NONE_KNOWN,
    DamagedRecord,
    look_at_damaged,
    not_judged,
)
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.staging.record.records import Record
from hostprep.staging.shortfall import cure_of
from hostprep.staging.status import NOT_FOR_US
from hostprep.units import format_bytes, format_count

# In these states of its boot service, a data set is still on its way.
_COMES_UP = ("waiting", "staging")


@dataclass(frozen=True, slots=True)
class Facts:
    """The data sets; ``coming`` names those that their boot service has yet to stage.

    ``damaged`` are the records that cannot be read. ``taken`` are the targets that were never
    staged but where something is all the same; a run leaves that alone.
    """

    datasets: tuple[JudgedDataset, ...]
    coming: frozenset[str]
    damaged: tuple[DamagedRecord, ...]
    taken: frozenset[str]


def look(context: Context) -> Facts:
    """Read the records, and for missing data sets whether the boot service is working on it."""
    found = judged_datasets(context)
    datasets = tuple(each for each in found if each.state != "damaged")
    absent = (each for each in datasets if each.at_boot and not each.is_there)
    return Facts(
        datasets,
        frozenset(each.name for each in absent if ask_boot(context, each.name).state in _COMES_UP),
        look_at_damaged(context),
        frozenset(each.target for each in datasets if _is_taken(context, each)),
    )


def _is_taken(context: Context, dataset: JudgedDataset) -> bool:
    """Whether something is in the place of a data set that was never staged."""
    if dataset.state != "never" or dataset.lost_volume is not None:
        return False
    return bool(is_there(context, dataset.target))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each data set."""
    yield from not_judged(facts.datasets, facts.damaged, NONE_KNOWN)
    for dataset in facts.datasets:
        yield _judge_one(dataset, dataset.name in facts.coming, dataset.target in facts.taken)


def _judge_one(dataset: JudgedDataset, coming: bool, taken: bool) -> Finding:
    name, target = dataset.name, dataset.target
    if dataset.lost_volume is not None:
        message = f"the volume of {name}, {dataset.lost_volume}, is not there (HP001)."
        return Finding(Status.SKIP, dataset.subject, message)
    if dataset.is_there:
        assert dataset.record is not None
        return _judge_copy(dataset, dataset.record)
    if dataset.state == "copying" or coming:
        message = f"{name} is being staged to {target}, and is not there yet."
        return _finding(dataset, Status.FAIL, message, Remedy((f"hostprep wait {quote(name)}",)))
    if dataset.state == "interrupted":
        if dataset.record is not None and dataset.record.phase == "removing":
            message = f"{target} is incomplete: {dataset.reason}."
            return _finding(dataset, Status.FAIL, message, _after_removal(dataset, dataset.record))
        message = f"the staging of {name} was interrupted: {target} is incomplete."
        return _finding(dataset, Status.FAIL, message, dataset.staging())
    if dataset.state == "unreachable":
        return _finding(dataset, Status.UNKNOWN, *_unreachable(dataset))
    if taken:
        message = (
            f"according to its records here, hostprep did not stage what lies at {target}, and"
            " nobody can tell whether it is complete."
        )
        remedy = making_way(dataset, "`hostprep stage` leaves alone what it did not make")
        return _finding(dataset, Status.FAIL, message, remedy)
    status = Status.FAIL if dataset.in_spec else Status.WARN
    message = f"{target} is not there: {dataset.reason}."
    return _finding(dataset, status, message, dataset.staging())


def _judge_copy(dataset: JudgedDataset, record: Record) -> Finding:
    """Judge a data set that is published, maybe in part."""
    target = dataset.target
    if dataset.state == "partial":
        blocked = any(item.blocked for item in record.skipped)
        remedy = dataset.staging(f"first {cure_of(record.skipped)}" if blocked else None)
        message = f"{target} was published without {_lacking(record)}."
        return _finding(dataset, Status.WARN, message, remedy)
    if not record.files:
        message = f"{target} is there, and holds no files: nor did its source when it was staged."
        return _finding(dataset, Status.FAIL, message, _filled(dataset))
    size = format_bytes(record.bytes)
    message = f"{target} is there: {format_count(record.files, 'file')}, {size}."
    return _finding(dataset, Status.PASS, message, None)


def _finding(
    dataset: JudgedDataset, status: Status, message: str, remedy: Remedy | None
) -> Finding:
    return dataset.finding(status, message, dataset.state, "staged, and not empty", remedy)


def _unreachable(dataset: JudgedDataset) -> tuple[str, Remedy]:
    """Say that nobody can tell whether it is there, and what helps."""
    target = dataset.target
    if dataset.reason.startswith(NOT_FOR_US):
        hint = "see who may, and run the check as such a user"
        message = f"{target} may be there or not: {dataset.reason}."
        return message, Remedy((f"namei -l {quote(target)}",), hint)
    message = f"nobody can tell whether {target} is there ({dataset.reason})."
    if (dataset.in_the_way or "").startswith(UNLOCK):
        return message, Remedy((), dataset.in_the_way)
    if limit := limit_hint(dataset.reason.rpartition(": ")[2]):
        return message, Remedy((), limit)
    hint = "find out why its disk fails, or why its server does not answer"
    return message, Remedy(("findmnt --real",), hint)


def _filled(dataset: JudgedDataset) -> Remedy:
    """Return the remedy for a data set whose source had no files when it was staged."""
    return replace(
        dataset.staging(),
        hint=f"bring what belongs in {dataset.source} back (is its disk or share mounted?), then"
        " stage it again; if it is not needed, remove it with `hostprep unstage"
        f" {quote(dataset.target)}`",
    )


def _lacking(record: Record) -> str:
    """Say how many of the source's entries it lacks, and why."""
    blocked = sum(item.blocked for item in record.skipped)
    unread = sum(item.failed for item in record.skipped) - blocked
    parts = []
    if unread or not blocked:
        parts.append(
            f"the current state of {unread} of the source's entries, which could not be read"
        )
    if blocked:
        parts.append(
            f"{blocked} of the source's entries, whose place on the target is taken by something"
            " else"
        )
    return ", and ".join(parts)


def _after_removal(dataset: JudgedDataset, record: Record) -> Remedy:
    """Return the remedy after an incomplete removal; a wanted data set is then staged again."""
    hint = f"first move away what is left in {dataset.target}" if record.left is not None else None
    if dataset.in_spec:
        return dataset.staging(hint)
    return Remedy((f"hostprep unstage {quote(dataset.target)}",), hint)


CHECK = Check(
    code="HP010",
    title="data sets are staged",
    severity=Severity.CRITICAL,
    verdicts=frozenset(Status),
    look=look,
    judge=judge,
    page="""\
Each data set of the spec must be published on its target, according to hostprep's record. Other
data sets that were staged here are checked too, as long as they are there or there is no spec.

**FAIL**: the data set was never staged, was lost in a reboot, was interrupted while it was staged,
was only partly unstaged, or is being staged right now: a job that starts now finds none of it, or
only a part. Or it is there but has no files, because its source had none, like the mount point of a
share that is not mounted yet. Or something is there that hostprep has no record of, such as a copy
made by hand: it cannot be verified.
**WARN**: the data set was published without entries of the source that could not be read, or whose
place on the target was taken by something else; or a data set that the spec does not name is gone.
**UNKNOWN**: hostprep's record cannot be read, so nothing is known about its data set; or the target
does not answer, or is encrypted and locked, or this user may not look there.
**SKIP**: the volume of the data set is not mounted. HP001 reports this, and its remedy stages the
data set as well.

`hostprep stage` with the source (or `hostprep apply`) stages the data set or completes an
interrupted run; `hostprep unstage` again finishes a removal, once you have moved away what others
changed or added. `hostprep wait NAME` waits for a data set that is still being staged.
""",
)
