"""What the hosts' own documents say of a run: changes, what was staged, and what bound it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.fleet.model import FleetRun, HostOutcome

# These carry out or predict what their host's document lists change by change.
_CONVERGE = ("hostprep.apply/1", "hostprep.plan/1")
CONVERGE_TASK = "Converge"


@dataclass(frozen=True, slots=True)
class HostChange:
    """One thing that changed on a host, or would: the words of its hostprep, or a task's name."""

    subject: str
    action: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """Something that is not as the spec has it, and stays so: no run makes it so."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Staged:
    """A data set that a host staged. ``bound_by`` is what bound it, None where that is unknown."""

    dataset: str
    copied_bytes: int
    seconds: float
    bound_by: str | None


@dataclass(frozen=True, slots=True)
class TotalRate:
    """All that the hosts staged, from the first host's beginning to the last one's end."""

    copied_bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """The mean rate at which the sources were read, all hosts together."""
        return self.copied_bytes / self.seconds


def changes_of(outcome: HostOutcome) -> tuple[HostChange, ...]:
    """Return what changed on a host, or would: tasks, and in place of ``Converge`` its steps."""
    steps = tuple(
        HostChange(f"{each['kind']} {each['subject']}", each["action"], each["reason"])
        for document in outcome.documents
        if document.get("schema") in _CONVERGE
        for each in _steps(document)
    )
    tasks = tuple(
        HostChange(task) for task in outcome.changed_tasks if task != CONVERGE_TASK or not steps
    )
    return tasks + steps


def left_on(outcome: HostOutcome) -> tuple[Left, ...]:
    """Return what is not as the spec has it though nothing of it is changed, or would be."""
    return tuple(
        Left(f"{each['kind']} {each['subject']}", each["reason"])
        for document in outcome.documents
        if document.get("schema") in _CONVERGE
        for each in document.get("unchanged", ())
        if not each["as_wanted"]
    )


def warnings_of(outcome: HostOutcome) -> tuple[str, ...]:
    """Return what was warned of a host, each once though plan and apply both say it."""
    said = [
        str(warning)
        for document in outcome.documents
        if document.get("schema") in _CONVERGE
        for warning in document.get("warnings", ())
    ]
    return tuple(dict.fromkeys((*outcome.warnings, *said)))


def staged_by(outcome: HostOutcome) -> tuple[Staged, ...]:
    """Return the data sets that a host staged in this run."""
    return tuple(
        Staged(
            str(each["dataset"]),
            int(each["copied_bytes"]),
            float(each["seconds"]),
            _bound_by(each.get("bound")),
        )
        for document in outcome.documents
        for each in document.get("staged", ())
    )


def total_rate(run: FleetRun) -> TotalRate | None:
    """Return how fast the hosts staged together; None where nothing was copied."""
    stagers = [outcome for outcome in run.hosts if _copied(staged_by(outcome))]
    begins = [outcome.started_at for outcome in stagers if outcome.started_at is not None]
    ends = [outcome.ended_at for outcome in stagers if outcome.ended_at is not None]
    if not begins or not ends or max(ends) <= min(begins):
        return None
    copied = sum(_copied(staged_by(outcome)) for outcome in stagers)
    return TotalRate(copied, max(ends) - min(begins))


def _steps(document: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Return the changes that were made or, of a plan, would be: none where any is refused."""
    planned = () if document.get("refusals") else document.get("changes", ())
    steps: Iterable[dict[str, Any]] = document.get("done", planned)
    return steps


def _copied(staged: Iterable[Staged]) -> int:
    return sum(each.copied_bytes for each in staged)


def _bound_by(bound: Any) -> str | None:
    return str(bound["by"]) if isinstance(bound, dict) and "by" in bound else None
