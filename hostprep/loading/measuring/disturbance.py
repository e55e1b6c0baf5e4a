"""What other programs took from a loader while it was timed."""

from __future__ import annotations

from collections.abc import Iterable

from hostprep.loading.model import Probe

# Other programs that take less than this share of the processors do not count as a disturbance.
OTHERS_SHARE = 0.05
# From this share on nobody knows what a loader would give without the other programs: what they use
# changes from second to second, and so does what they leave of caches and memory bandwidth.
MUCH_SHARE = 0.25


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

    Alone, no process that makes samples would have waited for a processor; but together they cannot
    have more processors than exist, since they wait for each other, too. Both limit what was lost.
    """
    if others_cpus < OTHERS_SHARE * cpus or own_cpus <= 0:
        return samples_per_s
    makers = max(1, workers)
    waited = min(runnable_cpus - own_cpus, 0.99 * makers)
    return samples_per_s * max(1.0, min(makers / (makers - waited), cpus / own_cpus))


def without_others(samples_per_s: float, probes: Iterable[Probe]) -> float:
    """Return what a rate measured beside other programs would be without them.

    For a rate of which nothing else is known. It goes by what they cost ``probes`` without workers,
    which lose the most.
    """
    gains = (p.undisturbed_samples_per_s / p.samples_per_s for p in probes if not p.workers)
    return samples_per_s * max(gains, default=1.0)


def others_beside(probe: Probe) -> float:
    """Return the processors that other programs used meanwhile, and not on the loader's behalf."""
    return min(probe.others_cpus, probe.others_before_cpus)


def kept_from(probe: Probe) -> float:
    """Return the processors that others kept from a loader, or used on its behalf.

    However busy they are: a loader had no use for processors that it did not wait for.
    """
    on_behalf = max(0.0, probe.others_cpus - probe.others_before_cpus)
    waited = max(0.0, probe.runnable_cpus - probe.own_cpus)
    return on_behalf + min(probe.others_cpus - on_behalf, waited)
