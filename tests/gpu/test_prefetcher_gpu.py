"""The prefetcher on the device: contents, overlap, what it leaves, and faults that must show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from hostprep.cuda import CudaPrefetcher, controls, delivery
from hostprep.cuda.bench import Bench
from hostprep.cuda.judge import GROWTH_BYTES
from hostprep.cuda.judge_overlap import PHI_MOST, PHI_PASS, PHI_SAME_STREAM, phi_of


@pytest.fixture(scope="module")
def bench() -> Bench:
    torch.cuda.set_device(0)
    return Bench(0)


@pytest.mark.parametrize("case", delivery.CASES, ids=lambda case: case.name)
def test_every_byte_arrives(bench: Bench, case: delivery.Case) -> None:
    trace = delivery.check(bench, case)
    assert trace.problem is None
    assert trace.mismatches == 0 and trace.batches == trace.expected_batches


def test_each_mutant_is_provoked_or_said_not_to_have_been(bench: Bench) -> None:
    found = {control.mutant: control.mismatches for control in delivery.provoke(bench)}
    assert set(found) == {kind.__name__ for kind in controls.MUTANTS}
    silent = [name for name, mismatches in found.items() if not mismatches]
    if silent:
        pytest.xfail(f"not provoked, which does not show them safe: {silent}")


def test_copies_overlap_and_one_stream_does_not(bench: Bench) -> None:
    (point,), _ = bench.sweep((64 << 20,), 0.0)
    rate = point.size_bytes / point.seconds
    phis = {trace.kind: phi_of(trace) for trace in bench.overlaps(rate)}
    assert abs(phis.pop("same_stream")) < PHI_SAME_STREAM
    del phis["pageable"]
    assert min(phis.values()) >= PHI_PASS and max(phis.values()) <= PHI_MOST


def test_epochs_are_flat(bench: Bench) -> None:
    second, *_, last = delivery.epochs(bench)[1:]
    assert last.reserved_bytes - second.reserved_bytes <= GROWTH_BYTES
    assert (last.threads, last.descriptors) == (second.threads, second.descriptors)


def test_all_kinds_of_batches_arrive_where_they_should() -> None:
    sparse = torch.eye(3).to_sparse()
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    batch: dict[str, Any] = {
        "channels": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "view": torch.arange(24).reshape(4, 6)[:, ::2],
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(1.5),
        "gradient": torch.ones(2, requires_grad=True),
        "pinned": torch.arange(8).pin_memory(),
        "there": torch.ones(2, device="cuda"),
        "complex": torch.ones(3, dtype=torch.complex64).conj(),
        "sparse": sparse,
        "packed": packed,
        "name": "x",
    }
    (moved,) = CudaPrefetcher([batch])
    for key, value in batch.items():
        if isinstance(value, torch.Tensor):
            assert moved[key].device.type == "cuda", key
            assert moved[key].requires_grad == value.requires_grad, key
            assert torch.equal(moved[key].to_dense().cpu(), value.to_dense().cpu()), key
    assert moved["channels"].is_contiguous(memory_format=torch.channels_last)
    assert moved["there"] is batch["there"] and moved["name"] == "x"
    assert isinstance(moved["packed"], PackedSequence) and moved["packed"].data.is_cuda


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_consumer_that_changes_its_stream(bench: Bench, depth: int) -> None:
    values = [torch.full((1 << 20,), number, dtype=torch.int32) for number in range(24)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]  # type: ignore[no-untyped-call]
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    iterator = iter(CudaPrefetcher(values, depth=depth))
    for number in range(len(values)):
        now, after = streams[number % 2], streams[(number + 1) % 2]
        with torch.cuda.stream(now):
            batch = next(iterator)
            bench.spin(0.001)
            wrong += (batch != number).sum()
            del batch
        after.wait_stream(now)
    torch.cuda.synchronize()
    assert int(wrong) == 0


def test_a_prefetcher_that_was_used_under_inference_mode_serves_training_too() -> None:
    prefetcher = CudaPrefetcher([torch.ones(4), torch.ones(4)], depth=1)
    with torch.inference_mode():
        assert [float(batch.sum()) for batch in prefetcher] == [4.0, 4.0]
    weight = torch.ones(4, device="cuda", requires_grad=True)
    for batch in prefetcher:
        (batch * weight).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None and float(weight.grad.sum()) == 8.0


def test_gradients_come_as_they_would_without_a_prefetcher() -> None:
    wanting = torch.ones(4, requires_grad=True)
    ((leaf, computed),) = CudaPrefetcher([(wanting, wanting * 3)])
    (leaf * computed).sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.is_leaf and leaf.grad is not None and leaf.grad.tolist() == [3.0] * 4
    assert wanting.grad is not None and wanting.grad.tolist() == [3.0] * 4


def test_another_default_device_changes_nothing() -> None:
    batches = [torch.arange(4), torch.arange(4)]
    torch.set_default_device("cuda")
    try:
        assert [batch.tolist() for batch in CudaPrefetcher(batches)] == [[0, 1, 2, 3]] * 2
    finally:
        torch.set_default_device(None)


def test_subclasses_and_nested_tensors_stay_what_they_are() -> None:
    class Boxes(torch.Tensor):
        pass

    boxes = torch.ones(2, 4).as_subclass(Boxes)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    ((moved, many),) = CudaPrefetcher([(boxes, nested)])
    assert isinstance(moved, Boxes) and moved.is_cuda
    assert many.is_nested and many.is_cuda


def test_several_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    for index in range(torch.cuda.device_count()):
        for batch in CudaPrefetcher([torch.ones(4)], f"cuda:{index}"):
            assert batch.device.index == index
