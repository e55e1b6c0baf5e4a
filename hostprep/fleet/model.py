"""The outcome of a run over many hosts, for each host."""

from __future__ import annotations

from typing import Any

from hostprep.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """One host after a run. ``message`` says why it failed, or what could not be predicted.

    ``changed_tasks`` are the names of the tasks that changed something, or would in check mode;
    ``documents`` are the JSON documents of the host's own hostprep, in the order of the tasks.
    ``predicted`` is False if check mode could not predict everything. ``warnings`` are the
    playbook's own. Times are seconds since the epoch on the controller: from the first document's
    task to its end, None if there was none.
    """

    host: str
    changed_tasks: tuple[str, ...] = ()
    failed: bool = False
    unreachable: bool = False
    message: str | None = None
    predicted: bool = True
    documents: tuple[dict[str, Any], ...] = ()
    diffs: tuple[str, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything on the host was changed, or would be."""
        return bool(self.changed_tasks)


@dataclass(frozen=True, slots=True)
class FleetRun:
    """A finished run: its hosts in the order of the inventory, and how long it took.

    ``warnings`` are about the run, one sentence each, for instance a ``--limit`` without a match.
    """

    hosts: tuple[HostOutcome, ...]
    seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the hosts that failed or could not be reached."""
        return tuple(outcome.host for outcome in self.hosts if outcome.failed)
