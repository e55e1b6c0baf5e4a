"""What a smoke test says: checks, each with its threshold, its source and its remedy; a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from hostprep.dataclass import dataclass


class Status(StrEnum):
    """A check's outcome, and the verdict over all of them.

    WARN is a check's alone: worth a remedy, no reason to fail. SKIP was not tested; ERROR means
    that the instrument is broken and what it says is worth nothing.
    """

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    SKIP = "SKIP"
    ERROR = "ERROR"


# Of a threshold that is nobody else's; and what to do where a measurement does not tell.
OWN = "hostprep's own, see docs/prefetching.md"
RUN_AGAIN = "run it again on a quiet machine; report it if it stays"
EXIT_CODES = {
    Status.PASS: 0,
    Status.FAIL: 3,
    Status.INCONCLUSIVE: 4,
    Status.SKIP: 4,
    Status.ERROR: 1,
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a value is held against, in words, and who says so."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. ``measured`` is None where there is nothing to measure.

    ``name`` is stable, ``subject`` says of what (``cuda:0``, ``driver``), ``message`` is a sentence
    for people, ``remedy`` what to do unless it passed.
    """

    name: str
    subject: str
    status: Status
    message: str
    measured: float | int | str | None = None
    unit: str | None = None
    threshold: Threshold | None = None
    remedy: str | None = None


def verdict(checks: Iterable[Check]) -> Status:
    """Return the verdict over all checks.

    A FAIL is a FAIL whatever else there is; then a broken instrument, then what stayed open. All
    skipped is SKIP; where only some were skipped, the rest is no PASS but INCONCLUSIVE.
    """
    found = {check.status for check in checks}
    for status in (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE):
        if status in found:
            return status
    if found <= {Status.SKIP}:
        return Status.SKIP
    return Status.INCONCLUSIVE if Status.SKIP in found else Status.PASS
