"""From the lines that our callback plugin prints to each host's outcome. Pure.

The plugin, ``playbooks/callback/hostprep_events.py``, prints one JSON object per line; everything
else that ansible-playbook prints is for people.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.fleet.cures import waits_for_password, why_failed, why_unreachable, with_cure
from hostprep.fleet.model import HostOutcome

_UNFINISHED = "the run ended before this host was done"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``kind`` is play, start, ok, skipped, failed, unreachable or stats."""

    kind: str
    at: float
    host: str = ""
    task: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


def parse_event(line: str) -> Event | None:
    """Return the event in a line of output, None if it has none."""
    try:
        fields = json.loads(line)
        return Event(
            str(fields["event"]),
            float(fields["time"]),
            str(fields.get("host", "")),
            str(fields.get("task", "")),
            fields,
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


@dataclass(slots=True)
class _Host:
    """What is known about a host so far."""

    tasks: list[str] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    diffs: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    message: str | None = None
    failed: bool = False
    unreachable: bool = False
    reached: bool = False
    predicted: bool = True
    task_started: float | None = None
    started_at: float | None = None
    ended_at: float | None = None

    def note(self, event: Event) -> None:
        """Take the end of a task."""
        fields = event.fields
        if fields.get("changed") and event.kind != "skipped":
            # A script that failed may have changed something, but not all that its name says.
            part = event.kind == "failed" and fields.get("document") is None
            self.tasks.append(f"{event.task} (in part: it failed)" if part else event.task)
        if fields.get("diff"):
            self.diffs.append(str(fields["diff"]))
        if (document := fields.get("document")) is not None:
            # Anything but an object is kept as an empty one, which is no valid answer either.
            self.documents.append(document if isinstance(document, dict) else {})
            self.started_at = self.started_at or self.task_started
            self.ended_at = event.at
        if fields.get("warns") and (words := fields.get("message")):
            self.warnings.append(str(words))
        if not fields.get("predicted", True):
            self.predicted = False
            self.message = fields.get("message")
        if event.kind in ("failed", "unreachable") and not self.failed:
            # The first failure is the reason; cleaning up may well fail for the same cause.
            self.failed = True
            words = fields.get("message") or ""
            self.unreachable = event.kind == "unreachable" and not waits_for_password(words)
            if self.unreachable:
                self.message = why_unreachable(words, event.task, reached=self.reached)
            else:
                self.message = why_failed(words)
        if fields.get("reached"):
            self.reached = True


class Tally:
    """Takes events in their order and keeps track of each host."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._ended = False

    def take(self, event: Event) -> None:
        """Take the next event."""
        if event.kind == "play":
            for name in event.fields.get("hosts", ()):
                self._hosts.setdefault(str(name), _Host())
            return
        if event.kind == "stats":
            self._ended = True
            return
        host = self._hosts.setdefault(event.host, _Host())
        if event.kind == "start":
            host.task_started = event.at
            return
        host.note(event)

    def outcomes(self, reason: str = "") -> tuple[HostOutcome, ...]:
        """Return the hosts in the order of the inventory; an unfinished run has failed for all.

        ``reason`` is what Ansible says about a run that it did not finish.
        """
        unfinished = f"{_UNFINISHED}: {with_cure(reason)}" if reason else _UNFINISHED
        return tuple(
            HostOutcome(
                host=name,
                changed_tasks=tuple(host.tasks),
                failed=host.failed or not self._ended,
                unreachable=host.unreachable,
                message=host.message if host.failed or self._ended else unfinished,
                predicted=host.predicted,
                documents=tuple(host.documents),
                diffs=tuple(host.diffs),
                warnings=tuple(host.warnings),
                started_at=host.started_at,
                ended_at=host.ended_at,
            )
            for name, host in self._hosts.items()
        )
