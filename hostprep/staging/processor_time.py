"""How much processor time copying got, how much it wanted, and whether a quota delayed it."""

from __future__ import annotations

import resource
from collections.abc import Iterable

from hostprep.dataclass import dataclass
from hostprep.host.cgroups import read_cpu_throttling, throttled_share
from hostprep.host.cpu_time import cpu_ticks, run_delay_seconds


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """How many seconds this process and its workers ran, and how long they waited to run.

    ``waited_seconds`` is the sum over all threads, None if the kernel does not tell;
    ``throttled_share`` is the share of a cgroup quota's periods that ended early, None without a
    quota. ``busy_share`` is how busy the usable processors were, with anybody's work.
    """

    spent_seconds: float = 0.0
    waited_seconds: float | None = None
    throttled_share: float | None = None
    busy_share: float | None = None


class ProcessorMeter:
    """Measures from its creation on; call ``workers_wait`` while the workers still exist."""

    def __init__(self) -> None:
        self._spent = _spent_seconds()
        self._throttling = read_cpu_throttling()
        self._ticks = cpu_ticks()
        self._waited = run_delay_seconds("self")
        self._of_workers: float | None = None

    def workers_wait(self, pids: Iterable[int]) -> None:
        """Record how long the workers have waited for a processor since they started."""
        waited = [seconds for pid in pids if (seconds := run_delay_seconds(pid)) is not None]
        self._of_workers = sum(waited) if waited else None

    def time(self) -> ProcessorTime:
        """Return the times since then, including those of workers that have ended."""
        now, waited = run_delay_seconds("self"), self._of_workers
        if now is not None and self._waited is not None:
            waited = (waited or 0.0) + now - self._waited
        return ProcessorTime(
            _spent_seconds() - self._spent,
            waited,
            throttled_share(self._throttling, read_cpu_throttling()),
            cpu_ticks().busy_share_since(self._ticks),
        )


def _spent_seconds() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
