"""What the model alone says, where no probe with workers succeeded; pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hostprep.loading.bounds import MOST_UNCONFIRMED, MOST_WORKERS
from hostprep.loading.curve import Curve
from hostprep.loading.model import FailedProbe, SampleCost
from hostprep.loading.recommendation import Bound
from hostprep.loading.search import Point

# Of the model alone, against the public grid that it was fitted to.
MODEL_ERROR = 0.08
# What handing a batch from a worker to the main process takes where that was not measured: on two
# processors 0.57 ms were seen for 128 KB, 2.1 ms for 1.6 MB, 3.1 ms for 4.8 MB. Rather too little,
# so that who has more to do in a sample than that is not kept from workers.
_BATCH_SECONDS, _BYTES_PER_S = 0.4e-3, 2e9


def modelled(
    curve: Curve,
    gpu_rate: float | None,
    *,
    capacity_cpus: float,
    bounds: Iterable[Bound],
    failed: Sequence[FailedProbe],
    ceiling: float,
    is_stream: bool,
    handed_over: float,
) -> list[Point]:
    """Return the model's points, from none to the most workers that it may ask for.

    ``ceiling`` is what probes gave at most, in samples a second, that were too slow to be timed;
    ``handed_over`` what workers can hand over: what is ready sooner gets none.
    """
    capacity = math.ceil(capacity_cpus)
    most = min(
        # What failed with more has shown that the host is short of something.
        capacity if failed else max(MOST_UNCONFIRMED, capacity),
        *(bound.workers for bound in bounds),
        MOST_WORKERS,
        *([1] if is_stream else []),
        *(failure.workers - 1 for failure in failed),
    )
    top = max(0, min(most, curve.proposal(gpu_rate))) if curve.alone < handed_over else 0
    most_rate = max(ceiling, curve.alone)
    rates = [(workers, min(curve.rate(workers), most_rate)) for workers in range(top + 1)]
    return [Point(workers, rate, MODEL_ERROR, 0) for workers, rate in rates]


def handed_over(cost: SampleCost) -> float:
    """Return the samples a second that workers are taken to hand over where none were timed."""
    return 1 / (_BATCH_SECONDS / cost.batch_size + cost.sample_bytes / _BYTES_PER_S)
