"""A prefetcher: the next batch is copied to the GPU while the GPU works on the current one.

Events alone order all reads and writes, in both directions:

* Device memory is allocated from the consumer's stream, as if the training loop had made it. A copy
  waits for everything in the consumer's stream at that time (which may still read what was in the
  memory before), and the consumer waits for the copy before it reads. So the memory of a released
  batch is the consumer's again, and nobody needs to know when it was released.
* What a copy reads or writes is kept alive until the copy is known to be done: device memory until
  the consumer's stream waits for the copy, host memory until the copy is complete.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hostprep.attributes import attribute_of
from hostprep.cuda.backend import Backend
from hostprep.cuda.batches import leaves, replaced
from hostprep.errors import UsageError

Batch = TypeVar("Batch")
_END = object()
# Number of delivered batches whose host memory may still be held: 1 lets the host run two batches
# ahead of the copies, which keeps the device fed, and limits the page-locked memory.
_BEHIND = 1
# Training code asks for these by name and goes on without those that are missing: a sampler that is
# never told the epoch shuffles each one alike. Not ``state_dict``, which is ahead of the loop.
_OF_THE_LOADER = frozenset(
    {"dataset", "sampler", "batch_sampler", "batch_size", "drop_last", "set_epoch"}
)
# A loader that Accelerate's ``prepare`` returned has this problem: gradient accumulation and the
# gathering of metrics ask it, while a batch is used, whether that is the last.
_AHEAD_OF_ACCELERATE = (
    "CudaPrefetcher draws batches ahead of the loop, so a loader that Accelerate has prepared calls"
    " an earlier batch the last: accumulate() steps there, and gather_for_metrics() drops values of"
    " it. Give the prefetcher a DataLoader that was not prepared"
)


@dataclass(slots=True, eq=False)
class Transfer:
    """A batch on its way: its final form, its copy's event, and everything that the copy touches.

    ``slot`` are our own page-locked buffers, ``sources`` the host tensors that are read in place.
    ``stream`` is the one whose memory the batch is in: its ``tensors`` that were copied, and the
    leaves that were ``placed`` by a method of their own.
    """

    batch: Any
    copied: Any
    stream: Any
    tensors: tuple[Any, ...]
    placed: tuple[Any, ...]
    landings: tuple[Any, ...]
    sources: tuple[Any, ...]
    slot: list[Any] = field(default_factory=list)


class CudaPrefetcher(Generic[Batch]):
    """Iterates over ``loader``'s batches, on the device, copied ahead on a stream of its own.

    ``loader`` is any iterable; each iteration over the prefetcher iterates over it once. Tensors in
    nested mappings, lists, tuples, named tuples and dataclasses are copied; objects with a ``to``
    for devices are moved by it; everything else is passed through unchanged. ``device`` is
    ``"cuda"``, ``"cuda:1"``, or None for the current CUDA device; without CUDA (or with ``"cpu"``)
    the batches are passed through on the CPU, with one warning unless ``"cpu"`` was asked for.
    ``dtypes`` says what to convert on the device: ``{torch.uint8: torch.float16}`` sends bytes over
    the bus. ``channels_last`` gives 4-dimensional tensors that memory format, on the device. A
    tensor that requires a gradient arrives as a leaf that requires one of its own; if it was
    computed from such a tensor (it has a ``grad_fn``), gradients flow back to the loader's tensor,
    as with ``to``, and its copy does not overlap.

    ``depth`` batches are copied ahead of the one delivered. The loader is called in the loop's own
    thread: the first batch comes as soon as its copy has begun, batch n (from 0) once the copies of
    the ``min(n, depth)`` batches after it have. So a loader that is late with a batch holds up the
    loop ``depth`` batches earlier. A copy that began later would not overlap, because it waits for
    everything that the loop has queued.

    Tensors that are not page-locked are first copied into page-locked buffers, ``depth + 2`` sets
    of them, as they are when drawn. A loader that puts new data into anything else it gave before
    corrupts batches without an error, unless it rotates between enough sets: ``depth + 2`` sets of
    page-locked tensors (DataLoader's ``pin_memory=True`` makes new ones), ``depth + 1`` of what is
    passed through unchanged (numpy arrays, other objects, tensors on the device).

    Tensors belong to the stream that was current when the batch was requested; to use one in
    another stream, do what torch requires (``record_stream``). An exception of the loader comes
    after the batches before it. Leaving the loop early waits for the copies under way, at most
    ``depth + 2`` batches, and so for the steps that these wait for.

    Raises ``UsageError`` for a depth below 1, for ``dtypes`` that are not torch's, and for a CUDA
    device that cannot be used: one asked for by name that does not exist, or one that refuses
    access. If memory runs out, torch's own error is raised.
    """

    def __init__(
        self,
        loader: Iterable[Batch],
        device: Any | None = None,
        *,
        depth: int = 1,
        dtypes: Mapping[Any, Any] | None = None,
        channels_last: bool = False,
        backend: Backend | None = None,
    ) -> None:
        if depth < 1:
            raise UsageError(f"a depth of {depth} prefetches nothing.", "give 1 or more")
        self.loader = loader
        self.depth = depth
        self._convert: Any = None
        self._warning: str | None = None
        self._slots: list[list[Any]] = []
        if backend is None:
            from hostprep.cuda.torch_backend import open_backend

            opened = open_backend(device, {} if dtypes is None else dtypes, channels_last)
            backend, self._convert, self._warning = opened
        self._backend = backend
        self._copies = None if backend is None else backend.new_stream()

    def __getattr__(self, name: str) -> Any:
        """Return the loader's own: its data set, samplers and batch size, and ``set_epoch``."""
        if name in _OF_THE_LOADER:
            return getattr(self.loader, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        """Return how many batches there are; raises ``TypeError`` if the loader does not know."""
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the loader once more, from its beginning.

        The loader's own iterator is made at once, as in a loop over it: a DataLoader starts its
        workers, and Lightning's CombinedLoader knows its length from then on.
        """
        if self._backend is None:
            if self._warning is not None:
                _say_once(f"CudaPrefetcher passes batches through on the CPU: {self._warning}")
            return self._passed(iter(self.loader))
        if attribute_of(self.loader, "end_of_dataloader") is not None:
            _say_once(_AHEAD_OF_ACCELERATE)
        return self._prefetched(self._backend, iter(self.loader))

    def _passed(self, source: Iterator[Batch]) -> Iterator[Batch]:
        for batch in source:
            yield batch if self._convert is None else replaced(batch, _once(self._convert))

    def _prefetched(self, backend: Backend, source: Iterator[Batch] | None) -> Iterator[Batch]:
        ready: deque[Transfer] = deque()
        behind: deque[Transfer] = deque()
        failure: Exception | None = None
        ahead = 0  # how many copies to keep under way behind the delivered batch
        try:
            while True:
                while source is not None and len(ready) <= ahead:
                    self._retire(backend, behind, keep=_BEHIND)
                    try:
                        batch: Any = next(source, _END)
                        if batch is not _END:
                            ready.append(self._start(backend, batch))
                    except Exception as error:  # its turn comes after the batches before it
                        failure, batch = error, _END
                    if batch is _END:
                        source = None
                    del batch
                if not ready:
                    break
                transfer = ready.popleft()
                behind.append(transfer)
                # Not bound to a name here, which would keep the batch alive longer than the
                # consumer does.
                yield self._hand_over(backend, transfer)
                # Not all at once: the first batch would have to wait until the loader has made the
                # others, too.
                ahead = min(ahead + 1, self.depth)
            if failure is not None:
                raise failure
        finally:
            failure = None  # its traceback refers to this frame
            self._abandon(backend, ready, behind)

    def _start(self, backend: Backend, batch: Any) -> Transfer:
        """Begin to copy a batch: allocate, wait for the consumer, copy, record."""
        found = {id(leaf): leaf for leaf in leaves(batch)}
        host = [leaf for leaf in found.values() if backend.is_host_tensor(leaf)]
        slot = self._slots.pop() if self._slots else []
        consumer = backend.current_stream()
        try:
            pinned = self._stage(backend, host, slot)
            places = [backend.allocate(tensor) for tensor in host]
            finals = {id(tensor): final for tensor, (_, final) in zip(host, places, strict=True)}
            placed: list[Any] = []

            def put(leaf: Any) -> Any:
                if id(leaf) in finals:
                    return finals[id(leaf)]
                placed.append(backend.place(leaf))
                return placed[-1]

            there = replaced(batch, put)
            self._before_copy(backend, consumer)
            for source, (landing, final) in zip(pinned, places, strict=True):
                backend.copy(landing, source, self._copies)
                if final is not landing:
                    backend.copy(final, landing, self._copies)
            return Transfer(
                batch=there,
                copied=backend.record(self._copies),
                stream=consumer,
                tensors=tuple(final for _, final in places),
                placed=tuple(placed),
                landings=tuple(landing for landing, final in places if landing is not final),
                sources=tuple(pinned),
                slot=slot,
            )
        except BaseException:
            # Copies that were begun still write to memory that is released with this frame.
            backend.synchronize(backend.record(self._copies))
            self._slots.append(slot)
            raise

    def _stage(self, backend: Backend, host: list[Any], slot: list[Any]) -> list[Any]:
        """Return the tensors page-locked; those that were not are in the buffers of ``slot``."""
        pinned = []
        used = 0
        for tensor in host:
            if backend.can_copy_from(tensor):
                pinned.append(tensor)
                continue
            if used == len(slot):
                slot.append(None)
            there, slot[used] = backend.stage(tensor, slot[used])
            used += 1
            pinned.append(there)
        return pinned

    def _before_copy(self, backend: Backend, consumer: Any) -> None:
        """Make the copy wait until the consumer no longer uses what was in this memory before."""
        backend.wait(self._copies, backend.record(consumer))

    def _before_use(self, backend: Backend, consumer: Any, copied: Any) -> None:
        """Make the consumer wait until its batch has arrived."""
        backend.wait(consumer, copied)

    def _hand_over(self, backend: Backend, transfer: Transfer) -> Any:
        """Return the batch; from here on its device memory is the consumer's alone."""
        consumer = backend.current_stream()
        self._before_use(backend, consumer, transfer.copied)
        if consumer != transfer.stream:
            # Allocated for another stream, which may reuse the memory before this one has read it.
            backend.wait(transfer.stream, transfer.copied)
            for value in (*transfer.tensors, *transfer.placed):
                backend.keep_for(value, consumer)
        batch = transfer.batch
        transfer.batch = None
        transfer.tensors = transfer.placed = transfer.landings = ()
        return batch

    def _retire(self, backend: Backend, behind: deque[Transfer], *, keep: int) -> None:
        """Release the host memory of finished copies; wait for all but the last ``keep``."""
        while behind and (len(behind) > keep or backend.is_done(behind[0].copied)):
            transfer = behind.popleft()
            backend.synchronize(transfer.copied)
            self._slots.append(transfer.slot)

    def _abandon(self, backend: Backend, ready: deque[Transfer], behind: deque[Transfer]) -> None:
        """Wait for the copies under way, and only then release what they touch."""
        behind.extend(ready)
        ready.clear()
        self._retire(backend, behind, keep=0)
        # Whatever an interrupt kept out of both lists.
        backend.synchronize(backend.record(self._copies))


def _once(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that converts each leaf of a batch once: a repeated leaf stays one."""
    done: dict[int, tuple[Any, Any]] = {}  # holds the leaf, so that its id is not reused

    def converted(leaf: Any) -> Any:
        if id(leaf) not in done:
            done[id(leaf)] = leaf, convert(leaf)
        return done[id(leaf)][1]

    return converted


_said: set[str] = set()


def _say_once(words: str) -> None:
    if words not in _said:
        _said.add(words)
        warnings.warn(words, RuntimeWarning, 3)
