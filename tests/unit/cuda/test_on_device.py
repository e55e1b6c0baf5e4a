"""The measuring code and the prefetcher with tensors that are strict about their device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hostprep.cuda import CudaPrefetcher, delivery
from hostprep.cuda.bench import Bench
from hostprep.units import KIB, MIB
from tests.unit.cuda.posing_cuda import Mode, OnDevice, PosingCuda

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[PosingCuda]:
    monkeypatch.setattr(delivery, "_SIDE", 32)
    made = PosingCuda(monkeypatch)
    with Mode():
        yield made


def test_who_mixes_devices_is_told(cuda: PosingCuda) -> None:
    there = torch.zeros(3, device=torch.device("cuda", 0))
    assert there.is_cuda and type(there + 1) is OnDevice
    with pytest.raises(RuntimeError, match="on the same device"):
        there += torch.ones(3)
    with pytest.raises(TypeError):
        torch.cuda.synchronize(there.device, 1)  # type: ignore[call-arg]


def test_bandwidth_and_overlap(cuda: PosingCuda) -> None:
    bench = Bench(0)
    assert len(bench.sweep((4 * KIB, MIB), float("inf"))[0]) == 2
    assert bench.under_load(1e9, lambda: "asked") == "asked"
    assert len(list(bench.overlaps(1e8))) == 5


@pytest.mark.parametrize("case", delivery.CASES, ids=lambda case: case.name)
def test_every_arrangement_of_delivery(cuda: PosingCuda, case: delivery.Case) -> None:
    trace = delivery.check(Bench(0), case)
    assert trace.problem is None and trace.mismatches == 0


def test_controls_a_failing_loader_and_epochs(cuda: PosingCuda) -> None:
    bench = Bench(0)
    assert len(list(delivery.provoke(bench))) == 4
    assert delivery.check_failing_loader(bench).mismatches == 0
    assert len(delivery.epochs(bench)) == 5


def test_all_kinds_of_batches(cuda: PosingCuda) -> None:
    batch: dict[str, Any] = {
        "channels": torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "view": torch.arange(24).reshape(4, 6)[:, ::2],
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(1.5),
        "bytes": torch.arange(8, dtype=torch.uint8),
        "gradient": torch.ones(2, requires_grad=True),
        "pinned": torch.arange(8).pin_memory(),
        "complex": torch.ones(3, dtype=torch.complex64).conj(),
        "there": torch.ones(2, device=torch.device("cuda", 0)),
        "name": "x",
    }
    (moved,) = CudaPrefetcher([batch], 0, dtypes={torch.uint8: torch.float16})
    for key, value in batch.items():
        if isinstance(value, torch.Tensor):
            assert moved[key].is_cuda, key
            assert moved[key].requires_grad == value.requires_grad, key
            with torch.no_grad():
                assert torch.equal(moved[key].cpu().to(value.dtype), value.cpu()), key
    assert moved["bytes"].dtype == torch.float16
    assert moved["channels"].is_contiguous(memory_format=torch.channels_last)
    assert moved["there"] is batch["there"]


def test_a_consumer_that_changes_its_stream(cuda: PosingCuda) -> None:
    other = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    iterator = iter(CudaPrefetcher([torch.ones(4)] * 6, 0, depth=2))
    for number in range(6):
        with torch.cuda.stream(other if number % 2 else torch.cuda.default_stream()):
            assert next(iterator).sum().item() == 4.0
    assert cuda.recorded > 0
