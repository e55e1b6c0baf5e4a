"""Is the copy still what was staged, by names, sizes and times?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._datasets import (
    Compared,
    JudgedDataset,
    compared,
    comparison,
    difference,
    extent,
    judged_datasets,
    not_compared,
    staging_anew,
)
from hostprep.readiness.checks._records import DamagedRecord, look_at_damaged, not_judged
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Severity, Status
from hostprep.readiness.side_by_side import at_once
from hostprep.staging.inspection import Inspected, inspect_target
from hostprep.units import format_count


@dataclass(frozen=True, slots=True)
class Facts:
    """The published data sets with their comparisons, and the records that cannot be read."""

    datasets: tuple[Compared, ...]
    damaged: tuple[DamagedRecord, ...]


def look(context: Context) -> Facts:
    """Compare each published data set with its manifest."""

    def ask(each: JudgedDataset) -> Compared:
        return compared(context, each, f"{each.target} against its manifest", inspect_target)

    there = [each for each in judged_datasets(context) if each.is_there]
    return Facts(at_once(ask, there), look_at_damaged(context))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each data set."""
    yield from not_judged(facts.datasets, facts.damaged)
    for each in facts.datasets:
        found = each.found
        if isinstance(found, Inspected):
            yield _judge_one(each, found)
        elif found is not None and found.damaged:
            remedy = staging_anew(each.dataset)
            yield Finding(Status.UNKNOWN, each.dataset.subject, found.why, remedy=remedy)
        elif found is not None:
            yield not_compared(each.dataset, found)


def _judge_one(each: Compared, found: Inspected) -> Finding:
    wrong = found.changed + found.missing
    message = f"{each.dataset.target} is as it was staged: {extent(found)} compared."
    if found.added:
        others = format_count(found.added, "entry")
        message += f" Also there, but not staged by hostprep: {others}."
    if wrong:
        message = f"{each.dataset.target} is not as it was staged: {difference(found)}."
    names = "the manifest: names, sizes and times of modification"
    cure = "it copies what differs, and keeps the rest"
    return comparison(each, found, wrong, message, names, cure)


CHECK = Check(
    code="HP011",
    title="staged data sets are complete",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Compares every file, symlink and directory on the target with the manifest that was written when the
data set was staged: whether it is there, its size, and its modification time. File contents are not
read; HP015 does that.

If a data set has very many files, `--quick` compares as many as it can in 0.7 s, different ones
each time, and says how many; `--full` takes up to 30 s.

**FAIL**: something on the target is missing or was changed.
**UNKNOWN**: the target, the manifest or hostprep's record cannot be read, or did not answer.
**SKIP**: no data set is staged; or the data set has directories that not everybody may read, and
this user may therefore not read its manifest.

Run the same `hostprep stage` again to repair the copy; it copies only what differs. Files that
others put there are not a fault, and stay. If the manifest is missing or damaged, nobody can tell
which of the files are hostprep's: the remedy moves the copy aside and stages the data set again.
""",
)
