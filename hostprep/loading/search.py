"""Which numbers of workers to try, and which to choose; pure except for the measuring callback.

The model proposes, probes confirm: if the first probe disagrees with the model, workers are doubled
until that gains less than 5 %; then halved as long as nothing is lost. Finally one number on either
side of the best is tried, where the curve bends or peaks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from hostprep.dataclass import dataclass
from hostprep.loading.curve import Curve
from hostprep.loading.measuring.disturbance import kept_from
from hostprep.loading.model import FailedProbe, Probe
from hostprep.loading.rounds import relative_standard_error

STOP_GAIN = 0.05
AGREES = 0.15
# Rates this close count as the same. It is not widened for noise: what is given away here adds to
# what the probes could not tell apart, and both together should stay below the 5 % of the doubling.
_TIE = 0.03
# Share of the best rate: with less than this, no luck with memory makes up for it.
_NOT_FAR = 0.5
# Relative error of the mean over several processes, whose luck should not falsify what is promised.
_SETTLED = 0.04
_MOST_SETTLING = 5
# Share of the processors: if a loader uses this much of them, more workers only share them.
_SATURATED = 0.95
# Enough workers to show whether they wait for the same thing: with fewer, the cost of passing
# batches on may hide it.
_SEVERAL = 4
# After a failure so many times fewer are tried: each costs time, and half may well fail, too.
_MUCH_FEWER = 4
# How much faster than the GPU a loader should be, so that its uneven batches do not show.
HEADROOM = 1.1
# How many times the rate with workers none must give to be preferred if the GPU's rate is not
# known. At r times, workers lose at most 1 - 1/r, if the GPU takes everything; none lose at most
# 1/(1 + r), if it takes just what workers give. Here both are the same: 38 %.
_NONE_LEAD = (1 + math.sqrt(5)) / 2


@dataclass(frozen=True, slots=True)
class Point:
    """All probes with one number of workers, taken together.

    ``relative_error`` is that of the rate as a forecast for one more process, such as a training.
    It is None if nobody can say, as for the model beside busy programs.
    """

    workers: int
    rate: float
    relative_error: float | None
    probes: int


@dataclass(slots=True)
class Search:
    """A search in progress: ``measure`` returns a probe, a failure, or None when time is over.

    ``most`` is the number of workers that the host can support, ``affordable`` the number that
    there is time to probe even if they do not help. ``cpus`` are the processors that the loader may
    use. ``untried`` is the number that would have been tried next if there had been time.
    """

    curve: Curve
    gpu_rate: float | None
    measure: Callable[[int], Probe | FailedProbe | None]
    most: Callable[[], int]
    affordable: Callable[[], int]
    probes: list[Probe] = field(default_factory=list)
    failures: list[FailedProbe] = field(default_factory=list)
    agreed: bool = True
    cpus: float = math.inf
    untried: int | None = None

    def run(self, current: int | None, most_at_first: Callable[[], int] | None = None) -> None:
        """Probe until the best is known or time is over; ``current`` is the present setting.

        That one comes first: whether a change is needed, and what it gains, depends on it. The
        model is not confirmed yet, so its first proposal is limited to ``most_at_first``.
        """
        if current is not None and current <= self.unfailed():
            self._at(current)
        start = min(self.curve.proposal(self.gpu_rate), self.unfailed())
        self.untried = start
        if most_at_first is not None:
            start = min(start, most_at_first())
        if any(failure.workers == start + 1 for failure in self.failures):
            start = max(start // _MUCH_FEWER, min(start, 1))  # one fewer most likely fails as well
        first = None
        while start >= 1 and (first := self._at(start)) is None:
            # They failed, or were so much slower than the model says that the time ran out.
            fewer = start // _MUCH_FEWER if self.failures else min(start // 2, self.affordable())
            start = max(fewer, 1) if start > 1 else 0
        if first is None:
            return
        self.go_on(start)

    def go_on(self, start: int) -> None:
        """Go on from ``start`` workers, which were probed."""
        self.untried = None
        first = self._known(start)
        assert first is not None
        self.agreed = abs(self.curve.rate(start) / first - 1) <= AGREES
        if start > self.unfailed():
            # Only now is it known what a worker holds: that many would hold too much.
            start = self.unfailed()
            if start < 1 or self._at(start) is None:
                return
        more = self.curve.rate(2 * start) > (1 + STOP_GAIN) * self.curve.rate(start)
        waits = self._in_line(start)
        if (not self.agreed or more) and not waits:
            self._climb(start)
        self._descend()
        if waits and self._gains(start):
            self._climb(start)
        self._between()
        self._beyond()

    def repeat(self, workers: Iterable[int]) -> None:
        """Probe once more with each of ``workers``, while there is time."""
        for number in workers:
            if not self._try(number):
                return

    def settle(self) -> None:
        """Probe the chosen number again until its mean is known well enough.

        Ends earlier if there is no more time.
        """
        for _ in range(_MOST_SETTLING):
            workers = self.chosen().workers
            if not self._try(workers):
                return
            if _mean_error([p for p in self.probes if p.workers == workers]) <= _SETTLED:
                return

    def points(self) -> tuple[Point, ...]:
        """Return what was measured, by the number of workers."""
        return points_of(self.probes)

    def chosen(self) -> Point:
        """Return the point to recommend among those measured that the host can support."""
        return choose(self.borne(), self.gpu_rate)

    def borne(self) -> tuple[Point, ...]:
        """Return the measured points that the host can support, of which there is always one.

        A probe with more may have been made before it was known what a worker holds.
        """
        most = self.most()
        return tuple(point for point in self.points() if point.workers <= most)

    def unfailed(self) -> int:
        """Return how many workers the host can support and no probe has failed with."""
        failed = min((failure.workers for failure in self.failures), default=math.inf)
        return int(min(self.most(), failed - 1))

    def _climb(self, workers: int) -> None:
        # Noise alone gains 5 % now and then; it does not leave processors idle beforehand.
        while not self._enough(workers) and not self._saturated(workers):
            further = min(2 * workers, self.unfailed())
            before, rate = self._known(workers), None
            if further > workers:
                rate = self._at(further)
                self.untried = further if rate is None else None
            if rate is None or before is None or rate <= (1 + STOP_GAIN) * before:
                return
            workers = further

    def _in_line(self, workers: int) -> bool:
        """Return whether several workers give no more than none: they wait for the same thing.

        That says as much as doublings up to that number without a gain.
        """
        alone, rate = self._known(0), self._known(workers)
        if alone is None or rate is None or workers < _SEVERAL:
            return False
        return rate <= (1 + STOP_GAIN) * alone < self.curve.rate(workers)

    def _gains(self, workers: int) -> bool:
        """Return whether half as many were measured and gave less: then they do not wait."""
        half, rate = self._known(workers // 2), self._known(workers)
        return half is not None and rate is not None and rate > (1 + STOP_GAIN) * half

    def _descend(self) -> None:
        """Halve as long as nothing is lost, or if everything probed so far is too many."""
        tried = [point.workers for point in self.borne() if point.workers]
        workers = self.chosen().workers or min(tried, default=0)
        while workers > 1:
            fewer = workers // 2
            best = max(worth(point, self.gpu_rate) for point in self.borne())
            before, rate = self._known(workers), self._at(fewer)
            if rate is None or before is None:
                return
            if not (self._enough(fewer) or rate >= (1 - _TIE) * best or rate > before):
                return
            workers = fewer

    def _between(self) -> None:
        """Look between the best and the next lower number measured, if that lost too much.

        The curve bends there, so less than the whole step may suffice.
        """
        best = self.chosen().workers
        below = max((p.workers for p in self.points() if p.workers < best), default=0)
        self._at((best + below + 1) // 2)

    def _beyond(self) -> None:
        """Look between the best and the next higher number measured, if that lost.

        The rate peaks somewhere there: with too many workers for the processors it falls again.
        """
        best = self.chosen()
        above = next((p for p in self.borne() if p.workers > best.workers > 0), None)
        if above is None or above.rate > (1 - _TIE) * best.rate:
            return
        if self._enough(best.workers) or self._saturated(best.workers):
            return
        self._at((best.workers + above.workers) // 2)

    def _at(self, workers: int) -> float | None:
        """Return the rate with so many workers, which are probed if it is not known yet."""
        known = self._known(workers)
        if known is not None:
            return known
        return self._known(workers) if self._try(workers) else None

    def _try(self, workers: int) -> bool:
        result = self.measure(workers)
        if isinstance(result, Probe):
            self.probes.append(result)
        elif result is not None:
            self.failures.append(result)
        return isinstance(result, Probe)

    def _known(self, workers: int) -> float | None:
        point = self._point(workers)
        return None if point is None else point.rate

    def _enough(self, workers: int) -> bool:
        point = self._point(workers)
        return point is not None and feeds(point, self.gpu_rate)

    def _point(self, workers: int) -> Point | None:
        return next((point for point in self.points() if point.workers == workers), None)

    def _saturated(self, workers: int) -> bool:
        used = [p.own_cpus + kept_from(p) for p in self.probes if p.workers == workers]
        return bool(used) and statistics.fmean(used) >= _SATURATED * self.cpus


def points_of(probes: Iterable[Probe]) -> tuple[Point, ...]:
    """Combine the probes of each number of workers: the median, and its relative error.

    Processes differ by where their memory happens to lie: by a tenth and more if samples cost next
    to nothing, and a few by half, which the median leaves out. The error is the wider of two: that
    of the clock within a process with the corrections made to it, and that of one process against
    ``n`` others, ``s sqrt(1 + 1/n)``.
    """
    by_workers: dict[int, list[Probe]] = {}
    for probe in probes:
        by_workers.setdefault(probe.workers, []).append(probe)
    points = []
    for workers, some in sorted(by_workers.items()):
        rate = statistics.median(probe.undisturbed_samples_per_s for probe in some)
        inner = statistics.fmean(probe.error for probe in some)
        points.append(Point(workers, rate, max(inner, _process_error(some)), len(some)))
    return tuple(points)


def _process_error(probes: Sequence[Probe]) -> float:
    """Return how far off one more process's rate may be, by how far these are apart."""
    return _mean_error(probes) * math.sqrt(len(probes) + 1)


def _mean_error(probes: Sequence[Probe]) -> float:
    """Return the relative standard error of the mean rate of probes; 0 for a single one."""
    return relative_standard_error([probe.undisturbed_samples_per_s for probe in probes]) or 0.0


def feeds(point: Point, gpu_rate: float | None) -> bool:
    """Return whether a loader keeps a GPU of ``gpu_rate`` busy; False if that is not known."""
    if gpu_rate is None:
        return False
    if point.workers == 0:
        return delivered(point, gpu_rate) >= (1 - _TIE) * gpu_rate
    return point.rate >= HEADROOM * gpu_rate


def delivered(point: Point, gpu_rate: float | None) -> float:
    """Return the samples per second that a training would get.

    Without workers the GPU waits while a batch is made, so the times add up.
    """
    if gpu_rate is None:
        return point.rate
    if point.workers == 0:
        return 1 / (1 / point.rate + 1 / gpu_rate)
    return min(point.rate, gpu_rate)


def worth(point: Point, gpu_rate: float | None) -> float:
    """Return the samples per second by which points are compared.

    Without workers a GPU waits while the main process makes a batch. If its rate is not known,
    nobody knows for how long: no workers then have to be clearly faster than some.
    """
    if gpu_rate is None and point.workers == 0:
        return point.rate / _NONE_LEAD
    return delivered(point, gpu_rate)


def choose(points: Iterable[Point], gpu_rate: float | None) -> Point:
    """Return the point with the fewest workers that is as good as the best."""
    points = sorted(points, key=lambda point: point.workers)
    for point in points:
        if feeds(point, gpu_rate):
            return point
    best = max(worth(point, gpu_rate) for point in points)
    good = (p for p in points if worth(p, gpu_rate) >= (1 - _TIE) * best)
    return next(good)


def contenders(points: Iterable[Point], gpu_rate: float | None) -> tuple[int, ...]:
    """Return the chosen number of workers and its rivals, to be probed once more.

    The rivals are the closest one, the best with fewer, and no workers, if that is not far behind.
    A single process may be slower than others of its kind, by where its memory happens to lie,
    without workers by half: that should not rule out fewer workers.
    """
    points = tuple(points)
    chosen = choose(points, gpu_rate)
    wanted = _NOT_FAR * worth(chosen, gpu_rate)
    ranked = sorted(points, key=lambda point: worth(point, gpu_rate), reverse=True)
    others = [point.workers for point in ranked if point.workers != chosen.workers]
    alone = [p.workers for p in ranked if p.workers == 0 and worth(p, gpu_rate) >= wanted]
    fewer = [workers for workers in others if 0 < workers < chosen.workers]
    return tuple(dict.fromkeys([chosen.workers, *alone, *fewer[:1], *others[:1]]))
