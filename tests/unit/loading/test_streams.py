"""Streams, timed for real: such as end, and such as give every worker the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from hostprep.errors import Inconclusive
from hostprep.loading.child.timing import time_loader
from tests.unit.loading.test_timing import Sleepy, job, opened, silent

pytestmark = pytest.mark.usefixtures("torchs_threads")


class Stream(IterableDataset[torch.Tensor]):
    """Numbers up to ``length``, each after a wait; ``shares`` says among how many workers."""

    def __init__(self, length: int = 1_000_000, shares: int = 1, seconds: float = 0.0001) -> None:
        self.length = length
        self.shares = shares
        self.seconds = seconds

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        share = 0 if info is None else info.id % self.shares
        for number in range(share, self.length, 1 if info is None else self.shares):
            time.sleep(self.seconds)
            yield self.sample(number)

    def sample(self, number: int) -> torch.Tensor:
        return torch.full((10,), float(number))


class Alike(Stream):
    """Does not share out, but its samples do not tell."""

    def sample(self, number: int) -> torch.Tensor:
        return torch.zeros(10)


class Once(Stream):
    """A stream that is over when it was read once."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        if not hasattr(self, "left"):
            self.left = super().__iter__()
        return self.left


def timed(stream: Stream, workers: int, **changed: Any) -> dict[str, Any]:
    found, keep = time_loader(opened(stream, kind="stream"), job(workers, **changed), silent)
    del keep
    return found


@pytest.mark.parametrize(
    ("stream", "duplicates"),
    [(Stream(), 2), (Stream(shares=2), 1), (Stream(shares=3), 0), (Alike(), 0)],
)
def test_workers_that_give_what_others_give_are_counted(stream: Stream, duplicates: int) -> None:
    assert timed(stream, 3)["probe"]["duplicate_workers"] == duplicates


def test_workers_whose_batches_do_not_tell_are_counted() -> None:
    assert timed(Alike(), 3)["probe"]["untold_workers"] == 3
    assert timed(Stream(), 3)["probe"]["untold_workers"] == 0


class OneFile(Stream):
    """Hands out whole files, of which there is one, as data sets of Hugging Face do."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        return iter(()) if info is not None and info.id else super().__iter__()


def test_workers_that_give_nothing_are_counted() -> None:
    found = timed(OneFile(shares=1), 3)["probe"]
    assert (found["idle_workers"], found["duplicate_workers"]) == (2, 0)
    assert timed(Stream(shares=3), 3)["probe"]["idle_workers"] == 0


def test_samples_by_their_number_are_shared_out_by_the_loader() -> None:
    found, keep = time_loader(opened(Sleepy()), job(2), silent)
    assert found["probe"]["duplicate_workers"] == 0
    del keep


@pytest.mark.timed
def test_without_workers_a_short_stream_begins_again() -> None:
    found = timed(Stream(length=8 * 20), 0)
    assert found["probe"]["samples"] > 8 * 20
    assert found["probe"]["seconds"] >= 0.3
    assert found["cost"]["waiting_seconds"] > 0


@pytest.mark.timed
def test_with_workers_the_clock_stops_where_the_stream_ends() -> None:
    # Some 30 ms a worker; of 80 batches 8 do not count.
    found = timed(Stream(length=8 * 80, shares=2), 2)
    probe = found["probe"]
    assert probe["seconds"] < 0.3
    assert 8 * 60 <= probe["samples"] <= 8 * 72
    assert probe["samples"] / probe["seconds"] == pytest.approx(probe["samples_per_s"])
    assert probe["worker_memory_bytes"] > 1 << 20
    assert probe["own_cpus"] >= 0


@pytest.mark.parametrize(
    ("stream", "workers", "batches"),
    [
        (Stream(length=8 * 3), 0, 3),
        (Stream(length=8 * 12, shares=2), 2, 12),
        (Once(length=8 * 7, seconds=0.01), 0, 7),
    ],
)
def test_too_few_batches_are_inconclusive(stream: Stream, workers: int, batches: int) -> None:
    with pytest.raises(Inconclusive, match=f"ended after {batches} batches"):
        timed(stream, workers)
