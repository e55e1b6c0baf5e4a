"""How long a probe takes, and for how many workers there is time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hostprep.dataclass import dataclass
from hostprep.loading.bounds import MOST_UNCONFIRMED, MOST_WORKERS
from hostprep.loading.curve import Curve
from hostprep.loading.measuring.disturbance import without_others
from hostprep.loading.measuring.following import GRACE_SECONDS
from hostprep.loading.measuring.measure import Measurer
from hostprep.loading.model import Probe
from hostprep.loading.rounds import discarded_batches, least_batches

# A probe may take this many times as long as is likely.
_NEWS = 3.0
# Share of the time left that a leap to many workers may take: it may come to nothing, and the rest
# is then for fewer workers.
_FIRST_SHARE = 0.5
_LEAST_PATIENCE_SECONDS = 4.0
_LEAP = 8
# So few workers never block each other for long.
_FEW = 4
# Factor for discarded batches: those of many workers come in bursts.
_UNEVEN = 1.3


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known about the speed of probes; ``probes`` are those made so far.

    ``ceiling`` is the highest rate, in samples a second, of those that were too slow to be timed,
    beside the programs that run here.
    """

    measurer: Measurer
    batch_size: int
    curve: Curve
    probes: Sequence[Probe]
    ceiling: float = math.inf

    @property
    def is_first(self) -> bool:
        """Whether no probe with workers has succeeded yet."""
        return not any(probe.workers for probe in self.probes)

    def is_leap(self, workers: int) -> bool:
        """Whether no probe with even an eighth as many has succeeded yet: fewer say little."""
        return not any(probe.workers and _LEAP * probe.workers >= workers for probe in self.probes)

    def limit_seconds(self, workers: int) -> float | None:
        """Return how long a probe may take; None if there is no time for it."""
        left, needed = self.measurer.left(), self.likely_seconds(workers)
        if left < needed + self.measurer.opening_seconds:
            return None
        # A rate of a third of the likely one would be news, and would take three times as long.
        once = self.once_seconds()
        limit = once + _NEWS * (needed - once)
        if not self.is_leap(workers):
            return limit
        # Workers that hang are waited for until they have started, and for the grace period.
        waited = self.measurer.starting_seconds(workers) + GRACE_SECONDS
        return min(limit, max(needed, _FIRST_SHARE * left - waited))

    def first_batch_seconds(self, workers: int) -> float:
        """Return how long to wait for the first batch of a leap to many workers.

        All of them make theirs at the same time. If they wait for the same disk arm, the last one's
        is ready only when all are, and that time is better spent on fewer workers. Few workers have
        as long as their whole probe: what workers do only before they begin is not known yet.
        """
        if not self.is_leap(workers) or workers <= _FEW:
            return math.inf
        batches_seconds = workers * self.batch_size / self.likely_rate(workers)
        if not self.measurer.forks():
            batches_seconds += self.measurer.starting_seconds(workers)  # they import first
        return max(_LEAST_PATIENCE_SECONDS, self.once_seconds() + _NEWS * batches_seconds)

    def once_seconds(self) -> float:
        """Return what processes were seen to take before their rate was steady, apart from batches.

        In that time files are opened, and connections made.
        """
        return max(map(self._once_seconds, self.probes), default=0.0)

    def _once_seconds(self, probe: Probe) -> float:
        makers = max(1, probe.workers)
        batch_seconds = makers * self.batch_size / probe.samples_per_s
        starting = self.measurer.starting_seconds(probe.workers)
        first = probe.first_batch_seconds - batch_seconds
        return max(0.0, max(first, probe.once_seconds) - starting)

    def affordable(self) -> int:
        """Return for how many workers a third of the time left is enough, if they do not help."""
        seconds = self.measurer.left() / 3 - self.measurer.opening_seconds
        workers = 1
        while self._seconds(2 * workers, self.curve.alone) <= seconds:
            workers *= 2
        return workers

    def affordable_at_first(self) -> int:
        """Return the most workers whose probe leaves time for fewer, should it come to nothing.

        Up to the number that the model alone may ask for, the probe may take all the time: if it
        suffices for one probe only, that is of this number, or of as many as there is time for.
        """
        left, opening = self.measurer.left(), self.measurer.opening_seconds
        for workers in range(MOST_WORKERS, 1, -1):
            share = _FIRST_SHARE if workers > MOST_UNCONFIRMED else 1.0
            if self.likely_seconds(workers) + opening <= share * left:
                return workers
        return 1

    def likely_seconds(self, workers: int) -> float:
        """Return how long a probe takes if ``likely_rate`` is right."""
        return self._seconds(workers, self.likely_rate(workers))

    def likely_rate(self, workers: int, *, alone: bool = False) -> float:
        """Return the model's rate, or less if probes have shown that to be too much.

        Beside the programs that run here, or ``alone``, as the rates of points are.
        """
        shown = [
            (probe.undisturbed_samples_per_s if alone else probe.samples_per_s)
            * max(1.0, workers / probe.workers)
            for probe in self.probes
            if probe.workers
        ]
        ceiling = without_others(self.ceiling, self.probes) if alone else self.ceiling
        return min([self.curve.rate(workers), *shown, ceiling])

    def _seconds(self, workers: int, rate: float) -> float:
        """Return how long a probe takes at ``rate``: its start, what is discarded, the rounds."""
        batch_seconds = self.batch_size / rate
        timed = max(least_batches(workers) * batch_seconds, self.measurer.window_seconds)
        discarded = _UNEVEN * discarded_batches(workers) * batch_seconds
        starting = self.measurer.starting_seconds(workers) + self.once_seconds()
        return starting + discarded + timed
