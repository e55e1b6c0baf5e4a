"""What the hosts' documents say: changes, what was staged, and what limited its speed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.fleet.model import FleetRun, HostOutcome

# Tasks with these documents carry out or predict the changes that their document lists.
_CONVERGE = ("hostprep.apply/1", "hostprep.plan/1")
CONVERGE_TASK = "Converge"


@dataclass(frozen=True, slots=True)
class HostChange:
    """A change on a host, made or predicted: from its hostprep's document, or a task's name."""

    subject: str
    action: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """Something that is left as it is, though it is not what the spec says, and why."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Staged:
    """A data set that a host staged. ``bound_by`` is what limited its speed, None if unknown."""

    dataset: str
    copied_bytes: int
    seconds: float
    bound_by: str | None


@dataclass(frozen=True, slots=True)
class TotalRate:
    """The total that the hosts staged, from the first one's start to the last one's end."""

    copied_bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """The mean rate at which the sources were read, by all hosts together."""
        return self.copied_bytes / self.seconds


def changes_of(outcome: HostOutcome) -> tuple[HostChange, ...]:
    """Return a host's changes: tasks, and instead of ``Converge`` the steps of its document."""
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
    """Return what does not match the spec and is not changed either."""
    return tuple(_left(each) for each in _unchanged(outcome) if not each["as_wanted"])


def prunable_on(outcome: HostOutcome) -> tuple[Left, ...]:
    """Return what hostprep made, the spec no longer names, and only ``--prune`` removes."""
    return tuple(_left(each) for each in _unchanged(outcome) if each.get("prunable"))


def warnings_of(outcome: HostOutcome) -> tuple[str, ...]:
    """Return a host's warnings, each once even if both plan and apply have it."""
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
    """Return how fast the hosts staged together; None if nothing was copied."""
    stagers = [outcome for outcome in run.hosts if _copied(staged_by(outcome))]
    begins = [outcome.started_at for outcome in stagers if outcome.started_at is not None]
    ends = [outcome.ended_at for outcome in stagers if outcome.ended_at is not None]
    if not begins or not ends or max(ends) <= min(begins):
        return None
    copied = sum(_copied(staged_by(outcome)) for outcome in stagers)
    return TotalRate(copied, max(ends) - min(begins))


def _left(entry: dict[str, Any]) -> Left:
    return Left(f"{entry['kind']} {entry['subject']}", entry["reason"])


def _unchanged(outcome: HostOutcome) -> Iterator[dict[str, Any]]:
    for document in outcome.documents:
        if document.get("schema") in _CONVERGE:
            yield from document.get("unchanged", ())


def _steps(document: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Return the changes that were made or planned: none if any of them is refused."""
    planned = () if document.get("refusals") else document.get("changes", ())
    steps: Iterable[dict[str, Any]] = document.get("done", planned)
    return steps


def _copied(staged: Iterable[Staged]) -> int:
    return sum(each.copied_bytes for each in staged)


def _bound_by(bound: Any) -> str | None:
    return str(bound["by"]) if isinstance(bound, dict) and "by" in bound else None
