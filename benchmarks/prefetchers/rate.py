"""What a contender costs: the rate of a loop like a training, and the memory that stays reserved.

A few batches are in host memory before the clock starts and are repeated, so that nothing waits for
a loader. The clock is the host's, around a whole pass including the device's end of it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.prefetchers.peers import CONTENDERS, Contender
from benchmarks.prefetchers.trials import Found, guarded, problem, settle
from hostprep.cuda.bench import Bench

IMAGES, IMAGE = 256, (3, 224, 224)
KEPT_BATCHES = 4
MOST_BATCHES, FEWEST_BATCHES, WARM_BATCHES = 100, 10, 10
ROUNDS = 5
COMPUTE_OVER_COPY = 1.2
MIXED_IMAGES = (64, 64, 48, 64, 32, 64, 64, 56, 64, 40, 64, 17)
STEP_SECONDS = 0.001
EPOCHS, TOLD_EPOCHS = 5, (1, 2, 5)
HALF = {torch.uint8: torch.float16}
COMPUTE, COPY = "compute alone", "copy alone"


class Cycled:
    """A few batches repeated, ``count`` in all: a loader that never makes anybody wait."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches, self.count = batches, 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(itertools.cycle(self.batches), self.count)


def rate(bench: Bench, until: float) -> Found:
    """Time a loop like a training with each contender in turn, besides compute and copy alone."""
    settle(bench)
    bench.calibrate()
    kept = {
        pinned: [_images(IMAGES, pinned) for _ in range(KEPT_BATCHES)] for pinned in (True, False)
    }
    copy = _copying(bench, kept[True])
    bench.timed(side=lambda: copy(WARM_BATCHES))
    copy_seconds = (
        median(bench.timed(side=lambda: copy(WARM_BATCHES))[0] for _ in range(3)) / WARM_BATCHES
    )
    products = bench.products(COMPUTE_OVER_COPY * copy_seconds)

    def step(images: Any) -> None:
        images.amax()  # the step reads its batch, as a model would
        products()

    resident = kept[True][0][0].to(bench.device).to(torch.float16)
    passes: dict[str, Callable[[int], None]] = {
        COMPUTE: lambda count: _each(itertools.repeat((resident,), count), step),
        COPY: copy,
    }
    for contender in CONTENDERS:
        passes[contender.name] = _passing(bench, contender, kept[contender.pinned], step)
    found: Found = {
        "batch_bytes": sum(part.numel() * part.element_size() for part in kept[True][0]),
        "copy_seconds": copy_seconds,
        "rates": {},
        "problems": {},
    }
    _in_turn(bench, passes, WARM_BATCHES, found, 0)  # one-time work is done in this pass
    taken = _in_turn(bench, passes, WARM_BATCHES, found, 0)
    left = max(0.0, until - time.monotonic())
    per_batch = sum(taken.values()) / WARM_BATCHES
    count = int(left / (ROUNDS * max(per_batch, 1e-9)))
    count = found["batches"] = min(MOST_BATCHES, max(FEWEST_BATCHES, count))
    for number in range(ROUNDS):
        if number and time.monotonic() > until:
            break
        for name, seconds in _in_turn(bench, passes, count, found, number).items():
            found["rates"].setdefault(name, []).append(count / seconds)
    return found


def _in_turn(
    bench: Bench,
    passes: dict[str, Callable[[int], None]],
    count: int,
    found: Found,
    first: int,
) -> dict[str, float]:
    """Return the seconds of a pass by each that has not failed, beginning with number ``first``."""
    names = [name for name in passes if name not in found["problems"]]
    seconds = {}
    for name in names[first:] + names[:first]:
        try:
            torch.cuda.synchronize(bench.device)
            began = time.perf_counter()
            passes[name](count)
            torch.cuda.synchronize(bench.device)
            seconds[name] = time.perf_counter() - began
        except Exception as error:
            found["problems"][name] = problem(error)
    return seconds


def _passing(
    bench: Bench, contender: Contender, batches: list[Any], step: Callable[[Any], None]
) -> Callable[[int], None]:
    loader = Cycled(batches)
    epoch = _epochs(bench, contender, loader)

    def run(count: int) -> None:
        loader.count = count
        _each(epoch(), step)

    return run


def _epochs(bench: Bench, contender: Contender, loader: Any) -> Callable[[], Iterable[Any]]:
    """Return a function that gives an epoch's batches: from one contender, or a new one each."""

    def make() -> Any:
        return contender.make(loader, bench.device, dtypes=HALF)

    if contender.one_pass:
        return make
    made: list[Any] = []

    def kept() -> Any:
        if not made:
            made.append(make())
        return made[0]

    return kept


def _each(batches: Iterable[Any], step: Callable[[Any], None]) -> None:
    for images, *_ in batches:
        step(images)


def _copying(bench: Bench, batches: list[Any]) -> Callable[[int], None]:
    target = torch.empty_like(batches[0][0], device=bench.device)

    def copy(count: int) -> None:
        for images, _ in itertools.islice(itertools.cycle(batches), count):
            target.copy_(images, non_blocking=True)

    return copy


def _images(count: int, pinned: bool) -> tuple[Any, Any]:
    images, labels = torch.ones((count, *IMAGE), dtype=torch.uint8), torch.arange(count)
    return (images.pin_memory(), labels.pin_memory()) if pinned else (images, labels)


# -- memory


def memory(bench: Bench, until: float) -> Found:
    """Return how much more torch's allocator holds than before, after some of the epochs."""
    bench.calibrate()
    kept = {pinned: [_images(count, pinned) for count in MIXED_IMAGES] for pinned in (True, False)}
    return {
        contender.name: guarded(partial(_held, bench, contender, kept[contender.pinned]), until)
        for contender in CONTENDERS
    }


def _held(bench: Bench, contender: Contender, batches: list[Any]) -> Found:
    settle(bench)
    torch.cuda.reset_peak_memory_stats(bench.device)
    before = torch.cuda.memory_reserved(bench.device)
    epoch = _epochs(bench, contender, batches)

    def step(images: Any) -> None:
        bench.spin(STEP_SECONDS)  # the host runs ahead, and reads of older batches are queued
        images.amax()

    found: Found = {"reserved_bytes": {}, "peak_bytes": {}}
    for number in range(1, EPOCHS + 1):
        _each(epoch(), step)
        torch.cuda.synchronize(bench.device)
        if number in TOLD_EPOCHS:
            reserved = torch.cuda.memory_reserved(bench.device)
            peak = torch.cuda.max_memory_reserved(bench.device)
            found["reserved_bytes"][str(number)] = reserved - before
            found["peak_bytes"][str(number)] = peak - before
    return found
