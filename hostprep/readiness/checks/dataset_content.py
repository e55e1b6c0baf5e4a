"""Is every byte of the staged data sets the same as when it was staged?"""

from __future__ import annotations

import time
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._datasets import (
    JudgedDataset,
    Unanswered,
    ask_by_manifest,
    judged_datasets,
    not_compared,
)
from hostprep.readiness.checks._records import DamagedRecord, look_at_damaged, not_judged
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Level, Measured, Severity, Status
from hostprep.staging.inspection import ReadThrough, read_through
from hostprep.units import format_bytes, format_count, format_seconds

_SECONDS = 90.0
_OVERHEAD_SECONDS = 20.0
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Read:
    """A data set and what reading it found; None: it has no hashes to compare with."""

    dataset: JudgedDataset
    size_bytes: int
    found: ReadThrough | Unanswered | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The published data sets, and the records that cannot be read."""

    datasets: tuple[Read, ...]
    damaged: tuple[DamagedRecord, ...]


def look(context: Context) -> Facts:
    """Read every published data set; each has its share of the time."""
    there = [each for each in judged_datasets(context) if each.is_there]
    deadline = time.monotonic() + _SECONDS
    found = []
    for number, each in enumerate(there):
        share = max(0.0, deadline - time.monotonic()) / (len(there) - number)
        found.append(_read(context, each, share))
    return Facts(tuple(found), look_at_damaged(context))


def _read(context: Context, dataset: JudgedDataset, seconds: float) -> Read:
    from hostprep.staging.planning import cores

    record = dataset.record
    assert record is not None
    if record.digest is None:
        return Read(dataset, record.bytes, None)
    found = ask_by_manifest(
        context,
        f"read {dataset.target} through",
        ReadThrough,
        lambda: read_through(record, seconds=seconds, processes=cores()),
        seconds + _OVERHEAD_SECONDS,
    )
    return Read(dataset, record.bytes, found)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each data set."""
    yield from not_judged(facts.datasets, facts.damaged)
    for each in facts.datasets:
        if each.found is None:
            message = f"{each.dataset.name} was staged without verification, so no hash is known."
            yield Finding(Status.SKIP, each.dataset.subject, message)
        elif isinstance(each.found, Unanswered):
            yield not_compared(each.dataset, each.found)
        else:
            yield _judge_one(each, each.found)


def _judge_one(each: Read, found: ReadThrough) -> Finding:
    dataset, wrong = each.dataset, len(found.wrong)
    extent = f"{format_bytes(found.bytes)} of {format_bytes(each.size_bytes)}"
    if wrong:
        named = ", ".join(f"{path} {reason}" for path, reason in found.wrong[:_MOST_NAMED])
        files = f"{format_count(wrong, 'file')} of {dataset.target}"
        message = f"{files} {'is' if wrong == 1 else 'are'} not what was staged: {named}."
    elif found.whole:
        files = format_count(found.files, "file")
        message = f"{dataset.target} was read through, and is what was staged: {files}."
    else:
        message = (
            f"{extent} of {dataset.target} were read in the time available, and none of it is"
            " damaged; the rest was not read."
        )
    differ = f"{format_count(wrong, 'file')} {'differs' if wrong == 1 else 'differ'}"
    hint = "it reads source and copy, and copies what differs"
    remedy = dataset.staging(hint, "--full-check") if wrong else None
    return Finding(
        Status.FAIL if wrong else Status.PASS,
        dataset.subject,
        message,
        Measured(f"{differ}, {extent} read", wrong, "files", "lower"),
        f"none of what is read within {format_seconds(_SECONDS)} differs",
        "the manifest: the xxh3 hash of each file when it was staged",
        0,
        remedy,
    )


CHECK = Check(
    code="HP015",
    title="staged data sets are undamaged",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Reads and hashes every staged file, and compares the hash with the one that was taken when the file
was staged. This finds what sizes and times do not show: a file that was written to and had its old
time restored, a bad memory cell, a disk that returns other bytes than it was given.

All data sets together get 90 s. The finding says how much was not read within that time; the next
run reads in another order.

**FAIL**: a file is not what was staged.
**UNKNOWN**: the target, the manifest or hostprep's record cannot be read.
**SKIP**: no data set is staged; or it was staged with `--verify none`, so no hashes are known; or
it has directories that not everybody may read, and this user may therefore not read its manifest.

`hostprep stage ... --full-check` reads source and copy again, and copies what differs. If the
damage comes back, test the memory (memtest86+) or the disk (`smartctl -a`).
""",
    level=Level.FULL,
)
