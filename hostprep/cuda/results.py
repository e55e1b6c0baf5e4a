"""What a smoke test reports: checks, each with threshold, source and remedy; and a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from hostprep.dataclass import dataclass


class Status(StrEnum):
    """A check's outcome, and the verdict over all of them.

    WARN applies to single checks only: worth a remedy, but no reason to fail. SKIP means not
    tested; ERROR means that the instrument is broken and its result worthless.
    """

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    SKIP = "SKIP"
    ERROR = "ERROR"


# The source of hostprep's own thresholds; and what to do if a measurement is inconclusive.
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
    """What a value is compared with, in words, and the source of that."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked. ``measured`` is None if there is nothing to measure.

    ``name`` is stable, ``subject`` says what was checked (``cuda:0``, ``driver``), ``message`` is a
    sentence for people, ``remedy`` says what to do unless it passed.
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

    A FAIL is a FAIL whatever else there is; next come a broken instrument, then inconclusive
    checks. All skipped is SKIP; if only some were skipped, the rest makes no PASS but INCONCLUSIVE.
    """
    found = {check.status for check in checks}
    for status in (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE):
        if status in found:
            return status
    if found <= {Status.SKIP}:
        return Status.SKIP
    return Status.INCONCLUSIVE if Status.SKIP in found else Status.PASS
