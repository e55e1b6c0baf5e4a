"""Rebuilds the user's loader with other settings and with samples that were not read before."""

from __future__ import annotations

import itertools
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.loading.child import processes
from hostprep.loading.child.delivery import StampingCollate
from hostprep.loading.child.given import (
    batch_sampler_of,
    draws_plainly,
    in_order,
    inner_sampler,
    is_shuffled,
)
from hostprep.loading.child.opening import Opened
from hostprep.loading.model import Batching

_RANDPERM_AT_MOST = 20_000_000
_SEED = 20_240_229
_CHUNK = 4096
# This many samples in a row that are None are no accident.
_ABSENT_AT_MOST = 16


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """What to time. ``first`` is the position where unseen samples begin.

    It counts what the sampler draws: samples, or batches for a batch sampler. ``batch_size`` is
    None if batches have to be counted. The clock runs for at least ``seconds``, and all must be
    over after ``limit_seconds``. ``ready`` hands out one prepared sample over and over;
    ``background`` puts prefetch_generator's thread around the loader. ``own_way`` iterates in the
    way of the loader's own class, if it has one.
    """

    workers: int
    prefetch_factor: int
    batch_size: int | None
    first: int
    seconds: float
    limit_seconds: float
    ready: bool = False
    background: bool = False
    own_way: bool = True


class _Endless:
    """An endless order; its length is the largest possible, because some classes use it.

    ``over`` says that it has ended nevertheless, because the sampler has no more to give.
    """

    over = False

    def __len__(self) -> int:
        return sys.maxsize


class UnseenIndices(_Endless):
    """The order of samples, a fixed permutation or their own; endless, from ``first`` on."""

    def __init__(self, length: int, first: int, shuffled: bool) -> None:
        self.length = length
        self.first = first
        self.shuffled = shuffled
        self.taken = 0

    @property
    def seen_before(self) -> bool:
        """Return whether all samples were taken, and at least one of them again."""
        return self.first + self.taken > self.length

    def __iter__(self) -> Iterator[int]:
        import torch

        order = None
        if self.shuffled and self.length <= _RANDPERM_AT_MOST:
            # On the CPU whatever torch.set_default_device says: a generator belongs to one device.
            generator = torch.Generator().manual_seed(_SEED)
            order = torch.randperm(self.length, generator=generator, device="cpu")
        position = self.first % self.length
        while True:
            some: Sequence[int] = range(position, min(position + _CHUNK, self.length))
            if order is not None:
                # Reading a tensor's elements one by one takes a microsecond each, which shows with
                # ready samples.
                some = order[position : position + _CHUNK].tolist()
            for place in some:
                self.taken += 1
                if order is None and self.shuffled:
                    # The period is so long that almost certainly no sample comes twice.
                    yield (place * 0x9E3779B97F4A7C15 + 1) % self.length
                else:
                    yield place
            position = (position + _CHUNK) if position + _CHUNK < self.length else 0


class UnseenEntries(_Endless):
    """What the user's own sampler yields, endless, from the entry ``first`` on.

    If entries are ``lists`` of indices, ``sizes`` has the length of each.
    """

    def __init__(self, sampler: Any, first: int, *, lists: bool) -> None:
        self.sampler = sampler
        self.first = first
        self.lists = lists
        self.sizes: list[int] = []
        self.taken = 0
        self.seen_before = False

    def __iter__(self) -> Iterator[Any]:
        _fix_dice()
        skip = self.first
        while True:
            came = False
            for entry in self.sampler:
                came = True
                if skip:
                    skip -= 1
                    continue
                self.taken += 1
                if self.lists:
                    self.sizes.append(len(entry))
                yield entry
            if not came:
                self.over = True
                return
            self.seen_before = True


def _fix_dice() -> None:
    """Make a sampler draw the same order in every process: what one has seen, the next skips."""
    import torch

    random.seed(_SEED)
    torch.manual_seed(_SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(_SEED)


class ReadySamples:
    """A data set that hands out one sample made beforehand: only the transport remains."""

    def __init__(self, sample: Any, length: int) -> None:
        self.sample = sample
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.sample


class TimedCollate:
    """A collate function with a stopwatch."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def __call__(self, samples: Any) -> Any:
        wall, cpu = time.perf_counter(), time.thread_time()
        batch = self.collate(samples)
        self.seconds += time.perf_counter() - wall
        self.cpu_seconds += time.thread_time() - cpu
        return batch


@dataclass(slots=True)
class Built:
    """A DataLoader, the order of its samples, and the stopwatch in its collate function.

    With workers its batches come ``Stamped``. ``batch_size`` is None if batches differ: then
    ``sizes`` has the size of each in turn, including those still on their way; it is None if only
    the batches themselves can tell.
    """

    loader: Any
    order: UnseenIndices | UnseenEntries | None
    collate: TimedCollate | None
    batch_size: int | None
    sizes: Sequence[int] | None

    def samples(self, first: int, last: int, seen: Sequence[int]) -> int:
        """Return the number of samples in the batches from number ``first`` up to ``last``.

        ``seen`` has the sizes counted from the batches, used if nothing else tells.
        """
        if self.batch_size is not None:
            return self.batch_size * (last - first)
        return sum((seen if self.sizes is None else self.sizes)[first:last])


def build(opened: Opened, job: ProbeJob) -> Built:
    """Return the user's loader with ``job``'s settings and unseen samples, otherwise as it was."""
    from torch.utils.data import DataLoader, default_collate

    theirs = opened.loader
    # The warning of more workers than processors: hostprep tries them here, not the user, whose
    # code may have turned warnings into errors.
    warnings.filterwarnings("ignore", "This DataLoader will create ")
    options: dict[str, Any] = {"num_workers": job.workers}
    if job.workers:
        options["prefetch_factor"] = job.prefetch_factor
        options["worker_init_fn"] = processes.WorkerStart(
            None if theirs is None else theirs.worker_init_fn
        )
        if theirs is not None and theirs.multiprocessing_context is not None:
            options["multiprocessing_context"] = theirs.multiprocessing_context
        if not in_order(theirs):  # a slow batch then holds nothing up, perhaps the whole benefit
            options["in_order"] = False
    collate = opened.collate or default_collate
    timed = None
    if job.workers:
        collate = StampingCollate(collate)
    elif not job.ready:
        collate = timed = TimedCollate(collate)
    if job.ready:
        return _ready(opened, job, {**options, "collate_fn": collate})
    order = _order(opened, job.first)
    by_themselves = opened.batching in (Batching.SAMPLER, Batching.DATASET)
    if opened.batching is Batching.BATCH_SAMPLER:
        options["batch_sampler"] = order
    else:
        options["sampler"] = order
        options["batch_size"] = None if by_themselves else job.batch_size
    loader = DataLoader(opened.dataset, collate_fn=collate, **options)
    sizes = order.sizes if isinstance(order, UnseenEntries) and order.lists else None
    return Built(loader, order, timed, job.batch_size, sizes)


def _order(opened: Opened, first: int) -> UnseenIndices | UnseenEntries | None:
    """Return the order in which samples are asked for; None for a stream, which has its own."""
    theirs = opened.loader
    if opened.kind == "stream":
        return None
    if opened.batching is Batching.BATCH_SAMPLER:
        return UnseenEntries(batch_sampler_of(theirs), first, lists=True)
    if opened.batching is Batching.SAMPLER:
        return UnseenEntries(theirs.sampler, first, lists=True)
    if not draws_plainly(theirs):
        return UnseenEntries(inner_sampler(theirs), first, lists=False)
    samples = opened.dataset if theirs is None else inner_sampler(theirs).data_source
    return UnseenIndices(len(samples), first, not opened.mixed and is_shuffled(theirs))


def _ready(opened: Opened, job: ProbeJob, options: dict[str, Any]) -> Built:
    """Return a loader whose batches repeat one sample, made here."""
    from torch.utils.data import DataLoader

    size = job.batch_size
    order = _order(opened, 0)
    if order is None:
        sample = _present(iter(opened.dataset))
    else:
        keys: Iterable[Any] = order
        if opened.batching is Batching.BATCH_SAMPLER:
            batch = next(iter(order))
            keys, size = batch, len(batch)
        many = getattr(opened.dataset, "__getitems__", None)
        if many and opened.batching in (Batching.SIZE, Batching.BATCH_SAMPLER):
            # torch asks this way for a whole batch
            sample = _present(many([key])[0] for key in keys)
        else:
            sample = _present(opened.dataset[key] for key in keys)
        if opened.batching is Batching.SAMPLER:
            assert isinstance(order, UnseenEntries)
            size = order.sizes[-1]
    whole = opened.batching in (Batching.SAMPLER, Batching.DATASET)
    dataset: Any = ReadySamples(sample, 1 << 30)
    loader = DataLoader(dataset, batch_size=None if whole else size, **options)
    return Built(loader, None, None, size, None)


def _present(samples: Iterator[Any]) -> Any:
    """Return the first sample that is not None: a collate function may leave out those that are."""
    some = itertools.islice(samples, _ABSENT_AT_MOST)
    return next((sample for sample in some if sample is not None), None)
