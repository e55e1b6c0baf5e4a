"""The prefetcher on torch's CPU: what it passes through, and that it says so once."""

from __future__ import annotations

import gc
import pickle
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader

from hostprep.cuda import CudaPrefetcher, prefetcher, torch_backend
from hostprep.errors import UsageError
from tests.kit.processes import open_files
from tests.unit.cuda.simulated import Device
from tests.unit.cuda.test_moving import Date
from tests.unit.cuda.virtual_cuda import AcceleratorError, VirtualCuda

no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


@dataclass
class Sample:
    image: torch.Tensor
    name: str


class Squares:
    """A data set for a DataLoader."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((3, 4, 4), index, dtype=torch.uint8), "y": index}


@pytest.fixture
def unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetcher, "_said", set())


class Prepared(list[int]):
    """As Accelerate's loaders, which are asked whether the batch in use is the last."""

    end_of_dataloader = False

    def __iter__(self) -> Iterator[int]:
        for number in range(3):
            self.end_of_dataloader = number == 2
            yield number


def test_of_a_loader_that_tells_which_batch_is_the_last_it_is_said_that_it_is_ahead(
    unsaid: None,
) -> None:
    loader = Prepared()
    with pytest.warns(RuntimeWarning, match="gather_for_metrics"):
        ahead = CudaPrefetcher(loader, backend=Device())
        last = [(batch, loader.end_of_dataloader) for batch in ahead]
    assert last == [(0, False), (1, True), (2, True)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(ahead)
        list(CudaPrefetcher(loader, "cpu"))  # which is not ahead


@no_cuda
def test_batches_pass_through_on_the_cpu_and_it_is_said_once(unsaid: None) -> None:
    batches = [torch.arange(3), {"a": (torch.ones(2), "name")}, Sample(torch.zeros(1), "x")]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first = CudaPrefetcher(batches)
        assert all(one is other for one, other in zip(first, batches, strict=True))
        assert len(list(first)) == 3
        assert len(list(CudaPrefetcher(batches, depth=3))) == 3
    assert len(said) == 1
    why = "torch" if torch.version.cuda is None else "CUDA does not start"
    assert f"on the CPU: {why}" in str(said[0].message)
    assert said[0].filename == __file__


def test_who_asks_for_the_cpu_is_told_nothing(unsaid: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(CudaPrefetcher([1, 2], "cpu")) == [1, 2]


@no_cuda
def test_a_device_that_is_asked_for_by_name_is_not_replaced_by_another() -> None:
    for device in ("cuda", "cuda:0", 0, torch.device("cuda", 1)):
        with pytest.raises(UsageError, match="cannot be used"):
            CudaPrefetcher([], device)
    with pytest.raises(UsageError, match="no device 'mps'"):
        CudaPrefetcher([], "mps")
    with pytest.raises(UsageError, match="a depth of 0"):
        CudaPrefetcher([], "cpu", depth=0)


@pytest.mark.parametrize("device", ["cuda:x", "cuda:", -1])
def test_a_device_that_cannot_be_is_a_usage_error_where_there_is_cuda(
    device: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_backend, "why_no_cuda", lambda: None)
    with pytest.raises(UsageError, match="is not a device"):
        CudaPrefetcher([], device)


@pytest.mark.parametrize("call", ["Stream", "current_device"])
def test_a_device_that_lets_nobody_in_is_a_usage_error(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = torch.device
    VirtualCuda(monkeypatch)  # is_available() says yes
    monkeypatch.setattr(torch, "device", device)

    def refuse(*_: object) -> None:
        raise AcceleratorError(f"CUDA error: {reason}\nFor debugging consider")

    monkeypatch.setattr(torch.cuda, call, refuse)
    reason = "CUDA-capable device(s) is/are busy or unavailable"
    with pytest.raises(
        UsageError, match=r"cannot be used: CUDA error: .* unavailable\.$"
    ) as caught:
        CudaPrefetcher([])
    assert isinstance(caught.value.__cause__, RuntimeError)
    reason = "out of memory"
    with pytest.raises(AcceleratorError, match="out of memory"):
        CudaPrefetcher([])


def test_a_data_loader_with_workers_and_an_odd_last_batch_every_epoch() -> None:
    loader = DataLoader(Squares(), batch_size=4, num_workers=2)  # type: ignore[arg-type]
    wrapped = CudaPrefetcher(loader, "cpu")
    assert len(wrapped) == 3
    for _ in range(2):
        batches = list(wrapped)
        assert [len(batch["x"]) for batch in batches] == [4, 4, 2]
        assert torch.cat([batch["y"] for batch in batches]).tolist() == list(range(10))


def test_what_is_asked_of_a_loader_by_name_is_the_loaders_and_its_state_is_not() -> None:
    loader: Any = DataLoader(Squares(), batch_size=4)  # type: ignore[arg-type]
    loader.state_dict = dict
    made = CudaPrefetcher(loader, "cpu")
    assert made.dataset is loader.dataset and made.batch_sampler.sampler is loader.sampler
    assert (made.batch_size, made.drop_last) == (4, False)
    assert not hasattr(made, "state_dict") and not hasattr(CudaPrefetcher([], "cpu"), "sampler")
    assert pickle.loads(pickle.dumps(CudaPrefetcher([1], "cpu"))).loader == [1]


def test_conversions_happen_on_the_cpu_too_and_spare_labels() -> None:
    loader = DataLoader(Squares(), batch_size=5)  # type: ignore[arg-type]
    wrapped = CudaPrefetcher(loader, "cpu", dtypes={torch.uint8: torch.float32}, channels_last=True)
    for batch, plain in zip(wrapped, loader, strict=True):
        assert batch["x"].dtype == torch.float32
        assert batch["x"].is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch["x"], plain["x"].float())
        assert batch["y"].dtype == torch.int64


@pytest.mark.parametrize(
    "dtypes", [{"uint8": torch.float16}, {torch.uint8: "float16"}, torch.float16, [torch.float16]]
)
def test_what_is_no_dtype_is_refused_before_a_loop_goes_on_without_it(dtypes: Any) -> None:
    with pytest.raises(UsageError, match=r"not a torch\.dtype|not a mapping"):
        CudaPrefetcher([], "cpu", dtypes=dtypes)


def test_a_tensor_that_is_there_twice_is_converted_once() -> None:
    pixels = torch.ones(2, dtype=torch.uint8)
    dtypes = {torch.uint8: torch.float32}
    first, second = CudaPrefetcher([{"x": pixels, "same": [pixels]}] * 2, "cpu", dtypes=dtypes)
    assert first["x"] is first["same"][0] and first["x"] is not second["x"]


def test_a_conversion_on_the_cpu_makes_a_leaf_of_a_leaf() -> None:
    wanting = torch.ones(2, requires_grad=True)
    batch = (wanting, wanting * 2, torch.ones(2))
    dtypes = {torch.float32: torch.float64}
    ((leaf, computed, plain),) = CudaPrefetcher([batch], "cpu", dtypes=dtypes)
    assert leaf.is_leaf and leaf.requires_grad and computed.grad_fn is not None
    assert not plain.requires_grad
    computed.sum().backward()
    assert wanting.grad is not None and wanting.grad.tolist() == [2.0, 2.0]


def test_what_has_no_such_memory_format_keeps_its_own() -> None:
    sparse = torch.ones(1, 1, 2, 2).to_sparse()
    (batch,) = CudaPrefetcher([sparse], "cpu", channels_last=True)
    assert batch is sparse


def failing() -> Iterator[int]:
    yield 1
    yield 2
    raise KeyError("third")


@pytest.mark.parametrize("on", ["cpu", "device"])
def test_an_exception_comes_after_the_batches_before_it_with_its_own_traceback(on: str) -> None:
    class Loader:
        def __iter__(self) -> Iterator[int]:
            return failing()

    wrapped: CudaPrefetcher[int]
    if on == "cpu":
        wrapped = CudaPrefetcher(Loader(), "cpu")
    else:
        wrapped = CudaPrefetcher(Loader(), depth=4, backend=Device())
    for _ in range(2):
        seen = []
        with pytest.raises(KeyError, match="third") as raised:
            for number in wrapped:
                seen.append(number)
        assert seen == [1, 2]
        assert any(entry.name == "failing" for entry in raised.traceback)


@pytest.mark.parametrize("on", ["cpu", "device"])
def test_empty_loaders_and_loaders_without_a_length(on: str) -> None:
    backend = Device() if on == "device" else None
    device = None if backend else "cpu"
    assert list(CudaPrefetcher([], device, backend=backend)) == []
    endless = CudaPrefetcher(iter([1, "two", None]), device, backend=backend)
    with pytest.raises(TypeError):
        len(endless)
    assert list(endless) == [1, "two", None]


class KnownOnceBegun:
    """As Lightning's CombinedLoader, which has a length from the moment somebody iterates over it.

    ``list`` asks for that between ``iter`` and the first batch.
    """

    begun = False

    def __iter__(self) -> Iterator[int]:
        self.begun = True
        return iter(range(3))

    def __len__(self) -> int:
        if not self.begun:
            raise RuntimeError("Please call `iter(combined_loader)` first.")
        return 3


@pytest.mark.parametrize("on", ["cpu", "device"])
def test_a_loader_is_begun_when_the_loop_is_as_without_a_prefetcher(on: str) -> None:
    backend = Device() if on == "device" else None
    wrapped = CudaPrefetcher(KnownOnceBegun(), None if backend else "cpu", backend=backend)
    assert list(wrapped) == [0, 1, 2]


def test_ctrl_c_in_the_loader_comes_at_once() -> None:
    def interrupted() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyboardInterrupt

    seen = []
    with pytest.raises(KeyboardInterrupt):
        for number in CudaPrefetcher(interrupted(), backend=Device()):
            seen.append(number)
    assert seen == [1]


def test_nothing_is_left_after_many_epochs() -> None:
    device = Device()
    wrapped = CudaPrefetcher([device.host_tensor(n) for n in range(5)], depth=2, backend=device)
    threads, descriptors = threading.active_count(), open_files()
    streams = len(device.streams)
    for epoch in range(30):
        for number, _ in enumerate(wrapped):
            if epoch % 3 == 0 and number == 2:
                break
    del _
    gc.collect()
    assert threading.active_count() == threads
    assert open_files() == descriptors
    assert len(device.streams) == streams
    assert device.live_device == 0
    assert device.buffers_made <= 4


class TestTorchBackendWithoutADevice:
    """What of torch's backend needs no CUDA: what it takes for what; ``meta`` is its device."""

    @pytest.fixture
    def backend(self) -> torch_backend.TorchCudaBackend:
        made = torch_backend.TorchCudaBackend(0, {torch.uint8: torch.float16}, True)
        made._device = torch.device("meta")
        return made

    def test_which_values_it_copies(self, backend: torch_backend.TorchCudaBackend) -> None:
        assert backend.is_host_tensor(torch.ones(2))
        assert not backend.is_host_tensor(torch.ones(2, device="meta"))
        assert not backend.is_host_tensor(torch.ones(2, 2).to_sparse())
        assert not backend.is_host_tensor([1])
        packed = pack_sequence([torch.ones(2), torch.ones(1)])
        assert isinstance(packed, PackedSequence)
        assert next(iter(prefetcher.leaves([packed]))) is packed
        assert backend.place("name") == "name"
        date = Date()
        assert backend.place(date) is date
        assert backend.place(torch.ones(2, 2).to_sparse()).device.type == "meta"

    def test_what_outlasts_another_stream(
        self, backend: torch_backend.TorchCudaBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept: list[torch.Tensor] = []
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, _: kept.append(tensor))
        dense, packed = torch.ones(2), pack_sequence([torch.ones(2), torch.ones(1)])
        for value in (dense, packed, torch.ones(2, 2).to_sparse(), "name"):
            backend.keep_for(value, None)
        assert kept[0] is dense
        assert kept[1:] == [part for part in packed if part is not None]

    def test_what_moves_by_its_own_method_is_converted_all_the_same(
        self, backend: torch_backend.TorchCudaBackend
    ) -> None:
        class Picture(torch.Tensor):
            pass

        bytes_of = torch.ones(2, 3, 4, 4, dtype=torch.uint8)
        for value in (bytes_of.as_subclass(Picture), bytes_of.to("meta")):
            placed = backend.place(value)
            assert type(placed) is type(value) and placed.device.type == "meta"
            assert placed.dtype is torch.float16
            assert placed.is_contiguous(memory_format=torch.channels_last)
        assert backend.place(bytes_of.to_sparse()).dtype is torch.float16  # and no such format
        as_it_is = torch.ones(2, device="meta")
        assert backend.place(as_it_is) is as_it_is

    @pytest.mark.parametrize(
        "tensor",
        [
            torch.arange(24).reshape(2, 3, 4),
            torch.arange(24).reshape(2, 3, 4).transpose(0, 2),
            torch.arange(24)[::3],
            torch.arange(3).expand(4, 3),
            torch.zeros(0, 3),
            torch.tensor(5.5, dtype=torch.float64),
            torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last),
            torch.ones(3, dtype=torch.complex64) * 1j,
            torch.tensor([True, False]),
            torch.ones(2, requires_grad=True),
        ],
    )
    def test_a_buffer_takes_any_form_and_is_used_again(
        self,
        backend: torch_backend.TorchCudaBackend,
        monkeypatch: pytest.MonkeyPatch,
        tensor: torch.Tensor,
    ) -> None:
        empty = torch.empty

        def unpinned(*args: Any, pin_memory: bool = False, **more: Any) -> torch.Tensor:
            return empty(*args, **more)  # page-locking needs the driver

        monkeypatch.setattr(torch, "empty", unpinned)
        there, buffer = backend.stage(tensor, None)
        assert torch.equal(there, tensor) and there.stride() == torch.empty_like(tensor).stride()
        assert backend.stage(tensor, buffer)[1] is buffer
        large = torch.ones(100, dtype=torch.float64)
        assert backend.stage(large, buffer)[1] is not buffer

    def test_what_is_allocated(self, backend: torch_backend.TorchCudaBackend) -> None:
        image = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
        landing, final = backend.allocate(image)
        assert landing.dtype == torch.uint8 and landing.stride() == image.stride()
        assert final.dtype == torch.float16
        assert final.is_contiguous(memory_format=torch.channels_last)
        labels = torch.arange(4)
        landing, final = backend.allocate(labels)
        assert landing is final and final.dtype == torch.int64
        ready = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
        landing, final = backend.allocate(ready)
        assert landing is final

    def test_what_wants_a_gradient_still_does(
        self, backend: torch_backend.TorchCudaBackend
    ) -> None:
        wanting = torch.ones(2, requires_grad=True)
        with torch.no_grad():
            landing, final = backend.allocate(wanting)
            converted = torch_backend.TorchCudaBackend(0, {torch.float32: torch.float16}, False)
            converted._device = torch.device("meta")
            other, half = converted.allocate(wanting)
            converted._dtypes = {torch.float32: torch.int32}
            whole = converted.allocate(wanting)[1]
        assert landing is final and final.requires_grad and final.is_leaf
        assert half is not other and half.requires_grad and half.is_leaf
        assert not whole.requires_grad and not backend.allocate(torch.ones(2))[1].requires_grad

    def test_what_was_computed_from_it_keeps_the_way_back(
        self, backend: torch_backend.TorchCudaBackend
    ) -> None:
        computed = torch.ones(2, requires_grad=True) * 2
        assert not backend.is_host_tensor(computed)
        there = backend.place(computed)
        assert there.device.type == "meta" and there.grad_fn is not None

    def test_pageable_memory_is_not_copied_from(
        self, backend: torch_backend.TorchCudaBackend
    ) -> None:
        assert not backend.can_copy_from(torch.ones(3))
