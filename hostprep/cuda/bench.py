"""Timing on one CUDA device: copies, spinning kernels, matrix products, on one stream or two.

Everything is queued behind a spinning kernel before the clock starts (as in nvbandwidth), so that
the host's time for queueing is not in the figures. Times come from CUDA events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import inf
from statistics import median
from typing import Any, TypeVar

from hostprep.cuda.torch_errors import in_a_line
from hostprep.cuda.traces import REPEATS, CopyPoint, OverlapTrace
from hostprep.host.gpu_memory import lacks_memory
from hostprep.units import KIB, MIB

Work = Callable[[], Any]
Answer = TypeVar("Answer")

COPY_SECONDS = 0.0075
_GATE_SECONDS = 0.005
_PAGEABLE_REPEATS = 3  # a control, which need not be precise to a percent
_CLOCK_SECONDS = 0.02
_LEAST_CLOCK_SPINS = 5
_CLOCK_DIFFERS = 0.02
_MOST_CLOCK_SECONDS = 1.0
_LOOP_BATCHES = 10
_LEAST_SIDE = 256
_MOST_BYTES = 256 * MIB
SWEEP = tuple(4 * KIB * 4**power for power in range(9))  # 4 KiB to 256 MiB
QUICK_SWEEP = (4 * KIB, MIB, 64 * MIB)


class Bench:
    """One device, which must be torch's current one, and a second stream beside the current one."""

    def __init__(self, index: int) -> None:
        import torch

        self.torch = torch
        self.device = torch.device("cuda", index)
        self.side: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self._cycles_per_s = 1e9
        self._most_bytes = _MOST_BYTES
        self.calibrate()

    def calibrate(self) -> None:
        """Learn the clock rate of the multiprocessors, in which spinning is counted.

        An idle device runs at a sixth of its clock and takes time to rise, so this lasts until two
        figures agree. To be called before everything whose length matters, because the clock sinks
        again.
        """
        until = time.monotonic() + _MOST_CLOCK_SECONDS
        spins, agrees = 0, False
        while spins < _LEAST_CLOCK_SPINS or (not agrees and time.monotonic() < until):
            spins += 1
            seconds, _ = self.timed(main=lambda: self.spin(_CLOCK_SECONDS), gated=False)
            self._cycles_per_s *= _CLOCK_SECONDS / seconds
            agrees = abs(seconds / _CLOCK_SECONDS - 1) < _CLOCK_DIFFERS

    def spin(self, seconds: float) -> None:
        """Queue a kernel that just spins for about ``seconds``, on one thread of the device."""
        cycles = max(1, int(seconds * self._cycles_per_s))
        self.torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]

    def timed(
        self, *, side: Work | None = None, main: Work | None = None, gated: bool = True
    ) -> tuple[float, float]:
        """Return the seconds from the common start to the end of both, and of ``side``'s call.

        ``side`` is queued first, in the bench's own stream; ``main`` in the current one. Raises
        RuntimeError if the device's clock reports a time of zero or less, or no number.
        """
        torch = self.torch
        torch.cuda.synchronize(self.device)
        begin: Any = torch.cuda.Event(enable_timing=True)
        end: Any = torch.cuda.Event(enable_timing=True)
        if gated:
            self.spin(_GATE_SECONDS)
        begin.record()
        call_seconds = 0.0
        if side is not None:
            self.side.wait_event(begin)
            with torch.cuda.stream(self.side):
                called = time.perf_counter()
                side()
                call_seconds = time.perf_counter() - called
        if main is not None:
            main()
        torch.cuda.current_stream(self.device).wait_stream(self.side)
        end.record()
        torch.cuda.synchronize(self.device)
        seconds = begin.elapsed_time(end) / 1e3
        if not 0 < seconds < inf:
            raise RuntimeError(f"by CUDA's events work took {seconds} s, which cannot be")
        return seconds, call_seconds

    def pinned(self, size_bytes: int) -> Any:
        """Return page-locked bytes that were written once."""
        return self.torch.ones(size_bytes, dtype=self.torch.uint8).pin_memory()

    def empty(self, size_bytes: int) -> Any:
        """Return that many bytes on the device."""
        return self.torch.empty(size_bytes, dtype=self.torch.uint8, device=self.device)

    def sweep(
        self, sizes: tuple[int, ...], until: float
    ) -> tuple[tuple[CopyPoint, ...], str | None]:
        """Time pinned copies of each size, the larger ones only until ``until`` (monotonic time).

        Returns them, and why the larger ones are missing, None if none are. If memory ran out,
        later copies are limited to the size that fit. Raises torch's error if there is not even
        memory for the smallest.
        """
        points: list[CopyPoint] = []
        for size_bytes in sizes:
            if points and time.monotonic() > until:
                return tuple(points), "there was no time left"
            try:
                points.append(self._point(size_bytes))
            except RuntimeError as error:
                if not points or not lacks_memory(error):
                    raise
                self._most_bytes = points[-1].size_bytes
                return tuple(points), in_a_line(error)
        return tuple(points), None

    def _point(self, size_bytes: int) -> CopyPoint:
        source, target = self.pinned(size_bytes), self.empty(size_bytes)
        copies = 16 if size_bytes <= 64 * MIB else 4
        work = _copies(source, target, copies)
        self.timed(side=work)
        runs = [self.timed(side=work) for _ in range(3)]
        return CopyPoint(
            size_bytes,
            median(seconds for seconds, _ in runs) / copies,
            median(call for _, call in runs) / copies,
        )

    def under_load(self, bytes_per_s: float, ask: Callable[[], Answer]) -> Answer:
        """Return what ``ask`` answers while about half a second of copies is under way."""
        size_bytes = min(self._most_bytes, 64 * MIB)
        source, target = self.pinned(size_bytes), self.empty(size_bytes)
        with self.torch.cuda.stream(self.side):
            _copies(source, target, max(1, round(0.5 * bytes_per_s / size_bytes)))()
        answer = ask()
        self.side.synchronize()
        return answer

    def overlaps(self, bytes_per_s: float) -> Iterator[OverlapTrace]:
        """Time copies beside compute; yield each arrangement of the checklist as it is timed."""
        self.calibrate()
        size_bytes = min(self._most_bytes, max(MIB, int(bytes_per_s * COPY_SECONDS)))
        source, target = self.pinned(size_bytes), self.empty(size_bytes)
        copy = _copies(source, target, max(1, round(bytes_per_s * COPY_SECONDS / size_bytes)))
        self.timed(side=copy)
        seconds = median(self.timed(side=copy)[0] for _ in range(3))

        def spin() -> None:
            self.spin(seconds)

        def one_after_the_other() -> None:
            copy()
            spin()

        yield self._overlap("same_stream", copy, spin, lambda: self.timed(main=one_after_the_other))
        yield self._overlap("spin", copy, spin)
        yield self._overlap("matmul", copy, self.products(seconds))
        pageable = _copies(self.torch.ones(size_bytes, dtype=self.torch.uint8), target, 1)
        # Not gated: the call itself may block, and would wait for the gate.
        slow = median(self.timed(side=pageable, gated=False)[0] for _ in range(3))
        yield self._overlap(
            "pageable",
            pageable,
            lambda: self.spin(slow),
            gated=False,
            repeats=_PAGEABLE_REPEATS,
        )
        yield self._prefetcher(source, target)

    def _overlap(
        self,
        kind: str,
        copy: Work,
        compute: Work,
        both: Callable[[], tuple[float, float]] | None = None,
        *,
        gated: bool = True,
        repeats: int = REPEATS,
    ) -> OverlapTrace:
        """Time copy, compute and both in turns, so that a drift affects all three."""
        both = both or (lambda: self.timed(side=copy, main=compute, gated=gated))
        self.timed(side=copy, gated=gated)
        self.timed(main=compute, gated=gated)
        both()
        rows = []
        for _ in range(repeats):
            alone, _ = self.timed(side=copy, gated=gated)
            computed, _ = self.timed(main=compute, gated=gated)
            rows.append((alone, computed, *both()))
        copies, computes, boths, calls = zip(*rows, strict=True)
        return OverlapTrace(kind, copies, computes, boths, calls)

    def products(self, seconds: float) -> Work:
        """Return matrix products that take about ``seconds``, in few launches."""
        torch = self.torch
        side = 4096
        while True:
            try:
                left = torch.rand(side, side, device=self.device)
                right, result = torch.rand_like(left), torch.empty_like(left)
            except torch.cuda.OutOfMemoryError:
                if side <= _LEAST_SIDE:
                    raise
                side //= 2
                continue

            def product(a: Any = left, b: Any = right, out: Any = result) -> None:
                torch.mm(a, b, out=out)

            self.timed(main=product)
            one = median(self.timed(main=product)[0] for _ in range(3))
            if one <= seconds / 4 or side <= _LEAST_SIDE:
                break
            side //= 2
        count = max(1, round(seconds / one))

        def products() -> None:
            for _ in range(count):
                product()

        return products

    def _prefetcher(self, source: Any, target: Any) -> OverlapTrace:
        """Time a prefetcher's loop over page-locked batches, and its parts."""
        from hostprep.cuda.prefetcher import CudaPrefetcher

        prefetcher = CudaPrefetcher([source] * _LOOP_BATCHES, self.device.index)
        copies = _copies(source, target, _LOOP_BATCHES)
        self.calibrate()
        self.timed(side=copies)
        one = median(self.timed(side=copies)[0] for _ in range(3)) / _LOOP_BATCHES

        def spins() -> None:
            for _ in range(_LOOP_BATCHES):
                self.spin(one)

        def loop() -> None:
            for _ in prefetcher:
                self.spin(one)

        return self._overlap("prefetcher", copies, spins, lambda: self.timed(main=loop))


def _copies(source: Any, target: Any, count: int) -> Work:
    """Return ``count`` copies, queued in the stream that is current when it is called."""

    def copies() -> None:
        for _ in range(count):
            target.copy_(source, non_blocking=True)

    return copies
