"""How long a probe takes, and with how many workers there is time for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hostprep.loading.bounds import MOST_UNCONFIRMED, MOST_WORKERS
from hostprep.loading.curve import Curve
from hostprep.loading.measure import Measurer
from hostprep.loading.model import Probe
from hostprep.loading.rounds import discarded_batches, least_batches

# How many times longer than likely a probe may take.
_NEWS = 3.0
# Of the time left: what the first probe with workers may take, as it may come to nothing, and the
# rest is for fewer workers then.
_FIRST_SHARE = 0.5
_LEAST_PATIENCE_SECONDS = 4.0
# Of the batches that are discarded: those of many workers come in bursts.
_UNEVEN = 1.3


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known of how fast probes are; ``probes`` are those made so far."""

    measurer: Measurer
    batch_size: int
    curve: Curve
    probes: Sequence[Probe]

    @property
    def is_first(self) -> bool:
        """Whether no probe with workers has succeeded yet."""
        return not any(probe.workers for probe in self.probes)

    def limit_seconds(self, workers: int) -> float | None:
        """Return how long a probe may take; None where there is no time for it."""
        left, needed = self.measurer.left(), self.likely_seconds(workers)
        if left < needed + self.measurer.opening_seconds:
            return None
        # A rate that is a third of the likely one would be news, and takes so much longer.
        limit = _NEWS * needed
        return min(limit, max(needed, _FIRST_SHARE * left)) if self.is_first else limit

    def first_batch_seconds(self, workers: int) -> float:
        """Return how long to wait for the first batch of so many workers.

        All of them make theirs at the same time. Where they wait for the same arm, the last one's
        is ready when all are, and the time that this takes is better spent on fewer.
        """
        alone = max((p.first_batch_seconds for p in self.probes if not p.workers), default=0.0)
        likely = max(alone, workers * self.batch_size / self.likely_rate(workers))
        if not self.measurer.forks():
            likely += self.measurer.starting_seconds(workers)  # they import before they load
        return max(_LEAST_PATIENCE_SECONDS, _NEWS * likely)

    def affordable(self) -> int:
        """Return how many workers a third of the time left suffices for, if they do not help."""
        seconds = self.measurer.left() / 3 - self.measurer.opening_seconds
        workers = 1
        while self._seconds(2 * workers, self.curve.alone) <= seconds:
            workers *= 2
        return workers

    def affordable_at_first(self) -> int:
        """Return the most workers whose probe leaves time for fewer, should it come to nothing.

        As many as the model alone may ask for have all the time: where it suffices for one probe,
        that is of them, or of as many as there is time for.
        """
        left, opening = self.measurer.left(), self.measurer.opening_seconds
        for workers in range(MOST_WORKERS, 1, -1):
            share = _FIRST_SHARE if workers > MOST_UNCONFIRMED else 1.0
            if self.likely_seconds(workers) + opening <= share * left:
                return workers
        return 1

    def likely_seconds(self, workers: int) -> float:
        """Return how long a probe takes where ``likely_rate`` is true."""
        return self._seconds(workers, self.likely_rate(workers))

    def likely_rate(self, workers: int) -> float:
        """Return what the model says, or less where probes have shown that it says too much."""
        shown = [
            probe.samples_per_s * max(1.0, workers / probe.workers)
            for probe in self.probes
            if probe.workers
        ]
        return min([self.curve.rate(workers), *shown])

    def _seconds(self, workers: int, rate: float) -> float:
        """Return how long a probe takes at ``rate``: its start, what is discarded, the rounds."""
        batch_seconds = self.batch_size / rate
        timed = max(least_batches(workers) * batch_seconds, self.measurer.window_seconds)
        discarded = _UNEVEN * discarded_batches(workers) * batch_seconds
        return self.measurer.starting_seconds(workers) + discarded + timed
