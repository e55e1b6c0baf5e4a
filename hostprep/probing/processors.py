"""Passes in which processors could do no more: the storage gives at least this rate. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.probing.judgement import Reason
from hostprep.probing.model import FioRun, Load, Measured, SmallRun
from hostprep.probing.rates import CPU_FULL_AT_LEAST, CPU_SATURATED, CPU_THROTTLED

# Share of a quota's periods: fewer cost less than the tolerance of a requirement.
_THROTTLED_AT_MOST = 0.1
# Share of the processors; and how long a pass must be for their ticks, of 10 ms, to tell.
_OTHERS_AT_MOST, _COUNTED_SECONDS = 0.25, 0.25


def held_back(run: FioRun | SmallRun) -> Iterator[Reason]:
    """Yield that processors, or a quota of their time, held a pass back."""
    busy = run.load.cpu_busy
    if busy is not None and busy >= CPU_FULL_AT_LEAST:
        text = f"the processors were {busy:.0%} busy during {run.words}"
        yield Reason(CPU_SATURATED, f"{text}: the storage may give more", run.of)
    yield from _throttled(run)


def held_back_in_memory(measured: Measured) -> Iterator[Reason]:
    """Yield the same for memory, where readers always keep processors busy: what others used."""
    runs: list[FioRun | SmallRun] = [*measured.fio]
    runs += measured.small.cold if measured.small is not None else ()
    for run in runs:
        yield from _throttled(run)
        if others := others_had(run.load):
            text = f"other programs had {others:.0%} of the processors during {run.words}"
            yield Reason(CPU_SATURATED, f"{text}: memory may give more", run.of)


def others_had(load: Load) -> float | None:
    """Return the share that others had of processors that could do no more.

    None if it is small, or if nobody can tell whose it was.
    """
    if load.cpu_busy is None or load.cpu_own is None or load.seconds is None:
        return None
    others = load.cpu_busy - load.cpu_own
    full = load.cpu_busy >= CPU_FULL_AT_LEAST and load.seconds >= _COUNTED_SECONDS
    return others if full and others > _OTHERS_AT_MOST else None


def _throttled(run: FioRun | SmallRun) -> Iterator[Reason]:
    share = run.load.throttled
    if share is not None and share >= _THROTTLED_AT_MOST:
        text = (
            f"the cgroup's quota of processor time held {run.words} up in {share:.0%} of its "
            "periods: the storage may give more"
        )
        yield Reason(CPU_THROTTLED, text, run.of)
