"""What a rate would have been without other programs: never more than the processors can give."""

from __future__ import annotations

import pytest

from hostprep.loading.measuring.disturbance import (
    kept_from,
    others_beside,
    undisturbed,
    without_others,
)
from tests.unit.loading.making import probe


def rate(workers: int, own: float, runnable: float, others: float, cpus: float = 2.0) -> float:
    return undisturbed(
        1000,
        workers=workers,
        own_cpus=own,
        runnable_cpus=runnable,
        others_cpus=others,
        cpus=cpus,
    )


def test_alone_nothing_is_corrected_however_many_wait() -> None:
    assert rate(16, own=1.95, runnable=15.0, others=0.02) == 1000


def test_saturated_workers_would_have_had_all_processors() -> None:
    assert rate(16, own=1.5, runnable=14.0, others=0.5) == pytest.approx(1000 * 2 / 1.5)


def test_one_process_loses_only_what_it_waited() -> None:
    assert rate(0, own=0.7, runnable=1.0, others=1.3) == pytest.approx(1000 / 0.7)


def test_sleepers_that_wake_late_lose_little() -> None:
    # 0.05 processors used and 0.1 waited for: of a second, a tenth was lost.
    assert rate(0, own=0.05, runnable=0.15, others=1.8) == pytest.approx(1000 / 0.9)


def test_a_quota_is_all_there_is() -> None:
    assert rate(8, own=0.5, runnable=7.0, others=1.0, cpus=0.5) == 1000


@pytest.mark.parametrize(
    ("workers", "own", "runnable", "others", "alone"),
    [
        (4, 2.0, 4.0, 4.0, 2000),  # half of the time they waited for a processor
        (4, 2.0, 12.0, 4.0, 4000),  # nearly all of it, but there are no more than 8 processors
        (4, 4.0, 6.0, 4.0, 2000),
        (0, 0.5, 1.0, 4.0, 2000),
        (4, 2.0, 4.0, 0.4, 2000),
        (4, 2.0, 4.0, 0.39, 1000),  # others that hardly count
        (4, 2.0, 1.5, 4.0, 1000),  # two clocks differ
        (4, 0.0, 2.0, 4.0, 1000),
    ],
)
def test_a_rate_without_others_is_that_of_processes_that_wait_for_no_processor(
    workers: int, own: float, runnable: float, others: float, alone: float
) -> None:
    assert rate(workers, own, runnable, others, cpus=8.0) == pytest.approx(alone)


@pytest.mark.parametrize(
    ("others", "before", "own", "runnable", "beside", "kept"),
    [
        (3.0, 1.0, 1.0, 2.0, 1.0, 3.0),  # two work for it, and it waited for the third
        (3.0, 3.0, 1.0, 1.5, 3.0, 0.5),
        (3.0, 3.0, 1.0, 9.0, 3.0, 3.0),
        (1.0, 3.0, 1.0, 2.0, 1.0, 1.0),  # some have ended
        (3.0, 3.0, 1.0, 0.9, 3.0, 0.0),
        (0.5, 0.0, 1.0, 1.0, 0.0, 0.5),
    ],
)
def test_what_works_on_behalf_of_a_loader_is_not_beside_it(
    others: float, before: float, own: float, runnable: float, beside: float, kept: float
) -> None:
    one = probe(
        4, 1000, others_cpus=others, others_before_cpus=before, own_cpus=own, runnable_cpus=runnable
    )
    assert others_beside(one) == pytest.approx(beside)
    assert kept_from(one) == pytest.approx(kept)


def test_what_nothing_else_is_known_of_is_taken_for_as_disturbed_as_none() -> None:
    probes = [
        probe(0, 100, undisturbed_samples_per_s=120.0),
        probe(0, 100, undisturbed_samples_per_s=150.0),
        probe(4, 100, undisturbed_samples_per_s=300.0),
    ]
    assert without_others(1000, probes) == pytest.approx(1500)
    assert without_others(1000, probes[2:]) == 1000
