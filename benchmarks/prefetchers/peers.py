"""The ways in which batches are brought to CUDA today, for comparison.

Each is reimplemented in a few lines from what its source documents: which stream copies, what waits
for what, and what holds which references. All take batches that are a tensor or a tuple of tensors.
One function queues the copies and conversions, in the stream that the contender makes the current
one, and calls a hook before them: so copies can be delayed in the same way for all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from queue import Queue
from typing import Any

import torch

from hostprep.cuda import controls
from hostprep.cuda.prefetcher import CudaPrefetcher
from hostprep.cuda.torch_backend import TorchCudaBackend

Hook = Callable[[], None]
Dtypes = Mapping[torch.dtype, torch.dtype]


def nothing() -> None:
    """Do not delay copies."""


class Peer:
    """Brings a loader's batches to a device, in the current stream or in one of its own.

    ``pinned`` says whether its batches are to be page-locked, ``one_pass`` that it is used up after
    an epoch, so that each is given another one.
    """

    name = ""
    pinned = True
    one_pass = False

    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device,
        before_copy: Hook = nothing,
        dtypes: Dtypes | None = None,
    ) -> None:
        self.loader, self.device = loader, device
        self.before_copy, self.dtypes = before_copy, dict(dtypes or {})

    def new_stream(self) -> Any:
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def consumer(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def send(self, batch: Any, *, non_blocking: bool = True) -> Any:
        """Queue the copies of a batch in the current stream; return it on the device."""
        self.before_copy()

        def sent(tensor: torch.Tensor) -> torch.Tensor:
            there = tensor.to(self.device, non_blocking=non_blocking)
            return there.to(self.dtypes.get(there.dtype, there.dtype))

        return tuple(map(sent, batch)) if isinstance(batch, tuple) else sent(batch)


class Loop(Peer):
    """``tensor.to(device)`` of pageable memory in the loop: PyTorch's tutorials."""

    name = "to"
    pinned = False

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield self.send(batch, non_blocking=False)


class PinnedLoop(Loop):
    """``to(device, non_blocking=True)`` of page-locked memory in the loop: PyTorch's notes."""

    name = "to non_blocking, pinned"
    pinned = True

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield self.send(batch)


class DataPrefetcher(Peer):
    """``data_prefetcher`` as in blog posts: a side stream and ``wait_stream``, no lifetimes."""

    name = "data_prefetcher"
    one_pass = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.side = self.new_stream()
        self.source = iter(self.loader)
        self.preload()

    def preload(self) -> None:
        self.coming = next(self.source, None)
        if self.coming is not None:
            with torch.cuda.stream(self.side):
                self.coming = self.send(self.coming)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.consumer().wait_stream(self.side)
        batch = self.coming
        if batch is None:
            raise StopIteration
        self.hand_over(batch)
        self.preload()
        return batch

    def hand_over(self, batch: Any) -> None:
        """Do not record which stream reads the batch."""


class Apex(DataPrefetcher):
    """apex, ``examples/imagenet/main_amp.py``: the same, with ``record_stream``."""

    name = "apex main_amp"

    def hand_over(self, batch: Any) -> None:
        for tensor in batch if isinstance(batch, tuple) else (batch,):
            tensor.record_stream(self.consumer())


class TimmBefore(Loop):
    """timm's ``PrefetchLoader`` before PR #2784: a new stream every epoch, no wait back."""

    name = "timm before #2784"
    pinned = True

    def __iter__(self) -> Iterator[Any]:
        side = self.new_stream()
        batch: Any  # an empty loader leaves it without a value, here as in timm
        first = True
        for coming in self.loader:
            with torch.cuda.stream(side):
                coming = self.send(coming)
            if first:
                first = False
            else:
                yield batch  # noqa: F821
            self.consumer().wait_stream(side)
            batch = coming
        yield batch


class TimmSince(Loop):
    """timm's ``PrefetchLoader`` since PR #2784: one stream a loader, which waits for the loop."""

    name = "timm since #2784"
    pinned = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.side = self.new_stream()

    def __iter__(self) -> Iterator[Any]:
        batch = None
        for coming in self.loader:
            self.side.wait_stream(self.consumer())
            with torch.cuda.stream(self.side):
                coming = self.send(coming)
            if batch is not None:
                yield batch
            self.consumer().wait_stream(self.side)
            batch = coming
        if batch is not None:
            yield batch


class Background(Peer):
    """``prefetch_generator.BackgroundGenerator``: a thread draws ahead; the loop copies."""

    name = "BackgroundGenerator"
    one_pass = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.drawn: Queue[tuple[bool, Any]] = Queue(maxsize=1)
        self.ended = False
        threading.Thread(target=self._draw, daemon=True).start()

    def _draw(self) -> None:
        end: Exception = StopIteration()
        try:
            for batch in self.loader:
                self.drawn.put((True, batch))
        except Exception as error:
            end = error
        self.drawn.put((False, end))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.ended:
            raise StopIteration
        came, batch = self.drawn.get()
        if not came:
            self.ended = True
            raise batch
        return self.send(batch)


class _Hooked(TorchCudaBackend):
    """Calls the hook before copies from the host are queued."""

    def __init__(self, device: torch.device, before_copy: Hook, dtypes: Dtypes) -> None:
        super().__init__(device.index, dtypes, False)
        self._before_copy = before_copy

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        if self._before_copy is not nothing and not source.is_cuda:
            with torch.cuda.stream(stream):
                self._before_copy()
        super().copy(target, source, stream)


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the contenders: how to make it, as with ``Peer``, and what it needs."""

    name: str
    about: str
    make: Callable[..., Any]
    pinned: bool = True
    one_pass: bool = False


def _peer(kind: type[Peer]) -> Contender:
    return Contender(kind.name, kind.__doc__ or "", kind, kind.pinned, kind.one_pass)


def _ours(
    name: str, about: str, depth: int, kind: type[CudaPrefetcher[Any]] = CudaPrefetcher
) -> Contender:
    def make(
        loader: Iterable[Any],
        device: torch.device,
        before_copy: Hook = nothing,
        dtypes: Dtypes | None = None,
    ) -> CudaPrefetcher[Any]:
        return kind(loader, depth=depth, backend=_Hooked(device, before_copy, dtypes or {}))

    return Contender(name, about, make)


CONTENDERS = (
    *map(
        _peer,
        (Loop, PinnedLoop, DataPrefetcher, Apex, TimmBefore, TimmSince, Background),
    ),
    _ours("CudaPrefetcher, depth 1", "``hostprep.cuda``, as it comes.", 1),
    _ours("CudaPrefetcher, depth 2", "``hostprep.cuda``, two batches ahead.", 2),
)
# Broken on purpose: they show whether an arrangement provokes anything on this device.
CONTROLS = (
    _ours("no wait before use", "Reads before the copy is there.", 1, controls.NoWaitBeforeUse),
    _ours("no wait back", "Copies over what may still be read.", 1, controls.NoWaitBack),
    _ours("no lifetime", "Lets go of what is being copied.", 3, controls.NoLifetime),
)
