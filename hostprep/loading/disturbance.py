"""What other programs took from a loader while it was timed."""

from __future__ import annotations

# Other programs that take less than this share of the processors do not count as a disturbance.
_OTHERS_SHARE = 0.05


def undisturbed(
    samples_per_s: float,
    *,
    workers: int,
    own_cpus: float,
    runnable_cpus: float,
    others_cpus: float,
    cpus: float,
) -> float:
    """Return the rate that a loader would have had with its processors to itself.

    Alone, no process that makes samples would have waited for a processor; but all of them together
    can have no more than there are, as they wait for each other, too. Both bound what was lost.
    """
    if others_cpus < _OTHERS_SHARE * cpus or own_cpus <= 0:
        return samples_per_s
    makers = max(1, workers)
    waited = min(runnable_cpus - own_cpus, 0.99 * makers)
    return samples_per_s * max(1.0, min(makers / (makers - waited), cpus / own_cpus))
