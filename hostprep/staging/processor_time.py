"""What copying got of the processors, what it wanted, and whether a quota held it up."""

from __future__ import annotations

import resource
from collections.abc import Iterable

from hostprep.dataclass import dataclass
from hostprep.host.cgroups import read_cpu_throttling, throttled_share
from hostprep.host.cpu_time import cpu_ticks, run_delay_seconds


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """How many seconds this process and its workers ran, and could have run and did not.

    ``waited_seconds`` is the sum over all threads, None where the kernel does not tell;
    ``throttled_share`` of the periods of a cgroup's quota were ended early, None without one.
    ``busy_share`` is that of the processors that may be used, whoever used them.
    """

    spent_seconds: float = 0.0
    waited_seconds: float | None = None
    throttled_share: float | None = None
    busy_share: float | None = None


class ProcessorMeter:
    """Counts from its making on; ``workers_wait`` has to be called while they are still there."""

    def __init__(self) -> None:
        self._spent = _spent_seconds()
        self._throttling = read_cpu_throttling()
        self._ticks = cpu_ticks()
        self._waited = run_delay_seconds("self")
        self._of_workers: float | None = None

    def workers_wait(self, pids: Iterable[int]) -> None:
        """Put down how long the workers have waited for a processor since their start."""
        waited = [seconds for pid in pids if (seconds := run_delay_seconds(pid)) is not None]
        self._of_workers = sum(waited) if waited else None

    def time(self) -> ProcessorTime:
        """Return what it was since; workers that have ended by now are in it."""
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
