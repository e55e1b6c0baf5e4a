"""What a check is and what it finds; pure data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError

if TYPE_CHECKING:
    from hostprep.readiness.context import Context

Facts = TypeVar("Facts")


class Status(StrEnum):
    """The outcome of a finding, and the verdict over all of them; no two are ever merged.

    UNKNOWN: something that should have been found out was not; the finding says what it would take.
    SKIP: this host has nothing to look at, or this user, container or virtual machine cannot see it
    by design; then the message says who can.
    """

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    SKIP = "SKIP"


class Level(StrEnum):
    """QUICK takes a fraction of a second and puts no load on; FULL may measure for a minute."""

    QUICK = "quick"
    FULL = "full"


class Severity(StrEnum):
    """What a FAIL of the check means for a training run."""

    CRITICAL = "critical"  # it stops, or trains on other data than intended
    MAJOR = "major"  # its GPUs have to wait
    MINOR = "minor"  # it may be hurt later


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found: as text for people, and as a value with a unit (``bytes``, ``seconds``, ...).

    ``better`` is the better direction, ``higher`` or ``lower``; only with it can two values of a
    check be compared with each other, over time or across a fleet.
    """

    text: str
    value: float | int | str | bool | None = None
    unit: str | None = None
    better: str | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """What fixes a finding: command lines to paste, in this order, and a hint in words."""

    commands: tuple[str, ...] = ()
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found about one subject (``/mnt/ram``, ``cuda:0``).

    ``message`` is a whole sentence. ``threshold`` is what the measured value is compared with, in
    words, ``threshold_value`` the same in the unit of the measured value, ``threshold_from`` its
    source. WARN, FAIL and UNKNOWN have a ``remedy``.
    """

    status: Status
    subject: str
    message: str
    measured: Measured | None = None
    threshold: str | None = None
    threshold_from: str | None = None
    threshold_value: float | int | None = None
    remedy: Remedy | None = None


class CannotTell(HostprepError):
    """Something that a check needs cannot be read; ``hint`` says what it would take."""

    code = "unknown"

    def __init__(self, message: str, hint: str, *, commands: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint)
        self.commands = commands


class NotInstalled(CannotTell):
    """A program that is needed is not installed; ``commands`` install it, if they are known."""


@dataclass(frozen=True, slots=True)
class Check(Generic[Facts]):
    """One thing to look at, as data.

    ``look`` reads what there is to know, through the context only; ``judge`` is pure. ``verdicts``
    are the statuses that they can produce, each with a fixture. ``page`` explains in Markdown what
    is looked at, why it matters and what to do. A quick check that takes longer than
    ``limit_seconds`` is abandoned as UNKNOWN; a full check limits itself. A quick check with
    ``after_full`` judges what the full checks have just measured, if they run too.
    """

    code: str
    title: str
    severity: Severity
    verdicts: frozenset[Status]
    look: Callable[[Context], Facts]
    judge: Callable[[Facts], Iterable[Finding]]
    page: str
    level: Level = Level.QUICK
    limit_seconds: float = 5.0
    after_full: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """A finding with the check that made it."""

    code: str
    title: str
    severity: Severity
    finding: Finding

    @property
    def status(self) -> Status:
        """Return the finding's status."""
        return self.finding.status

    def fields(self) -> dict[str, Any]:
        """Return the result with the fields of the JSON contract."""
        finding = asdict(self.finding)
        return {
            "code": self.code,
            "title": self.title,
            "status": self.status.value,
            "subject": finding["subject"],
            "severity": self.severity.value,
            "message": finding["message"],
            "measured": finding["measured"],
            "threshold": finding["threshold"],
            "threshold_value": finding["threshold_value"],
            "threshold_from": finding["threshold_from"],
            "remedy": finding["remedy"]
            and {**finding["remedy"], "commands": list(finding["remedy"]["commands"])},
        }


def verdict(statuses: Iterable[Status]) -> Status:
    """Return the verdict over all findings.

    FAIL beats everything, then UNKNOWN. SKIP says nothing, so it is the verdict only if there is
    nothing else: nothing was checked then, which is not a pass.
    """
    found = set(statuses)
    for status in (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS):
        if status in found:
            return status
    return Status.SKIP


EXIT_CODES = {
    Status.PASS: 0,
    Status.WARN: 0,
    Status.FAIL: 3,
    Status.UNKNOWN: 4,
    Status.SKIP: 4,
}
