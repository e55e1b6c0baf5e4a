"""Does a contender deliver what the loader gave, and what does it do in an unusual epoch?

Wrong values are provoked in arrangements in which missing synchronisation shows, as in
``hostprep.cuda.delivery``, and the deliberately broken prefetchers show whether that works on the
device at hand. If a contender raises an exception, that is its result, in one line, and the rest
goes on; the same if there was no time left for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.prefetchers.peers import CONTENDERS, CONTROLS, Contender, nothing
from hostprep.cuda.bench import Bench
from hostprep.cuda.torch_errors import in_a_line

Found = dict[str, Any]

ROWS, TAIL, ROW_VALUES = 16, 5, 512 * 32  # a batch of 1 MiB as int32
BATCHES = 54
STEP, POISON = 1_000_003, -7
LATE_SECONDS = 0.002
PAPERS = 5


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How wrong values are provoked.

    ``late_use`` and ``late_copy`` are seconds of spinning before each. ``keeps_name``: the loop is
    a plain ``for``, whose variable keeps a batch alive until the next one is there; otherwise a
    batch is released after its use. ``stop_after`` leaves the loop early.
    """

    name: str
    late_use: float = 0.0
    late_copy: float = 0.0
    keeps_name: bool = False
    stop_after: int | None = None


ARRANGEMENTS = (
    Arrangement("late copies", late_copy=LATE_SECONDS),
    Arrangement("slow consumer", late_use=LATE_SECONDS),
    Arrangement("slow consumer, plain for", late_use=LATE_SECONDS, keeps_name=True),
    Arrangement("early end", late_copy=5 * LATE_SECONDS, stop_after=3),
)


def guarded(what: Callable[[], Found], until: float) -> Found:
    """Return the findings, or the ``problem`` that prevented them."""
    if time.monotonic() > until:
        return {"problem": "there was no time left"}
    try:
        return what()
    except Exception as error:
        return {"problem": problem(error)}


def problem(error: Exception) -> str:
    return f"{type(error).__name__}: {in_a_line(error)}"


def settle(bench: Bench) -> None:
    """Wait for the device and make torch release unused memory, so that all begin alike.

    Without a garbage collection, which takes a tenth of a second with torch loaded: no contender is
    part of a reference cycle.
    """
    torch.cuda.synchronize(bench.device)
    torch.cuda.empty_cache()


# -- wrong values


class Patterns:
    """Fresh batches whose values identify their place and batch; the last one is smaller."""

    def __init__(self, count: int, pinned: bool) -> None:
        self.count, self.pinned = count, pinned

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for number in range(self.count):
            rows = TAIL if number == self.count - 1 else ROWS
            values = torch.arange(rows * ROW_VALUES, dtype=torch.int32) + number * STEP
            labels = torch.full((rows,), number)
            yield (values.pin_memory(), labels.pin_memory()) if self.pinned else (values, labels)


def values(bench: Bench, until: float) -> Found:
    """Return the wrong values by arrangement and contender, deliberately broken ones included."""
    bench.calibrate()
    # Torch keeps released page-locked memory. Locking more of it during a trial may wait for the
    # device, and hide the fault.
    list(Patterns(BATCHES + PAPERS, pinned=True))
    found: Found = {}
    for arrangement in ARRANGEMENTS:
        found[arrangement.name] = {}
        for contender in (*CONTENDERS, *CONTROLS):
            found[arrangement.name][contender.name] = guarded(
                partial(wrong_values, bench, contender, arrangement), until
            )
    return found


def wrong_values(bench: Bench, contender: Contender, arrangement: Arrangement) -> Found:
    """Compare every value on the device, in the consumer's stream, as in real use."""
    settle(bench)
    late = arrangement.late_copy
    made = contender.make(
        Patterns(BATCHES, contender.pinned),
        bench.device,
        before_copy=(lambda: bench.spin(late)) if late else nothing,
    )
    wrong = torch.zeros((), dtype=torch.int64, device=bench.device)
    compared = came = 0
    iterator = iter(made)
    expected = arrangement.stop_after or BATCHES
    batch: Any = None
    while came < expected:
        if not arrangement.keeps_name:
            batch = None
        if (batch := next(iterator, None)) is None:
            break
        if arrangement.late_use:
            bench.spin(arrangement.late_use)
        compared += batch[0].numel() + batch[1].numel()
        wrong += _differing(batch, came)
        came += 1
        if not arrangement.keeps_name:
            batch = None
        _paper(bench)
    rest = 0 if arrangement.stop_after else sum(1 for _ in iterator)
    del batch, iterator, made
    # An early end leaves copies under way: they must not overwrite what is written now.
    papers = [_paper(bench) for _ in range(PAPERS)]
    if late:
        bench.spin(PAPERS * late)
    for paper in papers:
        wrong += (paper != POISON).sum()
        compared += paper.numel()
    torch.cuda.synchronize(bench.device)
    found: Found = {"batches": came + rest, "values": compared, "wrong": int(wrong.item())}
    if came + rest != expected:
        found["problem"] = f"{came + rest} batches came of {expected}"
    return found


def _differing(batch: tuple[Any, Any], number: int) -> Any:
    values, labels = batch
    expected = torch.arange(values.numel(), dtype=torch.int32, device=values.device)
    expected += number * STEP
    return (values != expected).sum() + (labels != number).sum()


def _paper(bench: Bench) -> Any:
    """Allocate a batch's size from the consumer's memory and write all of it."""
    return torch.full((ROWS * ROW_VALUES,), POISON, dtype=torch.int32, device=bench.device)


# -- facts


class OnPurpose(Exception):
    """What only the failing loader raises."""


class Few:
    """A loader of a few small batches, which may fail after them."""

    def __init__(self, count: int, pinned: bool, fails: bool = False) -> None:
        self.count, self.pinned, self.fails = count, pinned, fails

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for number in range(self.count):
            made = torch.full((4,), number), torch.full((1,), number)
            yield (made[0].pin_memory(), made[1].pin_memory()) if self.pinned else made
        if self.fails:
            raise OnPurpose


def facts(bench: Bench, until: float) -> Found:
    """Return what each contender does if an epoch is not just a plain pass."""
    return {
        contender.name: {
            fact.__name__.strip("_"): guarded(partial(_told, fact, bench, contender), until)
            for fact in (_again, _has_len, _empty, _before_error, _threads_left)
        }
        for contender in CONTENDERS
    }


def _told(fact: Callable[[Bench, Contender], Any], bench: Bench, contender: Contender) -> Found:
    return {"found": fact(bench, contender)}


def _made(bench: Bench, contender: Contender, count: int, fails: bool = False) -> Any:
    return contender.make(Few(count, contender.pinned, fails), bench.device)


def _again(bench: Bench, contender: Contender) -> bool:
    made = _made(bench, contender, 3)
    return [sum(1 for _ in made) for _ in range(2)] == [3, 3]


def _has_len(bench: Bench, contender: Contender) -> bool:
    try:
        return len(_made(bench, contender, 3)) == 3
    except TypeError:
        return False


def _empty(bench: Bench, contender: Contender) -> bool:
    return sum(1 for _ in _made(bench, contender, 0)) == 0


def _before_error(bench: Bench, contender: Contender) -> str:
    """Return how many of its batches came before the loader's exception."""
    came = 0
    try:
        for _ in _made(bench, contender, 3, fails=True):
            came += 1
    except OnPurpose:
        return f"{came} of 3"
    return "the exception did not come"


def _threads_left(bench: Bench, contender: Contender) -> int:
    before = threading.active_count()
    made = _made(bench, contender, 20)
    for _ in made:
        break
    del made, _
    time.sleep(0.1)  # for a thread that was told to end
    torch.cuda.synchronize(bench.device)
    return threading.active_count() - before
