"""A GPU that does its work later than it is queued, and gives out memory again at once.

``PosingCuda`` moves contents in the host's order, in which a missing wait cannot show. Here what is
queued is done in the order of the model's time, and not before the host waits for it; and memory
that is let go is the next tensor's of its size and stream, as in torch's allocator. What was
recorded for another stream is so once the host has waited for what that had then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from tests.unit.cuda import posing_cuda
from tests.unit.cuda.posing_cuda import OnDevice, PosingCuda

_KERNEL_SECONDS = 1e-6
_GRAIN_BYTES = 512
_CROSSING = torch.ops.aten._to_copy
_MADE_EMPTY = (torch.ops.aten.empty, torch.ops.aten.empty_strided, torch.ops.aten.empty_like)


class _Block:
    """Memory of the device; it goes back to its pool when the last tensor in it goes."""

    def __init__(self, cuda: DeferredCuda, pool: list[torch.Tensor], held: torch.Tensor) -> None:
        self.cuda, self.pool, self.held = cuda, pool, held
        self.readers: list[Any] = []

    def __del__(self) -> None:
        read_until = max((stream.time for stream in self.readers), default=0.0)
        self.cuda.let_go.append((read_until, self.pool, self.held))


class DeferredCuda(PosingCuda):
    """See the module; only within ``torch``'s dispatch by ``posing_cuda.Mode``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._now = 0.0
        self._queued: list[tuple[float, Callable[[], Any]]] = []
        self._pools: dict[tuple[int, int], list[torch.Tensor]] = defaultdict(list)
        self._copy_seconds: float | None = None
        self.let_go: list[tuple[float, list[torch.Tensor], torch.Tensor]] = []
        super().__init__(patch)
        patch.setattr(posing_cuda, "_run", self._run)

    @property
    def host(self) -> float:  # type: ignore[override]
        return self._now

    @host.setter
    def host(self, now: float) -> None:
        """Have the host wait until ``now``, and so all be done that ends before."""
        self._now = now
        due = sorted((each for each in self._queued if each[0] <= now), key=lambda each: each[0])
        self._queued = [each for each in self._queued if each[0] > now]
        for _, work in due:
            work()

    def _patch_tensors(self, patch: pytest.MonkeyPatch) -> None:
        real_copy = torch.Tensor.copy_
        super()._patch_tensors(patch)

        def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
            if not (isinstance(target, OnDevice) or isinstance(source, OnDevice)):
                return real_copy(target, source)
            if not isinstance(source, OnDevice):
                self._copy_seconds = source.numel() * source.element_size() / self.bytes_per_s
            torch.ops.aten.copy_(target, source, non_blocking)
            if not isinstance(source, OnDevice) and not self.is_pinned(source):
                self._wait()
            return target

        def record_stream(tensor: Any, stream: Any) -> None:
            assert isinstance(tensor, OnDevice) and stream in self.streams
            tensor.block.readers.append(stream)  # type: ignore[attr-defined]
            self.recorded += 1

        patch.setattr(torch.Tensor, "copy_", copy_)
        patch.setattr(torch.Tensor, "record_stream", record_stream)

    def _wait(self) -> None:
        self.host = max(self.host, self.current.time)

    def _queue(self, work: Callable[[], Any]) -> None:
        if self._copy_seconds is None:
            self.current.time = max(self.current.time, self.host) + _KERNEL_SECONDS
        else:
            self.work("copy", self._copy_seconds)
            self._copy_seconds = None
        self._queued.append((self.current.time, work))

    def _allocate(self, like: torch.Tensor) -> Any:
        """Return a tensor of the device, with whatever was in that memory before."""
        size_bytes = -(-max(1, like.untyped_storage().nbytes()) // _GRAIN_BYTES) * _GRAIN_BYTES
        # As torch's: that it is no longer read is looked at when memory is asked for.
        for read_until, its_pool, memory in self.let_go:
            if read_until <= self.host:
                its_pool.append(memory)
        self.let_go = [each for each in self.let_go if each[0] > self.host]
        pool = self._pools[id(self.current), size_bytes]
        held = pool.pop() if pool else torch.full((size_bytes,), 123, dtype=torch.uint8)
        place = held.view(like.dtype).as_strided(like.size(), like.stride())
        return _on_device(place, _Block(self, pool, held))

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        here: list[Any] = []

        def held(value: Any) -> Any:
            if not isinstance(value, OnDevice):
                return value
            here.append(value)
            return value.held

        asked = kwargs.get("device")
        held_args, held_kwargs = tree_map(held, args), tree_map(held, kwargs)
        there = bool(here) if asked is None else torch.device(asked).type == "cuda"
        if not here and not there:
            return func(*args, **kwargs)
        if asked is not None:
            held_kwargs["device"] = torch.device("cpu")

        def work() -> Any:
            return func(*held_args, **held_kwargs)

        aliases = [each.alias_info for each in func._schema.arguments if each.alias_info]
        if any(alias.is_write for alias in aliases):
            self._queue(work)
            return args[0]
        if func.overloadpacket is torch.ops.aten._local_scalar_dense or not there:
            self._wait()
        sent = not here and func.overloadpacket is _CROSSING
        if sent:
            self._copy_seconds = args[0].numel() * args[0].element_size() / self.bytes_per_s
        result = work()  # of what is done later for its shape alone
        if aliases:
            return here[0] if result is here[0].held else _on_device(result, here[0].block)
        if not there or not isinstance(result, torch.Tensor):
            return result
        made = self._allocate(result)
        if func.overloadpacket not in _MADE_EMPTY:
            place = made.held
            self._queue(lambda: torch.ops.aten.copy_(place, work()))
            if sent and not (kwargs.get("non_blocking") and self.is_pinned(args[0])):
                self._wait()
        return made


def _on_device(held: torch.Tensor, block: _Block) -> Any:
    made: Any = OnDevice(held)
    made.block = block
    return made
