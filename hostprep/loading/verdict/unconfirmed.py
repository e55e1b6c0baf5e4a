"""What the model alone says if no probe with workers succeeded; pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hostprep.loading.bounds import MOST_UNCONFIRMED, MOST_WORKERS
from hostprep.loading.curve import Curve
from hostprep.loading.measuring.disturbance import MUCH_SHARE
from hostprep.loading.model import FailedProbe, SampleCost
from hostprep.loading.recommendation import Bound
from hostprep.loading.search import Point

# The model's own error: how close its curve comes to the public grid that it was fitted to (see
# ``curve``), 7 to 8 %. Those are idle machines, and costs that are known well; in the sweeps of
# benchmarks/recommend/README.md it was off by 4 to 15 %, and once, on a disk with one arm, by 90 %.
# So it is the least error that it can have, whatever it rests on.
MODEL_ERROR = 0.08
# What passing a batch from a worker to the main process takes if that was not measured: on two
# processors 0.57 ms were seen for 128 KB, 2.1 ms for 1.6 MB, 3.1 ms for 4.8 MB. Rather too little
# than too much, so that samples that need more work than that still get workers.
_BATCH_SECONDS, _BYTES_PER_S = 0.4e-3, 2e9


def modelled(
    curve: Curve,
    gpu_rate: float | None,
    *,
    capacity_cpus: float,
    bounds: Iterable[Bound],
    failed: Sequence[FailedProbe],
    ceiling: float,
    distinct: float,
    handed_over: float,
    error: float | None,
) -> list[Point]:
    """Return the model's points, from none to the most workers that it may ask for.

    ``distinct`` is how many workers may be assumed to share out the data. ``error`` is that of each
    point, see ``model_error``. ``ceiling`` is the highest rate, in samples a second, of probes that
    were too slow to be timed; ``handed_over`` is what workers can pass on: samples that are ready
    faster get no workers.
    """
    capacity = math.ceil(capacity_cpus)
    most = min(
        # A failure with more workers has shown that the host is short of something.
        capacity if failed else max(MOST_UNCONFIRMED, capacity),
        *(bound.workers for bound in bounds),
        MOST_WORKERS,
        distinct,
        *(failure.workers - 1 for failure in failed),
    )
    top = int(max(0, min(most, curve.proposal(gpu_rate)))) if curve.alone < handed_over else 0
    most_rate = max(ceiling, curve.alone)
    rates = [(workers, min(curve.rate(workers), most_rate)) for workers in range(top + 1)]
    return [Point(workers, rate, error, 0) for workers, rate in rates]


def model_error(rests_on: Iterable[float | None], others_cpus: float, cpus: float) -> float | None:
    """Return how far off the model may be, by the errors of what it rests on.

    None if nobody can say: one of these is not known, or other programs used much of the ``cpus``
    processors meanwhile.
    """
    errors = list(rests_on)
    known = [error for error in errors if error is not None]
    if len(known) < len(errors) or others_cpus >= MUCH_SHARE * cpus:
        return None
    return math.hypot(MODEL_ERROR, *known)


def handed_over(cost: SampleCost) -> float:
    """Return the samples a second that workers are assumed to pass on if none were timed."""
    return 1 / (_BATCH_SECONDS / cost.batch_size + cost.sample_bytes / _BYTES_PER_S)
