"""What a loader does once, which is in no rate: how it is seen, and what is said of it."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
import torch

from hostprep.loading.child.timing import gets_faster, time_loader
from hostprep.loading.verdict.once import notes_of_once
from tests.unit.loading import making
from tests.unit.loading.test_timing import job, opened, silent
from tests.unit.loading.test_verdict import judged


def marks(*seconds: float) -> list[float]:
    return list(itertools.accumulate(seconds, initial=7.0))


@pytest.mark.parametrize(
    ("seconds", "step", "faster"),
    [
        ((3.0, 1.4, 0.6), 1, True),
        ((3.0, 1.4), 1, False),  # two tell nothing
        ((3.0, 2.5, 2.0), 1, False),  # not by much
        ((1.0, 3.0, 0.3, 0.3), 1, False),  # uneven
        ((0.1,) * 40, 1, False),
        ((0.0, 3.0, 0.0, 1.4, 0.0, 0.6), 2, True),  # two workers, whose batches come in bursts
        ((3.0, 0.001) * 3, 2, False),
    ],
)
def test_a_loader_that_gets_faster_is_told_from_one_that_is_uneven(
    seconds: tuple[float, ...], step: int, faster: bool
) -> None:
    assert gets_faster(marks(*seconds), step) is faster


class Keeping:
    """Samples that take ever less, to a millisecond each: of ever more of them all is kept."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.001 + 0.05 * 0.93**self.asked)  # 0.7 s in all
        self.asked += 1
        return torch.zeros(10)


@pytest.mark.timed
def test_what_is_kept_is_waited_for_while_there_is_time(torchs_threads: Any) -> None:
    found, _ = time_loader(opened(Keeping()), job(0, seconds=0.15, limit_seconds=3.0), silent)
    probe = found["probe"]
    assert probe["samples_per_s"] > 300  # of the first three batches that count it is 120
    assert 0.4 < probe["once_seconds"] < 1.0
    assert not probe["warming"]


def notes(epoch: float | None, made: Any, subject: Any = None, **changed: Any) -> tuple[str, ...]:
    probes = [making.probe(0, 500), making.probe(4, 2000, **changed)]
    return notes_of_once(made, probes, subject or making.subject(), epoch)


def test_what_is_done_once_is_told_where_it_is_much_of_an_epoch() -> None:
    made = judged([making.probe(0, 500), making.probe(4, 2000, once_seconds=12.0)])
    assert (made.num_workers, made.persistent_workers) == (4, True)
    (note,) = notes(50.0, made, once_seconds=12.0)
    assert note.startswith("with 4 workers it takes 12.0 s, not counting the samples, until")
    assert "(an epoch then takes 50.0 s)" in note
    assert note.endswith("with persistent_workers=True it happens only once")
    assert not notes(500.0, made, once_seconds=12.0)
    assert not notes(5.0, made, once_seconds=1.0)
    stream = making.subject(kind="stream")
    (note,) = notes(None, made, stream, once_seconds=12.0)
    assert note.endswith("what a stream's __iter__ does is done in every epoch")


def test_a_rate_that_still_rose_is_told() -> None:
    made = judged([making.probe(0, 500), making.probe(4, 2000)])
    (note,) = notes(50.0, made, warming=True)
    assert (
        "with 4 workers it was still getting faster when its time was over, at 2,000 samples/s"
        in note
    )
    assert not notes(50.0, made, warming=True, undisturbed_samples_per_s=3000.0)
