"""Tensors that say they are on a GPU, on the CPU: as strict as real ones about who meets whom.

To ``VirtualCuda`` all tensors are the CPU's, and may meet. Here one that was made on ``cuda:0``
says so, and an operation on tensors of two devices fails as torch has it fail: what a real GPU
would refuse at the first try. Nothing goes through autograd, which knows no device that is not
there.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from tests.unit.cuda.virtual_cuda import VirtualCuda

_DEVICE = torch.device("cuda", 0)
_CROSSING = (torch.ops.aten.copy_, torch.ops.aten._to_copy)


class OnDevice(torch.Tensor):
    """On ``cuda:0`` by all that it says; its values are ``held`` on the CPU."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=_DEVICE,
        )

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class Mode(TorchDispatchMode):
    """Sees what makes tensors from nothing, too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    here: dict[int, OnDevice] = {}
    hosts: list[torch.Tensor] = []

    def held(value: Any) -> Any:
        if isinstance(value, OnDevice):
            here[id(value.held)] = value
            return value.held
        if isinstance(value, torch.Tensor):
            hosts.append(value)
        return value

    args, kwargs = tree_map(held, args), tree_map(held, kwargs)
    crossing = func.overloadpacket in _CROSSING
    if here and any(host.dim() for host in hosts) and not crossing:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices,"
            f" cuda:0 and cpu! (when checking {func})"
        )
    asked = kwargs.get("device")
    there = bool(here) if asked is None else torch.device(asked).type == "cuda"
    if asked is not None and there:
        kwargs["device"] = torch.device("cpu")

    def posing(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not there or isinstance(value, OnDevice):
            return value
        return here[id(value)] if id(value) in here else OnDevice(value)

    result = func(*args, **kwargs)
    if func.overloadpacket is torch.ops.aten.copy_:
        return here.get(id(result), result)
    return tree_map(posing, result)


class PosingCuda(VirtualCuda):
    """See the module; only within ``torch``'s dispatch by ``Mode``."""

    recorded = 0  # how often a tensor was recorded for a stream that is not its own

    def _patch_tensors(self, patch: pytest.MonkeyPatch) -> None:
        real_copy, real_empty = torch.Tensor.copy_, torch.empty

        def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
            if not (isinstance(target, OnDevice) or isinstance(source, OnDevice)):
                return real_copy(target, source)
            # By the operator: the method looks for CUDA's own guard, which is not built in here.
            torch.ops.aten.copy_(target, source, non_blocking)
            moved_bytes = source.numel() * source.element_size()
            if isinstance(source, OnDevice):
                self.work("compute", moved_bytes / 1e12)
                return target
            pinned = self.is_pinned(source)
            self.copies += 1
            self.work("copy", moved_bytes / self.bytes_per_s, holds_host=not pinned)
            return target

        def empty(*args: Any, pin_memory: bool = False, **more: Any) -> torch.Tensor:
            made = real_empty(*args, **more)
            return self._pin(made) if pin_memory else made

        def mm(left: Any, right: Any, *, out: Any) -> None:
            assert all(isinstance(each, OnDevice) for each in (left, right, out))
            self.work("compute", 2 * left.shape[0] ** 3 / 20e12)

        def record_stream(tensor: Any, stream: Any) -> None:
            assert isinstance(tensor, OnDevice) and stream in self.streams
            self.recorded += 1

        patch.setattr(torch.Tensor, "copy_", copy_)
        patch.setattr(torch.Tensor, "record_stream", record_stream)
        patch.setattr(torch, "empty", empty)
        patch.setattr(torch, "mm", mm)
        patch.setattr(torch, "rand", real_empty)
        # What torch starts CUDA by before it makes a tensor there.
        patch.setattr(torch.cuda, "_lazy_init", lambda: None)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return not isinstance(tensor, OnDevice) and super().is_pinned(tensor)
