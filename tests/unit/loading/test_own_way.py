"""DataLoader classes of somebody's own: what they do with batches is timed, where it can be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from hostprep.errors import Inconclusive
from hostprep.loading.child import processes
from hostprep.loading.child.alone import Meter
from hostprep.loading.child.building import ProbeJob, TimedCollate
from hostprep.loading.child.delivery import Delivery
from hostprep.loading.child.opening import Opened, describe, open_source
from hostprep.loading.child.timing import time_loader
from hostprep.loading.curve import Ceiling, curve_of
from hostprep.loading.model import Batching, Binding, SampleCost, Transport
from hostprep.loading.search import Point
from hostprep.loading.verdict.binding import what_binds
from hostprep.loading.verdict.known import Known
from hostprep.loading.verdict.settings import recommend
from tests.unit.loading import own_ways
from tests.unit.loading.making import cost, probe, share, subject
from tests.unit.loading.own_ways import BATCH, MAIN_SECONDS


@pytest.fixture(autouse=True)
def torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The child that does this ends with it: here torch's class and threads stay as they are."""
    monkeypatch.setattr(DataLoader, "_get_iterator", DataLoader._get_iterator)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def opened(name: str) -> Opened:
    return open_source({"loader": f"{own_ways.__name__}:{name}"}, None)


def timed(of: Opened, workers: int, **changed: Any) -> tuple[dict[str, Any], list[str]]:
    events: list[str] = []
    fields = {"prefetch_factor": 2, "first": 0, "seconds": 0.4, "limit_seconds": 20.0, **changed}
    job = ProbeJob(workers=workers, batch_size=of.batch_size, **fields)
    found, keep = time_loader(of, job, lambda event, **more: events.append(event))
    del keep
    return found, events


@pytest.mark.timed
@pytest.mark.parametrize(
    "name", ["Augmenting", "Neighbours", "Merging", "Preparing", "Prepared", "Around"]
)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_its_class_does_with_batches_is_in_the_rate(name: str, workers: int) -> None:
    own_ways.slept.clear()
    found, events = timed(opened(name), workers)
    probe = found["probe"]
    assert probe["own_way"] and found["own_way_problem"] is None
    # Making a sample takes microseconds; what is done with a batch is all. That cannot take less
    # than it does, and where others have the processor it takes as long as it was seen to take.
    assert probe["samples_per_s"] < 1.05 * BATCH / MAIN_SECONDS
    a_batch = BATCH * (2 if name == "Merging" else 1)
    discarded, batches = probe["discarded_batches"], probe["samples"] // a_batch
    ends = [end for _, end in own_ways.slept[discarded - 1 : discarded + batches]]
    seen = a_batch * batches / (ends[-1] - ends[0])
    assert probe["samples_per_s"] == pytest.approx(seen, rel=0.25)
    assert events == ["workers", "first_batch"]
    if not workers:
        spent = SampleCost(**found["cost"])
        longest = fmean(end - began for began, end in own_ways.slept) / a_batch
        assert 0.75 * MAIN_SECONDS / BATCH < spent.main_seconds < 1.25 * longest
        # What workers would take over, without what others kept it from.
        assert spent.waiting_seconds + spent.cpu_seconds < 0.2 * spent.main_seconds
        assert spent.batch_size == BATCH


@pytest.mark.parametrize("workers", [0, 2])
def test_what_only_says_that_it_is_a_data_loader_goes_its_own_way(workers: int) -> None:
    prepared = opened("Prepared")
    told = describe(prepared, thoroughly=True)
    assert (told.own_class, told.own_iteration, told.current_workers) == ("Prepared", True, 2)
    found, _ = timed(prepared, workers, seconds=0.1)
    assert found["probe"]["own_way"] and found["own_way_problem"] is None


@pytest.mark.parametrize("workers", [0, 2])
def test_parts_of_one_batch_are_too_few_for_a_rate(workers: int) -> None:
    with pytest.raises(Inconclusive, match="took no new one from the data set"):
        timed(opened("Splitting"), workers, seconds=0.1)


def test_what_is_looked_at_after_the_clock_is_nothing_that_the_class_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As of a process with thousands of mappings, or beside others.
    monkeypatch.setattr(processes, "own_memory", lambda pid: time.sleep(0.5))
    found, _ = timed(opened("Around"), 0)
    assert SampleCost(**found["cost"]).main_seconds < 2 * MAIN_SECONDS / BATCH


def test_what_others_kept_it_from_is_nothing_that_the_class_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivery = Delivery(timed=True)
    delays = iter([0.0, 0.1, 0.3, 2.0])  # as the meter begins, around the one batch, as it ends
    monkeypatch.setattr(processes, "thread_delay_seconds", lambda: next(delays))
    meter = Meter(TimedCollate(list), delivery)
    delivery.take(iter([torch.zeros(BATCH)]))
    time.sleep(MAIN_SECONDS)
    assert meter.each(1)["main_seconds"] == 0.0


def test_what_a_thread_takes_is_nothing_that_the_main_process_does() -> None:
    spent = SampleCost(**timed(opened("Threaded"), 0)[0]["cost"])
    assert spent.main_cpu_seconds >= 0 and spent.main_seconds >= 0
    assert spent.main_seconds < 0.5 * spent.seconds


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Repeating", "it keeps the workers that it was made with"),
        ("Sorting", "it takes more than 65 batches to make one"),
        ("Wrapping", "it takes batches from elsewhere"),
        ("Distributed", "ValueError('no process group was set up')"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_cannot_be_timed_so_is_timed_as_torchs(name: str, why: str, workers: int) -> None:
    found, _ = timed(opened(name), workers)
    assert (found["probe"]["own_way"], found["own_way_problem"]) == (False, why)
    assert found["probe"]["samples_per_s"] > 2 * BATCH / MAIN_SECONDS


def test_nobodys_way_is_asked_for_where_it_is_known_to_lead_nowhere() -> None:
    found, _ = timed(opened("Distributed"), 0, own_way=False)
    assert found["own_way_problem"] is None


def test_a_sampler_that_is_repeated_without_end_is_the_one_it_repeats() -> None:
    of = opened("Repeating")
    assert (of.batching, of.batch_size, of.length, of.batches) == (Batching.SIZE, BATCH, 4096, 512)
    found = describe(of, thoroughly=False)
    assert found.shuffled and found.kept == ("shuffle=True",)
    assert (found.own_class, found.own_iteration) == ("Repeating", True)


def test_the_workers_that_are_set_are_those_of_the_loader_that_it_goes_over() -> None:
    found = describe(opened("Around"), thoroughly=False)
    assert (found.current_workers, found.current_persistent) == (2, True)
    assert describe(opened("Augmenting"), thoroughly=False).current_workers == 0


def known(**changed: Any) -> Known:
    """A host of 8 on which all that workers can do is done well before 2.5 ms per sample."""
    spent = cost(seconds=0.0045, main_seconds=0.0025, **changed)
    points = (Point(0, 222.0, 0.01, 2), Point(2, 390.0, 0.01, 2))
    transport = Transport(workers=8, samples_per_s=50_000.0, cpu_seconds=1e-5)
    return Known(
        host=share(),
        subject=subject(own_class="Mine", own_iteration=True, current_workers=0),
        length=100_000,
        cost=spent,
        curve=curve_of(spent, transport, 8.0),
        points=points,
        probes=(probe(0, 222.0, own_way=True), probe(2, 390.0, own_way=True)),
        bounds=(),
        stages=None,
        gpu_rate=None,
        cuda=False,
        data_bytes=None,
    )


def test_the_main_process_is_what_binds_and_the_model_knows() -> None:
    found = known()
    assert found.curve.ceiling == pytest.approx(400, rel=0.02)
    assert found.curve.ceiling_from is Ceiling.TRANSPORT
    assert what_binds(found, found.points[1]) is Binding.MAIN_PROCESS
    assert what_binds(found, found.points[0]) is Binding.MAIN_PROCESS
    said = recommend(found, found.points[1])
    assert "collate_fn" in (said.remedy or "")
    assert (
        "Mine iterates over its batches in its own way: that takes 2.5 ms per sample in the main"
        " process, with any num_workers"
    ) in said.reasons
