"""What the model alone says, where no probe with workers succeeded; pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hostprep.loading.bounds import MOST_UNCONFIRMED, MOST_WORKERS
from hostprep.loading.curve import Curve
from hostprep.loading.model import Bound, FailedProbe
from hostprep.loading.search import Point

# Of the model alone, against the public grid that it was fitted to.
MODEL_ERROR = 0.08


def modelled(
    curve: Curve,
    gpu_rate: float | None,
    *,
    capacity_cpus: float,
    bounds: Iterable[Bound],
    failed: Sequence[FailedProbe],
    ceiling: float,
    is_stream: bool,
) -> list[Point]:
    """Return the model's points, from none to the most workers that it may ask for.

    ``ceiling`` is what probes gave at most, in samples a second, that were too slow to be timed.
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
    top = max(0, min(most, curve.proposal(gpu_rate)))
    most_rate = max(ceiling, curve.alone)
    rates = [(workers, min(curve.rate(workers), most_rate)) for workers in range(top + 1)]
    return [Point(workers, rate, MODEL_ERROR, 0) for workers, rate in rates]
