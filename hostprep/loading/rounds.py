"""How many batches a probe takes: for those who plan probes, and for the child that times them."""

from __future__ import annotations

_LEAST_BATCHES = 8
_LEAST_ALONE = 3
LEAST_ROUNDS = 3
# A data set with fewer is too short to be timed, and hardly worth a worker.
LEAST_EPOCH_BATCHES = 4


def discarded_batches(workers: int) -> int:
    """Return how many batches come before the clock is started: more than were made ahead."""
    return 2 * workers + 4


def least_batches(workers: int) -> int:
    """Return how many batches the clock waits for at least.

    Without workers they come one by one, and where they come slowly three tell enough.
    """
    return max(_LEAST_BATCHES, LEAST_ROUNDS * workers) if workers else _LEAST_ALONE
