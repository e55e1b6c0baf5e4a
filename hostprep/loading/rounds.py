"""How many batches a probe takes, and how certain a mean is; for planning probes and timing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

_LEAST_BATCHES = 8
_LEAST_ALONE = 3
LEAST_ROUNDS = 3
# A data set with fewer is too short to be timed, and hardly worth a worker.
LEAST_EPOCH_BATCHES = 4


def discarded_batches(workers: int) -> int:
    """Return how many batches come before the clock starts: more than were made ahead."""
    return 2 * workers + 4


def least_batches(workers: int) -> int:
    """Return the least number of batches that the clock waits for.

    Without workers they come one by one, and if they come slowly, three say enough.
    """
    return max(_LEAST_BATCHES, LEAST_ROUNDS * workers) if workers else _LEAST_ALONE


def relative_standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean over that mean; None for a single value."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean / math.sqrt(len(values)) if mean else None
