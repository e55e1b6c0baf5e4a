"""Real DataLoaders timed in this process: the discards, the rounds, the unseen samples."""

from __future__ import annotations

import itertools
import os
import signal
import time
import warnings
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from hostprep.errors import Inconclusive
from hostprep.loading.child.building import ProbeJob, UnseenIndices, build
from hostprep.loading.child.delivery import Delivery, Stamped
from hostprep.loading.child.opening import Opened
from hostprep.loading.child.starting import Batches
from hostprep.loading.child.timing import _clock, time_loader
from hostprep.loading.failures import TooSlow

pytestmark = pytest.mark.usefixtures("torchs_threads")


class Sleepy:
    """4,000 samples, each a millisecond of waiting."""

    def __init__(self, seconds: float = 0.001) -> None:
        self.seconds = seconds
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        self.asked.append(index)
        return torch.zeros(10)


def silent(event: str, **fields: Any) -> None:
    """Hear nothing."""


def opened(dataset: Any, loader: Any = None, kind: str = "dataset") -> Opened:
    collate = None if loader is None else loader.collate_fn
    return Opened(dataset, loader, None, collate, 8, kind, "mine")


def job(workers: int, **changed: Any) -> ProbeJob:
    fields: dict[str, Any] = {
        "workers": workers,
        "prefetch_factor": 2,
        "batch_size": 8,
        "first": 0,
        "seconds": 0.3,
        "limit_seconds": 10.0,
    }
    return ProbeJob(**{**fields, **changed})


@pytest.mark.timed
def test_without_workers_waiting_is_told_from_work() -> None:
    found, _ = time_loader(opened(Sleepy()), job(0), silent)
    cost = found["cost"]
    assert cost["waiting_seconds"] > 0.5 * cost["worker_seconds"]
    assert cost["cpu_seconds"] < 0.5 * cost["worker_seconds"]
    assert cost["sample_bytes"] == 40
    assert found["probe"]["discarded_batches"] >= 2


@pytest.mark.timed
@pytest.mark.parametrize(("limit_seconds", "batches"), [(5.0, 7), (2.2, 5), (1.4, 3), (1.1, 2)])
def test_batches_that_take_long_are_timed_by_as_few_as_there_is_time_for(
    limit_seconds: float, batches: int
) -> None:
    data = Sleepy(0.05)  # 0.4 s a batch
    began = time.monotonic()
    found, _ = time_loader(opened(data), job(0, limit_seconds=limit_seconds), silent)
    assert time.monotonic() - began < limit_seconds + 1.5
    assert len(data.asked) <= 8 * batches
    if limit_seconds < 2:
        assert found["probe"]["discarded_batches"] == 1
    assert found["probe"]["samples"] >= 8
    cost = found["cost"]
    assert cost["worker_seconds"] == pytest.approx(0.05, rel=0.5)
    assert cost["waiting_seconds"] > 0.5 * cost["worker_seconds"]


def test_a_batch_that_takes_all_the_time_is_inconclusive() -> None:
    with pytest.raises(Inconclusive, match="the first batch took") as caught:
        time_loader(opened(Sleepy(0.05)), job(0, limit_seconds=0.3), silent)
    assert "--seconds" in (caught.value.hint or "")


def test_workers_discard_and_stop_after_whole_rounds() -> None:
    events: list[str] = []

    def told(event: str, **fields: Any) -> None:
        events.append(event)

    found, keep = time_loader(opened(Sleepy()), job(3), told)
    probe = found["probe"]
    assert probe["discarded_batches"] == 10
    assert probe["samples"] % (3 * 8) == 0
    assert probe["samples"] / probe["seconds"] == pytest.approx(probe["samples_per_s"])
    assert probe["worker_memory_bytes"] > 1 << 20
    assert events == ["workers", "first_batch"]
    del keep


def kill_the_first(worker: int) -> None:
    if worker == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_noticed_though_torchs_word_of_it_was_lost() -> None:
    def told(event: str, **fields: Any) -> None:
        try:
            os.waitid(os.P_PID, fields["pids"][0], os.WEXITED | os.WNOWAIT)
        except (RuntimeError, ChildProcessError):
            pass

    loader = DataLoader(
        Sleepy(), num_workers=1, worker_init_fn=kill_the_first, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match="killed by signal"):  # torch by itself: "exited"
        time_loader(opened(Sleepy(), loader), job(2), told)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_of_a_killed_worker_that_was_not_forked_it_is_known_what_ended_it(method: str) -> None:
    loader = DataLoader(
        Sleepy(), num_workers=1, worker_init_fn=kill_the_first, multiprocessing_context=method
    )
    with pytest.raises(RuntimeError, match="killed by signal: Killed"):
        time_loader(opened(Sleepy(), loader), job(1, limit_seconds=60.0), silent)


def test_few_rounds_count_as_batches_are_made_though_they_arrive_in_bursts() -> None:
    def stamped(times: list[float]) -> list[Stamped]:
        return [Stamped(number % 4, at, None) for number, at in enumerate(times)]

    # Four workers on one arm: each batch takes four seconds, and all are done at about once.
    rounds = [10.0 + 4 * turn + 0.01 * worker for turn in range(4) for worker in range(4)]
    delivery = Delivery()
    assert list(delivery.of(iter(stamped(rounds)))) == [None] * len(rounds)
    assert delivery.made_a_second(rounds=1) == pytest.approx(1.0)
    assert delivery.made_a_second(rounds=3) == pytest.approx(1.0)


def test_the_next_probe_begins_where_this_one_ended() -> None:
    data = Sleepy(0.0)
    found, _ = time_loader(opened(data), job(0, seconds=0.01), silent)
    first = set(data.asked)
    data.asked.clear()
    time_loader(opened(data), job(0, seconds=0.01, first=found["next"]), silent)
    assert len(first) > 32
    if found["next"] < 2000:
        assert not first & set(data.asked[:64])


def test_every_sample_comes_once_before_any_comes_twice() -> None:
    for shuffled in (True, False):
        order = UnseenIndices(100, 30, shuffled)
        taken = list(itertools.islice(order, 100))
        assert sorted(taken) == list(range(100))
        assert (taken == [*range(30, 100), *range(30)]) is not shuffled
        assert order.taken == 100


def test_very_long_data_sets_have_no_permutation_in_memory() -> None:
    taken = list(itertools.islice(UnseenIndices(10**12, 0, True), 10_000))
    assert len(set(taken)) == 10_000
    assert max(taken) > 10**11


def test_their_loader_keeps_its_collate_and_its_start_method() -> None:
    def double(samples: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(samples) * 2

    theirs = DataLoader(
        Sleepy(),  # type: ignore[arg-type]
        batch_size=8,
        collate_fn=double,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    built = build(opened(theirs.dataset, theirs, "dataloader"), job(2)).loader
    assert built.collate_fn.collate is double
    assert built.multiprocessing_context.get_start_method() == "spawn"
    assert built.num_workers == 2
    assert [i for i, _ in zip(built.sampler, range(3), strict=False)] == [0, 1, 2]  # not shuffled


def test_more_workers_than_processors_are_tried_where_the_user_makes_errors_of_warnings() -> None:
    """As by PYTHONWARNINGS=error: recommend ended with torch's, for a number that it chose."""
    workers = len(os.sched_getaffinity(0)) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(opened(Sleepy()), job(workers)).loader.num_workers == workers


def test_too_slow_to_be_timed_is_inconclusive(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers that are ended in the middle leave the folders of their sockets.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("t")))
    with pytest.raises(Inconclusive, match="first 8 do not count") as caught:
        time_loader(opened(Sleepy(0.02)), job(2, limit_seconds=0.4), silent)
    assert "--seconds" in (caught.value.hint or "")


def test_of_batches_that_were_all_there_when_time_was_over_no_seconds_are_told() -> None:
    """Seen of eight workers: "3 batches took 0 s, too few to measure a rate"."""
    ready: Any = SimpleNamespace(take=lambda: None)
    with pytest.raises(TooSlow, match=r"2 batches with 8 workers came in the time .*, too few"):
        _clock(ready, job(8), deadline=0.0)


class Exhausted(Sleepy):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 50 == 0:
            next(iter(()))
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stop_iteration_of_the_data_set_is_no_end_of_an_epoch(workers: int) -> None:
    with pytest.raises(
        RuntimeError, match="a StopIteration, which silently ends an epoch"
    ) as caught:
        time_loader(opened(Exhausted(0.0)), job(workers), silent)
    assert isinstance(caught.value.__cause__, StopIteration)


def test_a_sampler_that_gives_nothing_is_no_empty_data_set() -> None:
    given: Any = DataLoader(Sleepy(0.0), sampler=iter([]))
    with pytest.raises(Inconclusive, match="gave no batch, though its length is 4,000") as caught:
        time_loader(opened(given.dataset, given), job(0), silent)
    assert "its sampler" in (caught.value.hint or "")


def test_a_batch_is_held_until_the_next_has_come_as_a_training_holds_it() -> None:
    made = []

    def batches() -> Iterator[torch.Tensor]:
        while True:
            held = [ref for ref in made if ref() is not None]
            assert len(held) <= 1
            batch = torch.zeros(3)
            made.append(weakref.ref(batch))
            yield batch
            del batch

    taken = Batches(batches(), "mine")
    for number in range(4):
        taken.take()
        assert [ref() is not None for ref in made] == [False] * number + [True]
