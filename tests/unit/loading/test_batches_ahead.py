"""How many batches a worker prepares ahead, where large ones fill /dev/shm."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hostprep.loading.curve import curve_of
from hostprep.loading.measuring.measure import Measurer
from hostprep.loading.report import Report, Wish
from hostprep.loading.search import Search
from hostprep.loading.session import Run
from hostprep.loading.verdict.judging import report_of
from hostprep.units import MIB
from tests.unit.loading import making
from tests.unit.loading.test_slow_probes import Silent

# A batch of 10 MiB, whose samples wait: each worker gives as much as the one before.
WAITING = making.cost(
    batch_size=1,
    sample_bytes=10 * MIB,
    seconds=0.01,
    worker_seconds=0.01,
    cpu_seconds=0.0002,
    waiting_seconds=0.0098,
)


def run_with(shm_mib: int, **subject: Any) -> Run:
    """Return a run on a host of which hostprep would use four fifths of /dev/shm."""
    share = making.share(shm_size_bytes=shm_mib * MIB, shm_free_bytes=shm_mib * MIB)
    measurer = Measurer({}, "mine", None, share, time.monotonic(), 1.0, Silent())
    measurer.subject = making.subject(**subject) if subject else None
    run = Run(measurer, Wish(None, None, 5.0, 224, measure=True, compare=False), time.monotonic())
    run.cost = WAITING
    return run


@pytest.mark.parametrize(
    ("shm_mib", "ahead"),
    [
        (8192, 2),  # room for all that are wanted
        (64, 1),  # 5 batches, 2 of them taken: 3 workers instead of 1
        (40, 1),  # 3 batches: one worker instead of none
        (30, 2),  # 2 batches: none in either case
    ],
)
def test_fewer_are_made_ahead_where_so_more_workers_fit(shm_mib: int, ahead: int) -> None:
    assert run_with(shm_mib)._batches_ahead(WAITING) == ahead


def test_as_many_as_usual_where_more_workers_would_gain_little() -> None:
    busy = making.cost(batch_size=1, sample_bytes=10 * MIB)  # 8 processors are busy with 8 workers
    run = run_with(300)  # 24 batches: 11 workers or 22
    run.cost = busy
    assert run._batches_ahead(busy) == 2
    run = run_with(120)  # 9 batches: 3 workers or 7
    run.cost = busy
    assert run._batches_ahead(busy) == 1


def reported(prefetch: int | None, ahead: int = 2) -> Report:
    """Return the report on a loader of 4 workers, which 200 MiB hold with 2 batches ahead each."""
    run = run_with(200, current_workers=4, current_prefetch=prefetch)
    run.measurer.prefetch_factor = ahead
    run.curve = curve_of(WAITING, None, 8.0)
    probes = [making.probe(0, 100), making.probe(4, 400)]
    run.search = Search(run.curve, None, lambda workers: None, run._most, lambda: 0, probes)
    return report_of(run, "loader")


@pytest.mark.parametrize("prefetch", [None, 1, 2, 3])
def test_what_is_set_now_and_fits_needs_no_change(prefetch: int | None) -> None:
    made = reported(prefetch)
    assert made.recommendation.change_needed is False
    assert not [h for h in made.hazards if h.code.endswith("_now")]


def test_a_prefetch_factor_that_fills_shm_is_to_be_changed() -> None:
    found = reported(8)
    made = found.recommendation
    assert made.change_needed is True
    assert (made.num_workers, made.prefetch_factor) == (4, 2)
    assert "4 now with prefetch_factor=8, more than fits" in made.verdict
    (hazard,) = [h for h in found.hazards if h.code == "shared_memory_short_now"]
    assert "4 workers with prefetch_factor=8 may need more than there is" in hazard.message
    assert "--shm-size" in hazard.cure and "emptyDir of medium Memory" in hazard.cure


def test_what_was_probed_is_recommended_and_why() -> None:
    made = reported(2, ahead=1).recommendation
    assert any(reason.startswith("prefetch_factor=1: ") for reason in made.reasons)
