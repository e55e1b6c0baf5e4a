"""Progress on stderr of a run over many hosts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hostprep.cli.output import indented, say
from hostprep.cli.progress import LINE_SECONDS
from hostprep.units import format_seconds

if TYPE_CHECKING:
    from hostprep.fleet.events import Event


_MOST_SECONDS = 60.0


class FleetProgress:
    """Reports task results that are worth a line, and tasks that take longer than ``seconds``."""

    def __init__(self, seconds: float = LINE_SECONDS) -> None:
        self._seconds = seconds
        self._begun: dict[str, tuple[str, float]] = {}
        self._said = time.monotonic()

    def event(self, event: Event) -> None:
        """Show an event."""
        if event.kind == "start":
            self._begun[event.host] = (event.task, time.monotonic())
            return
        self._begun.pop(event.host, None)
        if (line := self._line(event)) is not None:
            self._say(line)

    def waiting(self) -> None:
        """Say which hosts are busy with what: every few seconds at first, later every minute.

        Staging may take hours, and the log or mail of a cron job has all the lines.
        """
        now = time.monotonic()
        busy = now - min((since for _, since in self._begun.values()), default=now)
        pause = max(self._seconds, min(busy / 10, _MOST_SECONDS))
        if now - self._said < pause:
            return
        at_work: dict[str, list[str]] = {}
        for host, (task, since) in self._begun.items():
            if now - since >= self._seconds:
                at_work.setdefault(task, []).append(host)
        for task, hosts in at_work.items():
            longest = format_seconds(now - min(self._begun[host][1] for host in hosts))
            self._say(f"{task}: at work for up to {longest}: {', '.join(hosts)}")

    def _line(self, event: Event) -> str | None:
        """Return the line about a task that ended, or None if it is not worth one."""
        if event.kind not in ("failed", "unreachable"):
            return None
        return f"{event.host}: {event.task}: {event.fields.get('message') or event.kind}"

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        say(indented(line))
