"""What a rate would have been without other programs: never more than the processors can give."""

from __future__ import annotations

import pytest

from hostprep.loading.measuring.disturbance import undisturbed


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
