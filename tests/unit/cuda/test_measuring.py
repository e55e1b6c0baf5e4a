"""The measuring code, run in virtual time: it reads what the model does, stage by stage.

Every figure here is made. What a real GPU does is for ``make test-gpu``.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hostprep.cuda import CudaPrefetcher, controls, delivery, training
from hostprep.cuda.bench import Bench
from hostprep.cuda.judge import judge
from hostprep.cuda.judge_overlap import phi_of
from hostprep.cuda.results import Status
from hostprep.cuda.traces import Trace, TrainingTrace
from hostprep.errors import Inconclusive
from hostprep.system import page_cache
from hostprep.units import KIB, MIB
from tests.unit.cuda import made
from tests.unit.cuda.virtual_cuda import (
    ILLEGAL_ACCESS,
    OUT_OF_MEMORY,
    AcceleratorError,
    VirtualCuda,
    raising,
)

# What torch says of a machine without an accelerator is no news here.
pytestmark = pytest.mark.filterwarnings("ignore:.pin_memory. argument is set")


def test_spinning_is_calibrated(cuda: VirtualCuda) -> None:
    bench = Bench(0)
    seconds, _ = bench.timed(main=lambda: bench.spin(0.004))
    assert seconds == pytest.approx(0.004, rel=1e-3)


def test_spinning_is_calibrated_while_the_clock_rises(cuda: VirtualCuda) -> None:
    rising = itertools.chain([345e6] * 3, [900e6, 1400e6], itertools.repeat(1980e6))
    cuda.clock_hz = lambda: next(rising)
    bench = Bench(0)
    assert bench.timed(main=lambda: bench.spin(0.004))[0] == pytest.approx(0.004, rel=1e-3)
    cuda.clock_hz = lambda: 345e6  # it has sunk again
    bench.calibrate()
    assert bench.timed(main=lambda: bench.spin(0.004))[0] == pytest.approx(0.004, rel=1e-3)


def test_bandwidth_is_read_as_it_is_and_larger_sizes_end_with_the_time(cuda: VirtualCuda) -> None:
    points, ended = Bench(0).sweep((4 * KIB, MIB), time.monotonic() + 60)
    assert ended is None
    assert [point.size_bytes for point in points] == [4 * KIB, MIB]
    for point in points:
        assert point.size_bytes / point.seconds == pytest.approx(1e9, rel=1e-3)
    points, ended = Bench(0).sweep((4 * KIB, MIB), time.monotonic() - 1)
    assert len(points) == 1 and ended == "there was no time left"


def test_a_sweep_without_memory_for_its_largest_copies_has_the_others(
    cuda: VirtualCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, real = Bench(0), Bench.pinned

    def pinned(bench: Bench, size_bytes: int) -> Any:
        if size_bytes > full:
            raise AcceleratorError("CUDA error: out of memory\nand advice")
        return real(bench, size_bytes)

    monkeypatch.setattr(Bench, "pinned", pinned)
    full = MIB
    points, ended = bench.sweep((4 * KIB, MIB, 4 * MIB), time.monotonic() + 60)
    assert [point.size_bytes for point in points] == [4 * KIB, MIB]
    assert ended == "CUDA error: out of memory"
    # What comes after them has no more room than they had.
    assert bench.under_load(1e9, lambda: True)
    assert len(list(bench.overlaps(1e9))) == 5
    full = 0
    with pytest.raises(RuntimeError, match="out of memory"):
        bench.sweep((4 * KIB, MIB), time.monotonic() + 60)


def test_matrices_are_of_a_size_that_there_is_memory_for(
    cuda: VirtualCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, real = Bench(0), torch.rand
    room = 1000

    def rand(side: int, *more: int, device: Any) -> torch.Tensor:
        if side > room:
            raise OUT_OF_MEMORY
        return real(side, *more, device=device)

    monkeypatch.setattr(torch, "rand", rand)
    assert bench.timed(main=bench.products(0.01))[0] == pytest.approx(0.01, rel=0.05)
    room = 100
    with pytest.raises(torch.cuda.OutOfMemoryError):
        bench.products(0.01)


def test_a_device_that_overlaps_is_seen_to(cuda: VirtualCuda) -> None:
    found = {trace.kind: trace for trace in Bench(0).overlaps(1e9)}
    assert phi_of(found["same_stream"]) == pytest.approx(0, abs=0.01)
    assert phi_of(found["spin"]) == pytest.approx(1, abs=0.01)
    assert phi_of(found["matmul"]) > 0.9
    assert phi_of(found["pageable"]) == pytest.approx(0, abs=0.01)
    # Of ten batches the first two's copies have nothing to hide behind.
    assert phi_of(found["prefetcher"]) == pytest.approx(0.8, abs=0.02)
    statuses = {
        check.status
        for check in judge(Trace("cuda:0", "made", True, overlaps=tuple(found.values())))
        if check.name.startswith("overlap")
    }
    assert statuses == {Status.PASS}


def test_a_device_whose_copies_and_kernels_take_turns_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    VirtualCuda(monkeypatch, overlaps=False)
    trace = Trace("cuda:0", "made", True, overlaps=tuple(Bench(0).overlaps(1e9)))
    found = {check.name: check.status for check in judge(trace)}
    assert found["overlap.control"] is Status.PASS
    assert found["overlap.spin"] is found["overlap.matmul"] is Status.FAIL
    assert found["overlap.prefetcher"] is Status.FAIL


@pytest.mark.parametrize("case", delivery.CASES, ids=lambda case: case.name)
def test_every_arrangement_of_delivery(cuda: VirtualCuda, small: None, case: delivery.Case) -> None:
    trace = delivery.check(Bench(0), case)
    assert trace.problem is None and trace.mismatches == 0
    expected = case.batches if case.stop_after is None else case.stop_after
    assert trace.batches == trace.expected_batches == expected
    assert trace.values > 0


@pytest.mark.parametrize("form", ["tensor", "dict", "tuple"])
def test_one_wrong_value_is_seen(cuda: VirtualCuda, small: None, form: str) -> None:
    bench = Bench(0)
    cuda.spoil = cuda.copies + 20
    assert delivery.check(bench, delivery.Case("x", form=form)).mismatches == 1


def test_what_cuda_says_of_a_broken_delivery_is_one_line(
    cuda: VirtualCuda, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(0)
    monkeypatch.setattr(delivery, "_scribble", raising(AcceleratorError(ILLEGAL_ACCESS)))
    trace = delivery.check(bench, delivery.Case("x"))
    assert trace.problem == "CUDA error: an illegal memory access was encountered"


def test_a_loader_that_fails(cuda: VirtualCuda, small: None) -> None:
    trace = delivery.check_failing_loader(Bench(0))
    assert (trace.batches, trace.mismatches) == (3, 0)


def test_what_inference_fetched_is_for_training_as_well(cuda: VirtualCuda) -> None:
    prefetcher = CudaPrefetcher([torch.ones(4), torch.ones(4)], 0, depth=1)
    with torch.inference_mode():
        kept = list(prefetcher)
    weight = torch.ones(4, requires_grad=True)
    for batch in (*kept, *prefetcher):
        assert not batch.is_inference()
        (batch * weight).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None and weight.grad.tolist() == [4.0] * 4


def test_gradients_come_as_they_would_without_a_prefetcher(cuda: VirtualCuda) -> None:
    wanting = torch.ones(4, requires_grad=True)
    ((leaf, computed, whole),) = CudaPrefetcher(
        [(wanting, wanting * 3, torch.arange(4))], 0, dtypes={torch.float32: torch.float64}
    )
    (leaf * computed + whole).sum().backward()
    assert leaf.is_leaf and leaf.grad.tolist() == [3.0] * 4
    assert wanting.grad is not None and wanting.grad.tolist() == [3.0] * 4


def test_what_carries_more_than_its_values_keeps_it(cuda: VirtualCuda) -> None:
    class Boxes(torch.Tensor):
        pass

    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    ((boxes, many),) = CudaPrefetcher([(torch.ones(2, 4).as_subclass(Boxes), nested)], 0)
    assert isinstance(boxes, Boxes) and many.is_nested


def test_faults_that_do_not_show_are_said_not_to_have_been_provoked(
    cuda: VirtualCuda, small: None
) -> None:
    # Here contents move in the host's order, so a missing wait cannot show in them.
    found = list(delivery.provoke(Bench(0)))
    assert [control.mutant for control in found] == [kind.__name__ for kind in controls.MUTANTS]
    assert {control.mismatches for control in found} == {0}


def test_epochs_are_watched(cuda: VirtualCuda, small: None) -> None:
    found = delivery.epochs(Bench(0))
    assert len(found) == 5 and found[1].reserved_bytes == 64 << 20
    assert len({(epoch.threads, epoch.descriptors) for epoch in found}) == 1


def test_wrong_bytes_that_came_before_memory_ran_out_are_wrong(
    cuda: VirtualCuda, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, steps = Bench(0), itertools.count()
    real = delivery._scribble

    def scribble(bench: Bench) -> Any:
        if next(steps) == 30:
            raise OUT_OF_MEMORY
        return real(bench)

    monkeypatch.setattr(delivery, "_scribble", scribble)
    cuda.spoil = cuda.copies + 20
    trace = delivery.check(bench, delivery.Case("x"))
    assert (trace.batches, trace.mismatches) == (31, 1)


def test_what_breaks_beside_a_loader_that_fails_is_a_delivery_that_failed(
    cuda: VirtualCuda, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(0)
    monkeypatch.setattr(torch.Tensor, "copy_", raising(AcceleratorError(ILLEGAL_ACCESS)))
    trace = delivery.check_failing_loader(bench)
    assert trace.mismatches is None
    assert trace.problem == "CUDA error: an illegal memory access was encountered"
    monkeypatch.setattr(torch.Tensor, "copy_", raising(OUT_OF_MEMORY))
    with pytest.raises(RuntimeError, match="out of memory"):
        delivery.check_failing_loader(bench)


def test_what_the_first_batch_takes_is_told_apart(cuda: VirtualCuda) -> None:
    def batches() -> Iterator[int]:
        for seconds in (0.5, 0.0, 0.25):
            cuda.host += seconds
            yield 1
            cuda._synchronize()

    bench = Bench(0)
    _, first, gaps = training._timed_pass(bench, batches(), lambda _: bench.spin(0.01))
    assert (first, gaps) == (pytest.approx(0.5), pytest.approx(0.25))


def test_and_so_is_what_the_prefetcher_takes_to_be_ahead(cuda: VirtualCuda) -> None:
    def batches() -> Iterator[torch.Tensor]:
        for seconds in (0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.3):
            cuda.host += seconds
            yield torch.ones(4)

    bench = Bench(0)
    prefetcher = CudaPrefetcher(batches(), 0, depth=2)

    def step(_: Any) -> None:
        bench.spin(0.15)
        cuda._synchronize()

    _, first, gaps = training._timed_pass(bench, prefetcher, step)
    # The loader is waited for by the first, twice by the two after it, and by each that follows.
    assert (first, gaps) == (pytest.approx(0.5 + 4 * 0.1), pytest.approx(0.1 + 0.3))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_all_copies_but_the_first_two_are_hidden_whatever_the_depth(
    cuda: VirtualCuda, depth: int
) -> None:
    source, steps = torch.zeros(250_000).pin_memory(), 20  # its copy takes 1 ms

    def loop() -> None:
        for _ in CudaPrefetcher([source] * steps, 0, depth=depth):
            cuda.work("compute", 1e-3)

    cuda._synchronize()
    began = cuda.host
    loop()
    cuda._synchronize()
    assert cuda.host - began == pytest.approx((steps + 2) * 1e-3)


def test_rounds_of_training_end_with_the_time(
    cuda: VirtualCuda, small: None, tmp_path: Path
) -> None:
    now = time.monotonic()
    trace = training.train(Bench(0), str(tmp_path), "made", 1e9, True, now, in_memory=True)
    assert trace.rounds == 1
    assert trace.storage == "made"  # and nothing of a cache, which RAM has none of


def test_sample_files_go_nowhere_else_where_their_folder_is_exchanged(
    cuda: VirtualCuda, small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the owner of the folder that was given: root must not be led to write elsewhere."""
    given, victim = tmp_path / "given", tmp_path / "victim"
    given.mkdir()
    victim.mkdir()
    (victim / "0.raw").write_text("precious")
    urandom = os.urandom

    def exchanging(size: int) -> bytes:
        if size == training._SAMPLE_BYTES:
            monkeypatch.setattr(os, "urandom", urandom)
            (made,) = given.iterdir()
            made.rename(given / "moved")
            made.symlink_to(victim)
        return urandom(size)

    monkeypatch.setattr(os, "urandom", exchanging)
    trace = training.train(Bench(0), str(given), "made", 1e9, True, 0, in_memory=False)
    assert trace.samples > 0
    assert os.listdir(victim) == ["0.raw"] and (victim / "0.raw").read_text() == "precious"
    assert os.listdir(given / "moved") == []


def train_cold(folder: Path, *, seconds: float = 100) -> TrainingTrace:
    until = time.monotonic() + seconds
    return training.train(Bench(0), str(folder), "made", 1e9, True, until, in_memory=False)


def test_files_of_a_storage_are_not_in_the_page_cache_when_they_are_timed(
    cuda: VirtualCuda, small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[float | None] = []
    cold, real = set[str](), training._loading_seconds

    def evict(file: str, *, written_out: bool) -> None:
        page_cache.evict(file, written_out=written_out)
        cold.add(file)

    def loading(loader: Any) -> float:
        told.append(len(cold.intersection(loader.dataset.files)))
        cold.clear()
        return real(loader)

    def timed_pass(bench: Any, batches: Any, step: Any) -> tuple[float, float, float]:
        if isinstance(batches, CudaPrefetcher):
            told.append(len(cold))
            cold.clear()
        return timed(bench, batches, step)

    timed = training._timed_pass
    spied = SimpleNamespace(
        evict=evict, resident_share=lambda _: 0.0, write_out=page_cache.write_out
    )
    monkeypatch.setattr(training, "page_cache", spied)
    monkeypatch.setattr(training, "_loading_seconds", loading)
    monkeypatch.setattr(training, "_timed_pass", timed_pass)
    trace = train_cold(tmp_path)
    # The pass to warm up is not timed. One sizes the step, then two a round read the storage.
    assert told[1:] == [32] * (1 + 2 * trace.rounds)
    assert trace.storage == "made, not from the page cache"


@pytest.mark.parametrize(
    ("share", "words"), [(0.8, "80% of it came from the page cache"), (None, "cannot be seen")]
)
def test_what_stays_in_the_page_cache_is_said(
    cuda: VirtualCuda,
    small: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    share: float | None,
    words: str,
) -> None:
    monkeypatch.setattr(training.page_cache, "resident_share", lambda _: share)
    trace = train_cold(tmp_path, seconds=0)
    assert words in trace.storage
    (rate,) = (c for c in judge(made.trace(training=trace)) if c.name == "training.rate")
    assert words in rate.message


def test_of_a_slow_storage_fewer_files_are_read(
    small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [str(tmp_path / str(number)) for number in range(8 * 40)]
    for name in names:
        Path(name).touch()
    now = itertools.count(0.0, 0.5)
    monkeypatch.setattr(training.time, "perf_counter", lambda: next(now))
    # 32 files in half a second, and so a batch of 8 in an eighth; a round reads four times.
    monkeypatch.setattr(training.time, "monotonic", lambda: 100.0)
    assert training._batches_until(names, 110.0) == 20
    assert training._batches_until(names, 101.0) == 8
    assert training._batches_until(names, 200.0) == 40


def test_to_a_slow_storage_fewer_files_are_written(
    small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = itertools.count(0.0, 1.0)  # a second a file
    monkeypatch.setattr(training.time, "monotonic", lambda: next(now))
    files = training._written(str(tmp_path), 40, 301.0)
    assert len(files) == 8 * 13 == len(list(tmp_path.iterdir()))
    with pytest.raises(Inconclusive, match="writing 20 sample files took 21 s"):
        training._written(str(tmp_path), 40, 0.0)
