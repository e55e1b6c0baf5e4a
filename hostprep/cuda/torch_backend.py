"""The backend on torch's CUDA, and the fallback without CUDA."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hostprep.cuda.moving import moved, moves_itself
from hostprep.cuda.torch_errors import in_a_line
from hostprep.errors import UsageError
from hostprep.host.gpu_memory import lacks_memory
from hostprep.units import format_count


def why_no_cuda() -> str | None:
    """Return why there is no CUDA for this process, or None if there is."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return "CUDA does not start (`hostprep verify` says why)"


def open_backend(
    device: Any | None, dtypes: Mapping[Any, Any], channels_last: bool
) -> tuple[TorchCudaBackend | None, Callable[[Any], Any] | None, str | None]:
    """Return the backend for ``device``; or None, how to convert leaves on the CPU, and a warning.

    The warning says why there is no CUDA, if nobody asked for the CPU. Raises ``UsageError`` if a
    CUDA device was asked for by name and is not available, or exists and does not start; and if
    ``dtypes`` are not torch's, because other libraries' would match nothing.
    """
    _refuse_others(dtypes)
    asked = None if device is None else f"cuda:{device}" if isinstance(device, int) else str(device)
    if asked == "cpu":
        return None, _conversion(dtypes, channels_last), None
    if asked is not None and asked.partition(":")[0] != "cuda":
        raise UsageError(f"CudaPrefetcher has no device {asked!r}.", "accepted: cuda, cuda:N, cpu")
    reason = why_no_cuda()
    if reason is not None:
        if asked is not None:
            raise UsageError(f"{asked} cannot be used: {reason}.", "None takes what is there")
        return None, _conversion(dtypes, channels_last), reason
    import torch

    try:
        index = torch.device(asked or "cuda").index
    except RuntimeError:
        raise UsageError(f"{asked!r} is not a device.", "accepted: cuda, cuda:N, cpu") from None
    if index is None:
        index = _usable(asked or "CUDA", torch.cuda.current_device)
    if index >= torch.cuda.device_count():
        raise UsageError(
            f"there is no cuda:{index}; torch sees"
            f" {format_count(torch.cuda.device_count(), 'device')}.",
            "name one of those; cuda:0 is the first",
        )
    return TorchCudaBackend(index, dtypes, channels_last), None, None


def _refuse_others(dtypes: Any) -> None:
    """Raise ``UsageError`` unless it is a mapping of torch's dtypes; an empty one need not be."""
    hint = "accepted: such as {torch.uint8: torch.float16}"
    if not isinstance(dtypes, Mapping):
        raise UsageError(f"dtypes={dtypes!r} is not a mapping.", hint)
    if not dtypes:
        return
    import torch

    for each in (*dtypes, *dtypes.values()):
        if not isinstance(each, torch.dtype):
            raise UsageError(f"{each!r} in dtypes is not a torch.dtype.", hint)


def _usable(name: str, call: Callable[[], Any]) -> Any:
    """Return the result of a first call to CUDA; ``UsageError`` with its reason if it fails.

    A device whose compute mode denies access seems available until it is used. An out-of-memory
    error stays torch's own, because callers may look for that.
    """
    import torch

    try:
        return call()
    except (RuntimeError, torch.cuda.DeferredCudaCallError) as error:
        if lacks_memory(error):
            raise
        hint = '`hostprep verify` says more; device="cpu" does without it'
        raise UsageError(f"{name} cannot be used: {in_a_line(error)}.", hint) from error


def _conversion(dtypes: Mapping[Any, Any], channels_last: bool) -> Callable[[Any], Any] | None:
    """Return how to convert a leaf in place: on the CPU, and if it moves by its own method."""
    if not dtypes and not channels_last:
        return None
    import torch

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        dense = leaf.layout == torch.strided and not leaf.is_nested  # others have no such format
        lasting = channels_last and dense and leaf.dim() == 4
        keep = torch.channels_last if lasting else torch.preserve_format
        there = leaf.to(dtype=dtypes.get(leaf.dtype, leaf.dtype), memory_format=keep)
        if there is not leaf and leaf.requires_grad and leaf.is_leaf:
            return _wanting(there.detach())  # a new leaf, as on the device
        return there

    return convert


def _wanting(leaf: Any) -> Any:
    """Make a leaf collect a gradient of its own, if its type can have one; return it."""
    return leaf.requires_grad_(leaf.is_floating_point() or leaf.is_complex())


class TorchCudaBackend:
    """One CUDA device by torch's streams, events and caching allocator; see ``Backend``."""

    def __init__(self, index: int, dtypes: Mapping[Any, Any], channels_last: bool) -> None:
        import torch

        self._torch = torch
        self._device = torch.device("cuda", index)
        self._dtypes = dict(dtypes)
        self._channels_last = channels_last
        self._convert = _conversion(dtypes, channels_last)

    def new_stream(self) -> Any:
        # This creates CUDA's context if there is none yet.
        stream: Any = self._torch.cuda.Stream
        return _usable(str(self._device), lambda: stream(self._device))

    def current_stream(self) -> Any:
        return self._torch.cuda.current_stream(self._device)

    def record(self, stream: Any) -> Any:
        return stream.record_event()

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def is_done(self, event: Any) -> bool:
        return bool(event.query())

    def synchronize(self, event: Any) -> None:
        event.synchronize()

    def is_host_tensor(self, value: Any) -> bool:
        torch = self._torch
        # Subclasses carry more than their values (torchvision's boxes); `place` keeps that.
        return (
            type(value) in (torch.Tensor, torch.nn.Parameter)
            and value.device.type == "cpu"
            and value.layout == torch.strided
            and not value.is_quantized
            and not value.is_nested
            # Computed from what requires a gradient: `place` keeps the graph.
            and value.is_leaf
        )

    def place(self, value: Any) -> Any:
        # Sparse tensors, PackedSequence, torch_geometric's Data: by their own method, on the
        # consumer's stream and in its grad mode. That may block, but is always correct.
        if moves_itself(value):
            there = moved(value, self._device)
            return there if self._convert is None else self._convert(there)
        return value

    def can_copy_from(self, tensor: Any) -> bool:
        # For a view with gaps torch would make a copy first, in memory that is not page-locked.
        return bool(
            tensor.is_pinned()
            and tensor.stride() == self._strides(tensor)
            and not tensor.is_conj()
            and not tensor.is_neg()
        )

    def stage(self, tensor: Any, buffer: Any | None) -> tuple[Any, Any]:
        torch = self._torch
        size_bytes = tensor.numel() * tensor.element_size()
        with self._plain():
            if buffer is None or buffer.numel() < size_bytes:
                # Explicit, since the program may have set another default device.
                buffer = torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
            flat = buffer[:size_bytes].view(tensor.dtype)
            place = flat.as_strided(tensor.size(), self._strides(tensor))
            place.copy_(tensor)
        return place, buffer

    def allocate(self, tensor: Any) -> tuple[Any, Any]:
        torch = self._torch
        with self._plain():
            landing = torch.empty_strided(
                tensor.size(), self._strides(tensor), dtype=tensor.dtype, device=self._device
            )
            dtype = self._dtypes.get(tensor.dtype, tensor.dtype)
            keep = torch.preserve_format
            if self._channels_last and tensor.dim() == 4:
                keep = torch.channels_last
            if dtype == tensor.dtype and (
                keep == torch.preserve_format or landing.is_contiguous(memory_format=keep)
            ):
                final = landing
            else:
                final = torch.empty_like(landing, dtype=dtype, memory_format=keep)
            return landing, _wanting(final) if tensor.requires_grad else final

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        with self._torch.cuda.stream(stream), self._plain():
            target.copy_(source, non_blocking=True)

    def keep_for(self, value: Any, stream: Any) -> None:
        torch = self._torch
        parts = value if isinstance(value, torch.nn.utils.rnn.PackedSequence) else (value,)
        for part in parts:
            # The memory of sparse and nested tensors, and of other libraries' classes, is unknown
            # here.
            dense = isinstance(part, torch.Tensor) and part.layout == torch.strided
            if dense and part.is_cuda and not part.is_nested:
                part.record_stream(stream)

    @contextmanager
    def _plain(self) -> Iterator[None]:
        """Make tensors that any later step may use, whatever mode the consumer is in by then.

        Under ``inference_mode`` they would be inference tensors, which training must not touch.
        """
        with self._torch.inference_mode(False), self._torch.no_grad():
            yield

    def _strides(self, tensor: Any) -> Any:
        """Return the strides of a contiguous copy of ``tensor``, in its own memory format."""
        return self._torch.empty_like(tensor, device="meta").stride()
