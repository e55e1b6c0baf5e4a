"""What to say if files could only be read and a training makes more of them; pure."""

from __future__ import annotations

from hostprep.loading.bounds import PROBE_PREFETCH, starting_point
from hostprep.loading.files.model import Undecoded
from hostprep.loading.recommendation import Recommendation
from hostprep.loading.verdict.known import Known
from hostprep.loading.verdict.reasons import NO_GPU, time_taken
from hostprep.loading.verdict.settings import code
from hostprep.units import format_count


def of_undecoded(found: Undecoded, known: Known) -> Recommendation:
    """Return a starting point from the host alone, with no rate and no bottleneck.

    Reading is a part of what a sample takes, and mostly a small one: its rate, its bottleneck and
    the workers that suffice for it say nothing about a training.
    """
    cost = known.cost
    workers, words = starting_point(known.host)
    return Recommendation(
        num_workers=workers,
        prefetch_factor=PROBE_PREFETCH,
        pin_memory=known.cuda,
        persistent_workers=True,
        remedy=found.cure,
        verdict=(
            f"inconclusive: only reading was measured, because {found.what} ({found.why});"
            f" start with {format_count(workers, 'worker')} per rank"
            " (a starting point, not a measurement)"
        ),
        reasons=(
            f"reading a file takes {time_taken(cost)}; making a sample of it takes more, and was"
            " not measured",
            words,
            *(() if known.cuda else (f"pin_memory: False because {NO_GPU}",)),
        ),
        code=code(cost.batch_size, workers, PROBE_PREFETCH, pin=known.cuda, persistent=True),
    )
