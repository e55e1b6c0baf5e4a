"""Following a measuring child's events up to its result, with a time limit for each phase."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.loading import failures
from hostprep.loading.raising import raised
from hostprep.system.run import CommandFailed, Running

_DOING = {
    "stages": "reading and decoding the first files of {what}",
    "gpu": "timing training steps on the GPU",
}
# A batch under way when time is over may still come; then the child ends by itself. It gets this
# long if there is time left, else only the minimum.
GRACE_SECONDS = 5.0
_LEAST_GRACE_SECONDS = 2.0
# Forking a worker takes some 40 ms of a processor, which others may be using. This time is allowed
# until all are started, or have failed: only then does torch say which of them the kernel killed.
_FORK_SECONDS = 0.25
_ENDING_SECONDS = 3.0
# Workers that are told to stop clean up; killed ones cannot.
_TIDYING_SECONDS = 5.0


@dataclass(slots=True)
class Following:
    """One child at work on ``job`` for ``what``, and what to do when it reports progress.

    It has ``patience_seconds`` to open the loader, ``limit_seconds`` for its job from then on or
    from when its workers have started, and ``first_batch_seconds`` from there for the first batch.
    ``on_waiting`` is called several times a second. ``spare_seconds`` of the whole budget are left
    once the job's time is over. ``on_opened`` gets the seconds and the event, ``on_workers`` that
    event.
    """

    job: str
    what: str
    workers: int
    patience_seconds: float
    limit_seconds: float
    on_opened: Callable[[float, dict[str, Any]], None]
    on_workers: Callable[[dict[str, Any]], None]
    on_waiting: Callable[[], None]
    first_batch_seconds: float = math.inf
    spare_seconds: float = math.inf

    def result(self, child: Running) -> dict[str, Any]:
        """Return the child's result; raise what it raised, or ``Hung`` if it takes too long."""
        phase, limit = "start", self.limit_seconds
        began = opened = time.monotonic()
        starting, started = self.workers * _FORK_SECONDS, False
        grace = min(GRACE_SECONDS, max(_LEAST_GRACE_SECONDS, self.spare_seconds))
        try:
            for events in _events(child, self.patience_seconds + starting + limit + 30):
                self.on_waiting()
                for event in events:
                    match event["event"]:
                        case "result" | "refused" | "error":
                            return self._end(child, event)
                        case "workers":
                            self.on_workers(event)
                            # The time that is limited begins now.
                            opened, starting, started = time.monotonic(), 0.0, True
                            continue
                        case "opened":
                            opened = time.monotonic()
                            self.on_opened(opened - began, event)
                    phase = event["event"]
                waited = time.monotonic() - opened
                allowed = starting + limit + grace
                if phase in ("start", "opening"):
                    allowed = self.patience_seconds
                elif phase == "opened" and started:
                    allowed = min(allowed, self.first_batch_seconds)
                if waited > allowed:
                    raise self._hung(phase, waited)
        except CommandFailed:
            raise self._hung(phase, limit) from None
        raise self._died(child, phase)

    def _end(self, child: Running, event: dict[str, Any]) -> dict[str, Any]:
        """Return the result in the last event, or raise what that reports."""
        _let_end(child)
        if event["event"] == "result":
            return dict(event["result"])
        if event["event"] == "refused":
            raise failures.refused(event)
        if self.job == "gpu":
            raise failures.step_failed(event)
        raise raised(event, self.what, self.workers, child.completed().stderr)

    def _died(self, child: Running, phase: str) -> HostprepError:
        what = "the training steps" if self.job == "gpu" else self.what
        try:
            ended = child.wait(timeout_seconds=_ENDING_SECONDS)
        except CommandFailed:
            return failures.lost(what)
        return failures.died(what, phase, ended.returncode, ended.stderr, self.workers)

    def _hung(self, phase: str, seconds: float) -> failures.Hung:
        doing = _DOING.get(self.job)
        if doing is None or phase == "start":
            return failures.hung(self.what, phase, self.workers, seconds)
        seen = f"{doing.format(what=self.what)} took more than {seconds:.0f} s"
        return failures.Hung(seen, first_batch_came=False)


def _events(child: Running, timeout_seconds: float) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield what the child has reported since, several times a second, even if that is nothing."""
    buffer = b""
    for chunk in child.chunks(timeout_seconds=timeout_seconds):
        *lines, buffer = (buffer + chunk).split(b"\n")
        yield map(json.loads, lines)


def _let_end(child: Running) -> None:
    """Let the child and its workers end by themselves for a moment; after that they are killed."""
    try:
        for _ in child.chunks(timeout_seconds=_TIDYING_SECONDS):
            pass
    except CommandFailed:
        pass  # still running: whoever started it now kills the whole group
