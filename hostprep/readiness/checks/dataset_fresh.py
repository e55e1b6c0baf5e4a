"""Does the source still hold what was staged?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._commands import mount_anew_line
from hostprep.readiness.checks._datasets import (
    Compared,
    JudgedDataset,
    Unanswered,
    compared,
    comparison,
    difference,
    extent,
    judged_datasets,
    not_compared,
)
from hostprep.readiness.checks._records import DamagedRecord, look_at_damaged, not_judged
from hostprep.readiness.checks._sizes import is_limited
from hostprep.readiness.checks._volumes import hint_outside_of_jobs
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.readiness.side_by_side import at_once
from hostprep.staging.inspection import Inspected, inspect_source
from hostprep.units import format_count


@dataclass(frozen=True, slots=True)
class Facts:
    """The published data sets; those whose source does not answer, or is gone, are not compared.

    ``mount`` has, by a data set's target, the line that mounts its volume. ``limited`` has the
    targets whose line must not be run within a job. ``damaged`` are the records that cannot be
    read.
    """

    datasets: tuple[Compared, ...]
    mount: dict[str, str]
    damaged: tuple[DamagedRecord, ...]
    limited: frozenset[str] = frozenset()


def look(context: Context) -> Facts:
    """Compare the source of each published data set with the manifest."""

    def ask(each: JudgedDataset) -> Compared:
        if each.origin.state != "fine" or _is_elsewhere(each):
            return Compared(each, None)
        name = f"{each.source} against the manifest of {each.target}"
        return compared(context, each, name, inspect_source)

    there = [each for each in judged_datasets(context) if each.is_there]
    volumes = {} if context.spec is None else {v.path: v for v in context.spec.volumes}
    on = {
        each.target: volumes[each.record.volume]
        for each in there
        if each.record is not None and each.record.volume in volumes
    }
    return Facts(
        at_once(ask, there),
        {target: mount_anew_line(volume, context) for target, volume in on.items()},
        look_at_damaged(context),
        frozenset(target for target, volume in on.items() if is_limited(volume, context)),
    )


def _is_elsewhere(dataset: JudgedDataset) -> bool:
    """Whether it was staged from another source than the spec names now."""
    staged_from = None if dataset.record is None else dataset.record.source
    return dataset.origin.real is not None and staged_from != dataset.origin.real


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each data set."""
    yield from not_judged(facts.datasets, facts.damaged)
    for each in facts.datasets:
        if isinstance(each.found, Unanswered):
            yield not_compared(each.dataset, each.found)
        elif each.found is not None:
            yield _judge_one(each, each.found)
        elif _is_elsewhere(each.dataset):
            mount = facts.mount.get(each.dataset.target)
            limited = each.dataset.target in facts.limited
            yield _from_elsewhere(each.dataset, mount, limited=limited)
        else:
            message = f"the source of {each.dataset.name} cannot be looked at (HP014 says why)."
            if each.dataset.origin.state == "empty":
                message = f"the source of {each.dataset.name} holds nothing to compare (see HP014)."
            yield Finding(Status.SKIP, each.dataset.subject, message)


def _from_elsewhere(dataset: JudgedDataset, mount: str | None, *, limited: bool) -> Finding:
    staged_from = "" if dataset.record is None else dataset.record.source
    named, real = dataset.source, dataset.origin.real
    leads = "" if real in (None, named) else f", which leads to {real} now"
    remedy = dataset.staging("this replaces the copy; its volume is unmounted once it is empty")
    if remedy.commands:
        lines = (f"hostprep unstage {quote(dataset.target)}", *((mount,) if mount else ()))
        hint = hint_outside_of_jobs(remedy.hint, limited=limited)
        remedy = replace(remedy, commands=(*lines, *remedy.commands), hint=hint)
    return Finding(
        Status.FAIL,
        dataset.subject,
        f"{dataset.name} was staged from {staged_from}, but the spec names {named}{leads}.",
        Measured(staged_from, staged_from),
        real or named,
        "the spec",
        remedy=remedy,
    )


def _judge_one(each: Compared, found: Inspected) -> Finding:
    differ = found.changed + found.missing + found.added
    name, source = each.dataset.name, each.dataset.source
    failed = (
        0 if each.dataset.record is None else sum(s.failed for s in each.dataset.record.skipped)
    )
    but = f", except for {format_count(failed, 'entry')} that could not be staged" if failed else ""
    message = f"{name} is what {source} holds{but}: {extent(found)} compared."
    if differ:
        message = f"{source} has changed since {name} was staged: {difference(found)}."
    names = "the source: names, sizes, times, owners and modes"
    cure = "it copies what changed, and keeps the rest"
    return comparison(each, found, differ, message, names, cure)


CHECK = Check(
    code="HP012",
    title="staged data sets are fresh",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Compares the source of each data set with the manifest of what was staged: names, sizes,
modification times, owners and modes. A training run on a stale copy learns from other data than
intended, and nothing reports it.

If a source has very many files, `--quick` compares as many as it can in 0.7 s, different ones each
time, and says how many; `--full` takes up to 30 s. A source that hangs is not compared: see HP014.

**FAIL**: files of the source were changed, added or removed since, or the spec names another source
than the one that the data set was staged from.
**UNKNOWN**: the comparison was not possible, or hostprep's record cannot be read.
**SKIP**: there is nothing to compare: no data set is staged, or its source does not answer or is
empty (HP014 says why); or it has directories that not everybody may read, and this user may
therefore not read its manifest.

Run the same `hostprep stage` again to update the copy; it copies only what changed. If the spec
names another source, the remedy unstages the old copy first.
""",
)
