"""Whether storage gave at the end what it gave at the beginning. Pure.

Cloud disks, and other limits, let more through as long as a credit lasts; other disks slow down
when they get hot, or have work of their own. A rate over both phases is right for neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt

from hostprep.probing.judgement import Reason
from hostprep.probing.model import SMALL_FILES, FioRun, Load, Measured, SmallRun
from hostprep.probing.rates import CPU_FULL_AT_LEAST, SLOWED, SPED_UP
from hostprep.units import format_number, format_rate

# Other programs and the storage's own caches make rates vary by tens of percent: reported is only a
# drop to half of what was before or, within a pass, whose first half is part of the whole, to this
# share of the whole.
_SLOWED_BELOW = 0.5
_LATE_BELOW = 0.67
# This many times what its depth can gain: a queue of 32 has at most 32 times the rate of one.
_SPED_UP_ABOVE = 2.0
# This many standard deviations of a count are chance.
_BY_CHANCE = 3.0
_WHY = "the storage slowed down (burst credits used up, heat, or background work)"
_AMOUNTS: tuple[tuple[Callable[[Load], int | None], Callable[[float], str]], ...] = (
    (lambda load: load.device_bytes, format_rate),
    (lambda load: load.requests, lambda rate: f"{format_number(rate)} requests a second"),
)


def slowed(measured: Measured) -> Iterator[Reason]:
    """Yield contradictions of earlier rates by later ones: storage that slowed down in between.

    If fio shows it, all rates are doubtful, because those of small files came before.
    """
    for run in measured.fio:
        late = run.late_bytes_per_s
        if late is not None and _is_late(run, late):
            text = (
                f"{run.words} gave {format_rate(run.bytes_per_s)}, but"
                f" {format_rate(late)} in the second half of its time"
            )
            full = run.load.cpu_busy is not None and run.load.cpu_busy >= CPU_FULL_AT_LEAST
            why = f"others took the processors, or {_WHY}" if full else _WHY
            yield Reason(SLOWED, f"{text}: {why}")
    if any(run.load.device_bytes is None for run in measured.fio):
        return  # what is not a disk may take longer for each request the more there are
    single = measured.run("read", 1)
    for run in measured.fio if single else ():
        assert single is not None
        if run.pattern == "read" and run.bytes_per_s < _SLOWED_BELOW * single.bytes_per_s:
            text = (
                f"sequential reads gave {format_rate(single.bytes_per_s)} one at a time, and later"
                f" {format_rate(run.bytes_per_s)} with {run.depth} at a time"
            )
            yield Reason(SLOWED, f"{text}: {_WHY}")
    for small in measured.small.cold if measured.small is not None else ():
        yield from _before_fio(small, [run for run in measured.fio if run.depth >= small.readers])


def sped_up(measured: Measured) -> Iterator[Reason]:
    """Yield reads that came faster later than any queue can make them.

    What held them up has ended: then small files, which came before, were held up as well. Or by
    now a cache answers: then the later rate is too high.
    """
    for run in measured.fio:
        single = measured.run(run.pattern, 1)
        if single is None or run.load.device_bytes is None:
            continue
        gain = run.iops / single.iops
        if gain > _SPED_UP_ABOVE * run.depth:
            text = (
                f"{run.of} gave {format_number(single.iops)} IOPS one at a time, and later"
                f" {format_number(run.iops)} with {run.depth} at a time, {gain:,.0f} times as many:"
                " it was held up before (a limit that was lifted, a disk that slept), or a cache"
                " answered later"
            )
            yield Reason(SPED_UP, text)


def _is_late(run: FioRun, late_bytes_per_s: float) -> bool:
    share, expected = late_bytes_per_s / run.bytes_per_s, run.iops * run.seconds / 2
    return share < _LATE_BELOW and (1 - share) * expected > _BY_CHANCE * sqrt(expected)


def _before_fio(small: SmallRun, later: Sequence[FioRun]) -> Iterator[Reason]:
    """Yield that small files got more from the disks than any of fio's passes could."""
    if len({run.pattern for run in later}) < 2 or not small.load.seconds:
        return
    for of, words in _AMOUNTS:
        had = (of(small.load) or 0) / small.load.seconds
        most = max((of(run.load) or 0) / run.seconds for run in later)
        if 0 < most < _SLOWED_BELOW * had:
            text = (
                f"the disks gave {words(had)} for small files ({small.readers} at a time), and"
                f" later {words(most)} at most for fio"
            )
            yield Reason(SLOWED, f"{text}: {_WHY}", SMALL_FILES)
            return
