"""torch's CUDA in virtual time, on the CPU: to run the measuring code where there is no GPU.

Streams, events, spinning kernels and copies take the time that a model gives them; the clock is
made, and so is whatever is measured with it. It shows that the instrument reads the model right
(overlap where the model overlaps, none where it does not), and nothing about any real device.
Contents are really copied, at once. Whoever calls ``torch.cuda`` otherwise than its signatures
allow fails here too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hostprep.host.gpu import Gpu

UUID = "00000000-0000-0000-0000-000000000000"
# What torch before 2.8 raises for errors of CUDA.
AcceleratorError: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)
# As torch says it, all of it.
ILLEGAL_ACCESS = """CUDA error: an illegal memory access was encountered
Search for `cudaErrorIllegalAddress' in CUDA's documentation for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below
might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
# As NVML has it.
GPU = Gpu(
    index=0,
    name="Virtual GPU",
    uuid=f"GPU-{UUID}",
    pci_bus_id=None,
    total_bytes=1 << 30,
    used_bytes=0,
    utilisation_percent=0,
    link_generation=1,
    link_width=4,
    max_link_generation=1,
    max_link_width=4,
    clock_reasons=(),
    persistence=True,
    ecc=None,
    ecc_uncorrected=None,
    processes=(),
)
OUT_OF_MEMORY = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def raising(error: Exception) -> Callable[..., Any]:
    """Return a function that raises it, whatever it is called with."""

    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


class VirtualCuda:
    """``overlaps`` says whether copies and kernels have engines of their own."""

    def __init__(
        self, patch: pytest.MonkeyPatch, *, bytes_per_s: float = 1e9, overlaps: bool = True
    ) -> None:
        self.bytes_per_s, self.overlaps = bytes_per_s, overlaps
        self.clock_hz: Callable[[], float] = lambda: 1.4e9
        self.host = 0.0
        self.engines = {"copy": 0.0, "compute": 0.0}
        self.pinned: dict[int, torch.Tensor] = {}  # by address
        self.copies = 0
        self.spoil: int | None = None  # the number of a copy that arrives with a wrong value
        self.reserved = 64 << 20
        self.default = _Stream(self)
        self.streams = [self.default]
        self.current = self.default
        self._patch_tensors(patch)
        self._patch_cuda(patch)

    def work(self, engine: str, seconds: float, *, holds_host: bool = False) -> None:
        """Queue work in the current stream."""
        engine = engine if self.overlaps else "compute"
        stream = self.current
        begin = max(stream.time, self.host, self.engines[engine])
        stream.time = self.engines[engine] = begin + seconds
        if holds_host:
            self.host = stream.time

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.pinned

    def _patch_tensors(self, patch: pytest.MonkeyPatch) -> None:
        """Have the device's tensors be the CPU's."""
        real_device, real_copy, real_empty = torch.device, torch.Tensor.copy_, torch.empty

        class Kind(type):
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, real_device)

        class device(metaclass=Kind):
            def __new__(cls, *_: Any) -> Any:
                return real_device("cpu", 0)

        def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
            real_copy(target, source)
            if non_blocking:
                self.copies += 1
                if self.copies == self.spoil:
                    target.view(-1)[target.numel() // 2] += 1
                seconds = source.numel() * source.element_size() / self.bytes_per_s
                self.work("copy", seconds, holds_host=not self.is_pinned(source))
            return target

        def empty(*args: Any, pin_memory: bool = False, **more: Any) -> torch.Tensor:
            made = real_empty(*args, **more)
            return self._pin(made) if pin_memory else made

        def mm(left: Any, right: Any, *, out: Any) -> None:
            self.work("compute", 2 * left.shape[0] ** 3 / 20e12)

        patch.setattr(torch, "device", device)
        patch.setattr(torch, "empty", empty)
        patch.setattr(torch, "mm", mm)
        patch.setattr(torch, "rand", lambda *size, device: real_empty(*size))
        patch.setattr(torch.Tensor, "copy_", copy_)

    def _patch_cuda(self, patch: pytest.MonkeyPatch) -> None:
        # Torch before 2.8 names the device, too.
        patch.setattr(torch.Tensor, "pin_memory", lambda tensor, _=None: self._pin(tensor.clone()))
        patch.setattr(torch.Tensor, "is_pinned", lambda tensor, _=None: self.is_pinned(tensor))
        properties = SimpleNamespace(
            name="Virtual GPU", major=0, minor=0, total_memory=1 << 30, uuid=UUID
        )
        for name, value in {
            "Stream": lambda device=None, priority=0: self._new_stream(),
            "Event": lambda enable_timing=False: _Event(self),
            "stream": self._in_stream,
            "current_stream": lambda _=None: self.current,
            "default_stream": lambda _=None: self.default,
            "synchronize": lambda _=None: self._synchronize(),
            "_sleep": lambda cycles: self.work("compute", cycles / self.clock_hz()),
            "memory_reserved": lambda _: self.reserved,
            "max_memory_reserved": lambda _: self.reserved,
            "reset_peak_memory_stats": lambda _: None,
            "empty_cache": lambda: None,
            "set_device": lambda _: None,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "is_available": lambda: True,
            "get_device_properties": lambda _: properties,
            "get_device_name": lambda _: properties.name,
        }.items():
            patch.setattr(torch.cuda, name, _as_torch_has_it(getattr(torch.cuda, name), value))
        # A torch built for CUDA would have the DataLoader's own thread pin, which asks the driver.
        if hasattr(torch, "accelerator"):  # from torch 2.6 on
            patch.setattr(torch.accelerator, "is_available", lambda: False)

    def _pin(self, tensor: torch.Tensor) -> torch.Tensor:
        # Kept, so that no other tensor gets its address.
        self.pinned[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def _new_stream(self) -> _Stream:
        self.streams.append(_Stream(self))
        return self.streams[-1]

    def _synchronize(self) -> None:
        self.host = max(self.host, *(stream.time for stream in self.streams))

    @contextmanager
    def _in_stream(self, stream: _Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


def _as_torch_has_it(real: Any, made: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``made``, callable as ``real`` is: torch has the signatures in builds without CUDA."""
    signature = inspect.signature(real.__new__ if isinstance(real, type) else real)
    unbound = (real,) if isinstance(real, type) else ()

    @functools.wraps(made)
    def checked(*args: Any, **kwargs: Any) -> Any:
        signature.bind(*unbound, *args, **kwargs)
        return made(*args, **kwargs)

    return checked


class _Stream:
    def __init__(self, cuda: VirtualCuda) -> None:
        self.cuda, self.time = cuda, 0.0

    def record_event(self) -> _Event:
        event = _Event(self.cuda)
        event.time = max(self.time, self.cuda.host)
        return event

    def wait_event(self, event: _Event) -> None:
        self.time = max(self.time, event.time)

    def wait_stream(self, stream: _Stream) -> None:
        self.time = max(self.time, stream.time)

    def synchronize(self) -> None:
        self.cuda.host = max(self.cuda.host, self.time)


class _Event:
    def __init__(self, cuda: VirtualCuda) -> None:
        self.cuda, self.time = cuda, 0.0

    def record(self) -> None:
        self.time = max(self.cuda.current.time, self.cuda.host)

    def query(self) -> bool:
        return self.time <= self.cuda.host

    def synchronize(self) -> None:
        self.cuda.host = max(self.cuda.host, self.time)

    def elapsed_time(self, end: _Event) -> float:
        return (end.time - self.time) * 1e3
