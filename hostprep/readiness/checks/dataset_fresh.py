"""Is what was staged still what the source holds?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hostprep.readiness.checks._datasets import (
    Compared,
    cannot_compare,
    compared,
    difference,
    extent,
    look_at_datasets,
    source_answers,
)
from hostprep.readiness.context import Context
from hostprep.readiness.model import (
    CannotTell,
    Check,
    Finding,
    Measured,
    Remedy,
    Severity,
    Status,
)
from hostprep.staging.inspection import Inspected, inspect_source


@dataclass(frozen=True, slots=True)
class Facts:
    """The published data sets; those whose source does not answer, or is gone, are not compared."""

    datasets: tuple[Compared, ...]


def look(context: Context) -> Facts:
    """Compare the source of each published data set with the manifest."""
    found = []
    for each in look_at_datasets(context):
        if not each.is_there or each.record is None:
            continue
        source = each.record.source
        try:
            fine = source_answers(context, source)["state"] == "fine"
        except CannotTell:
            fine = False
        if fine:
            name = f"{source} against the manifest of {each.target}"
            found.append(compared(context, each, name, inspect_source))
        else:
            found.append(Compared(each, None))
    return Facts(tuple(found))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each data set."""
    if not facts.datasets:
        yield Finding(Status.SKIP, "data sets", "no data set is staged here.")
    for each in facts.datasets:
        if each.found is not None:
            yield _judge_one(each, each.found)
        elif each.problem is not None:
            yield cannot_compare(each.dataset, each.problem)
        else:
            message = f"the source of {each.dataset.name} cannot be looked at (HP014 says why)."
            yield Finding(Status.SKIP, each.dataset.subject, message)


def _judge_one(each: Compared, found: Inspected) -> Finding:
    differ = found.changed + found.missing + found.added
    name, source = each.dataset.name, each.dataset.source
    message = f"{name} is what {source} holds: {extent(found)} compared."
    if differ:
        message = f"{source} was changed since {name} was staged: {difference(found)}."
    return Finding(
        Status.FAIL if differ else Status.PASS,
        each.dataset.subject,
        message,
        Measured(f"{differ:,} entries differ", differ, "entries", "lower"),
        "none differs",
        "the source: names, sizes, times, owners and modes",
        0,
        Remedy(each.dataset.cure, "it copies what changed, and keeps the rest") if differ else None,
    )


CHECK = Check(
    code="HP012",
    title="staged data sets are fresh",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
The source of each data set is held against the manifest of what was staged: names, sizes, times of
modification, owners and modes. A training on a stale copy learns from other data than was meant,
and nothing tells.

Of a source with very many files `--quick` compares as many as it can in 0.7 s, each time others,
and says how many; `--full` takes up to 30 s. A source that hangs is left alone: see HP014.

**FAIL** the source has files that were changed, added or removed since. **UNKNOWN** it could not be
compared.

The same `hostprep stage` brings the copy up to date; it copies only what changed.
""",
)
