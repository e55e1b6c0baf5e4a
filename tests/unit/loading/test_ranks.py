"""Several ranks share the samples of an epoch, and so its batches and the time that it takes."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import pytest

from hostprep.cli.recommend_text import report_text
from hostprep.loading.curve import curve_of
from hostprep.loading.measuring.measure import Measurer
from hostprep.loading.model import Binding, Probe
from hostprep.loading.report import Report, Wish
from hostprep.loading.search import Search
from hostprep.loading.session import Run
from hostprep.loading.verdict.judging import report_of
from hostprep.units import MIB
from tests.unit.loading import making
from tests.unit.loading.test_slow_probes import Silent


def reported(ranks: int, length: int) -> Report:
    """Return the report on 4 workers that start late, grow, and give 1,000 samples a second."""
    share = making.share(ranks=ranks, capacity_cpus=8.0 * ranks)
    measurer = Measurer({}, "mine", None, share, time.monotonic(), 1.0, Silent())
    measurer.subject = making.subject(length=length)
    run = Run(measurer, Wish(None, None, 5.0, 224, measure=True, compare=False), time.monotonic())
    run.cost = making.cost(seconds=0.004, worker_seconds=0.004, cpu_seconds=0.004)
    run.curve = curve_of(run.cost, None, share.capacity_per_rank)
    grown = {"worker_growth_bytes_per_s": float(MIB), "once_seconds": 300.0}
    probes = [making.probe(0, 250), making.probe(4, 1000, **grown)]
    run.search = Search(run.curve, None, lambda workers: None, run._most, lambda: 0, probes)
    return report_of(run, "loader")


@pytest.mark.parametrize(("ranks", "said"), [(1, False), (2, True), (8, True)])
def test_people_are_told_what_is_of_one_rank_and_what_of_all(ranks: int, said: bool) -> None:
    text = report_text(reported(ranks, 100_000))
    assert ("expected: 1,000 samples/s per rank" in text) is said
    assert ("of memory for all ranks, " in text) is said


@pytest.mark.parametrize(("ranks", "batches"), [(1, 3125), (8, 391)])
def test_a_rank_has_its_part_of_the_batches(ranks: int, batches: int) -> None:
    bounds = reported(ranks, 100_000).bounds
    assert [b.workers for b in bounds if b.binding is Binding.LENGTH] == [batches]


def measured(own_cpus: float, **changed: Any) -> Probe:
    """Return a probe of 1,000 samples a second on one processor, as one of several ranks."""
    host = making.share(**changed)
    measurer = Measurer({}, "mine", None, host, time.monotonic(), 1.0, Silent(), cpus=[0])
    found = asdict(making.probe(2, 1000, own_cpus=own_cpus, runnable_cpus=own_cpus))
    del found["undisturbed_samples_per_s"]
    return measurer._probe_of({"probe": found})


@pytest.mark.parametrize(
    ("own_cpus", "rate"),
    [(1.0, 500), (0.8, 625), (0.3, 1000)],  # what waits has enough in its half
)
def test_ranks_that_outnumber_the_processors_get_what_is_their_share(
    own_cpus: float, rate: float
) -> None:
    for few in ({"affinity_cpus": 4}, {"affinity_cpus": 16, "quota_cpus": 4.0}):
        probe = measured(own_cpus, ranks=8, capacity_cpus=4.0, **few)
        assert probe.samples_per_s == 1000
        assert probe.undisturbed_samples_per_s == pytest.approx(rate)
        assert not probe.disturbed


def test_waiting_is_told_by_the_processor_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no half of one, though that is the share: all of the quota was this rank's own."""
    host = making.share(ranks=8, affinity_cpus=16, quota_cpus=4.0, capacity_cpus=4.0)
    measurer = Measurer({}, "mine", None, host, time.monotonic(), 1.0, Silent(), cpus=[0])
    cost = making.cost(worker_seconds=0.01, cpu_seconds=0.005, waiting_seconds=0.005)
    found = asdict(making.probe(0, 100, own_cpus=0.5))
    del found["undisturbed_samples_per_s"]
    result = {"probe": found, "cost": asdict(cost), "own_way_problem": None}
    monkeypatch.setattr(Measurer, "_ask_probe", lambda *_, **__: result)
    alone = measurer.alone()
    assert isinstance(alone, tuple)
    assert alone[1].waiting_seconds == pytest.approx(0.005)


def test_a_rank_with_a_processor_or_more_gives_what_was_measured() -> None:
    for quota in (4.0, 6.0):
        probe = measured(1.02, ranks=4, affinity_cpus=16, quota_cpus=quota)
        assert probe.undisturbed_samples_per_s == 1000


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (4, "on its share of the processors"),
        (3, "on 2 of its share of 2.67 processors, so it may give more"),
        (16, "on a whole processor, and scaled down to its share of 0.5"),
    ],
)
def test_people_are_told_which_processors_a_rank_was_measured_on(ranks: int, words: str) -> None:
    (note,) = (note for note in reported(ranks, 100_000).notes if "measured as one of" in note)
    assert f"measured as one of {ranks} ranks, {words}; " in note


@pytest.mark.parametrize(("ranks", "epoch"), [(1, "1 h 20 min"), (8, "10 min 00 s")])
def test_an_epoch_lasts_as_long_as_all_ranks_take_for_it(ranks: int, epoch: str) -> None:
    told = "it takes 5 min 00 s, not counting the samples, until that rate is reached"
    (note,) = (note for note in reported(ranks, 4_800_000).notes if told in note)
    assert f"(an epoch then takes {epoch})" in note


@pytest.mark.parametrize("ranks", [1, 8])
def test_what_workers_keep_of_all_samples_is_the_same_for_any_number_of_ranks(ranks: int) -> None:
    growth = [h for h in reported(ranks, 4_800_000).hazards if h.code == "worker_growth"]
    assert "over an epoch of 4,800,000 that would be 18.8 GiB in all" in growth[0].message
