"""Do the right bytes arrive? Every value of every batch is compared on the device when it is used.

The cases provoke what goes wrong if synchronisation is missing: a consumer that reads late, copies
that arrive late, and memory that is reused at once.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

from hostprep.cuda import controls
from hostprep.cuda.bench import Bench
from hostprep.cuda.prefetcher import CudaPrefetcher
from hostprep.cuda.torch_backend import TorchCudaBackend
from hostprep.cuda.torch_errors import in_a_line
from hostprep.cuda.traces import EPOCHS, ControlTrace, DeliveryTrace, EpochTrace
from hostprep.dataclass import dataclass
from hostprep.host.gpu_memory import lacks_memory

_STEP = 1_000_003
_POISON = -7
_SIDE = 512  # a batch of 16 rows of 512 x 32 values: 1 MiB as int32
_ROWS, _TAIL = 16, 5
_LATE_SECONDS = 0.002
_END: Any = object()


@dataclass(frozen=True, slots=True)
class Case:
    """One case; ``late_*`` are seconds of spinning before each use or each copy.

    ``form`` is tensor, dict or tuple. ``stop_after`` leaves the loop early.
    """

    name: str
    form: str = "tensor"
    pinned: bool = False
    depth: int = 1
    late_use: float = 0.0
    late_copy: float = 0.0
    stop_after: int | None = None
    batches: int = 54


CASES = (
    Case("tensors"),
    Case("pinned", pinned=True, depth=2),
    Case("dicts_converted", form="dict", depth=2),
    Case("tuples", form="tuple", pinned=True, depth=3),
    Case("slow_consumer", late_use=_LATE_SECONDS),
    Case("slow_consumer_deep", form="tuple", depth=4, late_use=_LATE_SECONDS),
    Case("slow_copies", late_copy=_LATE_SECONDS),
    Case("early_end", late_copy=_LATE_SECONDS, depth=3, stop_after=3),
    Case("empty", batches=0),
)
# What provokes each fault: copies that arrive late, a consumer that reads late, an early end.
_PROVOKED = (
    (controls.NoWaitBeforeUse, Case("slow_copies", late_copy=_LATE_SECONDS)),
    (controls.NoWaitBack, Case("slow_consumer", late_use=_LATE_SECONDS)),
    (
        controls.NoLifetime,
        Case("early_end", late_copy=5 * _LATE_SECONDS, depth=3, stop_after=3),
    ),
    (controls.EarlyRefill, Case("slow_copies", late_copy=_LATE_SECONDS)),
)


class _OnPurpose(Exception):
    """What only the failing loader raises."""


class _LateBackend(TorchCudaBackend):
    """Copies that begin late: a spinning kernel precedes each."""

    def __init__(self, bench: Bench, seconds: float, dtypes: Any, channels_last: bool) -> None:
        super().__init__(bench.device.index, dtypes, channels_last)
        self._bench, self._seconds = bench, seconds

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        if self._seconds:
            with self._bench.torch.cuda.stream(stream):
                self._bench.spin(self._seconds)
        super().copy(target, source, stream)


class _Loader:
    """Batches with a pattern that identifies each value and its batch; the last one is smaller."""

    def __init__(self, torch: Any, case: Case) -> None:
        self._torch, self._case = torch, case

    def __len__(self) -> int:
        return self._case.batches

    def __iter__(self) -> Iterator[Any]:
        torch, case = self._torch, self._case
        for number in range(case.batches):
            rows = _TAIL if number == case.batches - 1 else _ROWS
            values = torch.arange(rows * _SIDE * 32, dtype=torch.int32) + number * _STEP
            if case.pinned:
                values = values.pin_memory()
            if case.form == "tensor":
                yield values
            elif case.form == "tuple":
                yield number, [values, str(number)]
            else:
                image = values.to(torch.uint8).reshape(rows, 32, 16, _SIDE // 16)
                yield {"number": number, "values": values, "image": image}


def check(
    bench: Bench, case: Case, kind: type[CudaPrefetcher[Any]] = CudaPrefetcher
) -> DeliveryTrace:
    """Return what a case delivered, with ``kind`` as the prefetcher.

    Raises torch's error if memory runs out, unless values were wrong before that.
    """
    torch = bench.torch
    backend = _LateBackend(
        bench, case.late_copy, {torch.uint8: torch.float16}, channels_last=case.form == "dict"
    )
    prefetcher = kind(_Loader(torch, case), depth=case.depth, backend=backend)
    expected = case.batches if case.stop_after is None else case.stop_after
    wrong = torch.zeros((), dtype=torch.int64, device=bench.device)
    values = came = 0
    iterator = iter(prefetcher)
    try:
        # No `for` loop: its variable keeps a batch alive until the next one has been allocated.
        while came < expected and (batch := next(iterator, _END)) is not _END:
            if case.late_use:
                bench.spin(case.late_use)
            bad, count = _compare(torch, batch, came)
            wrong += bad
            values += count
            came += 1
            del batch, bad
            _scribble(bench)
        batch = None if case.stop_after is not None else next(iterator, _END)
        if batch is not None and batch is not _END:
            came += 1
        del batch, iterator
        # An early end leaves copies under way: they must not overwrite what is written now.
        papers = [_scribble(bench) for _ in range(case.depth + 2)]
        if case.late_copy:
            bench.spin((case.depth + 2) * case.late_copy)
        for paper in papers:
            wrong += (paper != _POISON).sum()
            values += paper.numel()
        torch.cuda.synchronize(bench.device)
    except RuntimeError as error:
        if not lacks_memory(error):
            return DeliveryTrace(case.name, came, expected, values, None, in_a_line(error))
        if mismatches := int(wrong.item()):
            return DeliveryTrace(case.name, came, expected, values, mismatches)
        raise  # no fault of the delivery
    return DeliveryTrace(case.name, came, expected, values, int(wrong.item()))


def _compare(torch: Any, batch: Any, number: int) -> tuple[Any, int]:
    """Queue the comparison on the consumer's stream; return its error count and the total."""
    image = None
    if isinstance(batch, dict):
        batch, image = (batch["number"], [batch["values"], str(batch["number"])]), batch["image"]
    if isinstance(batch, tuple):
        said, (values, name) = batch
        if (said, name) != (number, str(number)):
            raise RuntimeError(f"batch {said} came in the place of batch {number}")
    else:
        values = batch
    expected = torch.arange(values.numel(), dtype=torch.int32, device=values.device)
    expected += number * _STEP
    bad = (values != expected).sum()
    count = values.numel()
    if image is not None:
        if image.dtype != torch.float16 or not image.is_contiguous(
            memory_format=torch.channels_last
        ):
            raise RuntimeError("the image did not come as float16, channels last")
        bad = bad + (image != expected.to(torch.uint8).reshape(image.shape)).sum()
        count += image.numel()
    return bad, count


def _scribble(bench: Bench) -> Any:
    """Allocate a batch's size from the consumer's memory and write all of it."""
    torch = bench.torch
    return torch.full((_ROWS * _SIDE * 32,), _POISON, dtype=torch.int32, device=bench.device)


def check_failing_loader(bench: Bench) -> DeliveryTrace:
    """Check that a loader's exception comes after all the batches before it."""
    case = Case("failing_loader", batches=3)

    def failing() -> Iterator[Any]:
        yield from _Loader(bench.torch, case)
        raise _OnPurpose

    came = 0
    try:
        for _ in CudaPrefetcher(failing(), bench.device.index, depth=2):
            came += 1
        problem = "the exception did not come"
    except _OnPurpose:
        return DeliveryTrace(case.name, came, case.batches, 0, 0)
    except RuntimeError as error:
        if lacks_memory(error):
            raise
        problem = in_a_line(error)
    return DeliveryTrace(case.name, came, case.batches, 0, None, problem)


def provoke(bench: Bench) -> Iterator[ControlTrace]:
    """Yield how many wrong values each deliberately broken prefetcher delivers."""
    for kind, case in _PROVOKED:
        trace = check(bench, case, kind)
        bench.torch.cuda.synchronize(bench.device)
        yield ControlTrace(kind.__name__, trace.mismatches or 0)


def epochs(bench: Bench) -> tuple[EpochTrace, ...]:
    """Return the resources held after each of ``EPOCHS`` epochs with one prefetcher."""
    torch = bench.torch
    case = Case("epochs", form="dict", depth=2)
    backend = TorchCudaBackend(bench.device.index, {torch.uint8: torch.float16}, True)
    prefetcher: CudaPrefetcher[Any] = CudaPrefetcher(
        _Loader(torch, case), depth=case.depth, backend=backend
    )
    found = []
    for _ in range(EPOCHS):
        for number, batch in enumerate(prefetcher):
            _compare(torch, batch, number)
        del batch
        gc.collect()
        torch.cuda.synchronize(bench.device)
        found.append(
            EpochTrace(
                torch.cuda.memory_reserved(bench.device),
                len(os.listdir("/proc/self/task")),
                len(os.listdir("/proc/self/fd")),
            )
        )
    return tuple(found)
