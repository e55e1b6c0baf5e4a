"""Several ranks share the samples of an epoch, and so its batches and the time that it takes."""

from __future__ import annotations

import time

import pytest

from hostprep.cli.recommend import report_text
from hostprep.loading.curve import curve_of
from hostprep.loading.judging import report_of
from hostprep.loading.measure import Measurer
from hostprep.loading.model import Binding
from hostprep.loading.report import Report, Wish
from hostprep.loading.search import Search
from hostprep.loading.session import Run
from hostprep.units import MIB
from tests.unit.loading import making
from tests.unit.loading.test_slow_probes import Silent


def reported(ranks: int, length: int) -> Report:
    """Return the report on a loader whose 4 workers give 1,000 samples a second, and grow."""
    share = making.share(ranks=ranks, capacity_cpus=8.0 * ranks)
    measurer = Measurer({}, "mine", None, share, time.monotonic(), 1.0, Silent())
    measurer.subject = making.subject(length=length)
    run = Run(measurer, Wish(None, None, 5.0, 224, measure=True, compare=False), time.monotonic())
    run.cost = making.cost(seconds=0.004, worker_seconds=0.004, cpu_seconds=0.004)
    run.curve = curve_of(run.cost, None, share.capacity_per_rank)
    probes = [making.probe(0, 250), making.probe(4, 1000, worker_growth_bytes_per_s=float(MIB))]
    run.search = Search(run.curve, None, lambda workers: None, run._most, lambda: 0, probes)
    return report_of(run, "loader")


@pytest.mark.parametrize(("ranks", "said"), [(1, False), (8, True)])
def test_people_are_told_what_is_of_one_rank_and_what_of_all(ranks: int, said: bool) -> None:
    text = report_text(reported(ranks, 100_000))
    assert ("expected: 1,000 samples/s a rank" in text) is said
    assert ("of memory for all ranks, of which" in text) is said


@pytest.mark.parametrize(("ranks", "batches"), [(1, 3125), (8, 391)])
def test_a_rank_has_its_part_of_the_batches(ranks: int, batches: int) -> None:
    bounds = reported(ranks, 100_000).bounds
    assert [b.workers for b in bounds if b.binding is Binding.LENGTH] == [batches]


@pytest.mark.parametrize(("ranks", "seconds"), [(1, 4800), (8, 600)])
def test_an_epoch_lasts_as_long_as_all_ranks_take_for_it(ranks: int, seconds: int) -> None:
    growth = [h for h in reported(ranks, 4_800_000).hazards if h.code == "worker_growth"]
    assert f"over an epoch of {seconds} s" in growth[0].message
