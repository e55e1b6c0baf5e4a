"""The user's loader, built anew with other settings and samples that were not read before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hostprep.loading import processes
from hostprep.loading.opening import Opened, is_shuffled

_RANDPERM_AT_MOST = 20_000_000
_SEED = 20_240_229
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """What to time. ``first`` is the position in the order of samples where unseen ones begin.

    ``seconds`` is how long the clock runs at least, ``limit_seconds`` when all must be over.
    ``ready`` hands out one prepared sample over and over; ``background`` puts prefetch_generator's
    thread around the loader.
    """

    workers: int
    prefetch_factor: int
    batch_size: int
    first: int
    seconds: float
    limit_seconds: float
    ready: bool = False
    background: bool = False


class UnseenIndices:
    """The order of samples: a fixed permutation, or their own order; endless, from ``first`` on."""

    def __init__(self, length: int, first: int, shuffled: bool) -> None:
        self.length = length
        self.first = first
        self.shuffled = shuffled
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        import torch

        order = None
        if self.shuffled and self.length <= _RANDPERM_AT_MOST:
            generator = torch.Generator().manual_seed(_SEED)
            order = torch.randperm(self.length, generator=generator)
        position = self.first % self.length
        while True:
            some: Sequence[int] = range(position, min(position + _CHUNK, self.length))
            if order is not None:
                # A tensor's elements one by one take a microsecond each: ready samples show it.
                some = order[position : position + _CHUNK].tolist()
            for place in some:
                self.taken += 1
                if order is None and self.shuffled:
                    # So long that none comes twice, all but surely.
                    yield (place * 0x9E3779B97F4A7C15 + 1) % self.length
                else:
                    yield place
            position = (position + _CHUNK) if position + _CHUNK < self.length else 0


class UnseenBatches:
    """The user's own batch sampler, endless, from the batch on that holds sample ``first``."""

    def __init__(self, sampler: Any, batch_size: int, first: int) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.first = first
        self.taken = 0

    def __iter__(self) -> Iterator[Any]:
        skip = self.first // self.batch_size
        while True:
            came = False
            for batch in self.sampler:
                came = True
                if skip:
                    skip -= 1
                    continue
                self.taken += len(batch)
                yield batch
            if not came:
                return


class ReadySamples:
    """A data set that hands out one sample it made before: what remains is the transport."""

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


class Stamped(NamedTuple):
    """A batch as a worker hands it over: by whom, and when it was made (``time.perf_counter``)."""

    worker: int
    at: float
    batch: Any


class StampingCollate:
    """A collate function in a worker that tells who made a batch, and when.

    The clock of ``time.perf_counter`` is the same in all processes of a Linux machine.
    """

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: Any) -> Stamped:
        from torch.utils.data import get_worker_info

        batch = self.collate(samples)
        worker = get_worker_info()
        return Stamped(0 if worker is None else worker.id, time.perf_counter(), batch)


@dataclass(slots=True)
class Built:
    """A DataLoader, the order of its samples, and the stopwatch in its collate function.

    With workers its batches come ``Stamped``.
    """

    loader: Any
    order: Any
    collate: TimedCollate | None


def build(opened: Opened, job: ProbeJob) -> Built:
    """Return the user's loader with ``job``'s settings and unseen samples; their own otherwise."""
    from torch.utils.data import DataLoader, default_collate

    theirs = opened.loader
    options: dict[str, Any] = {"num_workers": job.workers}
    if job.workers:
        options["prefetch_factor"] = job.prefetch_factor
        options["worker_init_fn"] = processes.WorkerStart(
            None if theirs is None else theirs.worker_init_fn
        )
        if theirs is not None and theirs.multiprocessing_context is not None:
            options["multiprocessing_context"] = theirs.multiprocessing_context
    collate = opened.collate or default_collate
    timed = None
    if job.workers:
        collate = StampingCollate(collate)
    elif not job.ready:
        collate = timed = TimedCollate(collate)
    dataset = opened.dataset
    order: UnseenIndices | UnseenBatches | None = None
    if job.ready:
        dataset = ReadySamples(_one(opened), 1 << 30)
        options["batch_size"] = job.batch_size
    elif opened.kind == "stream":
        options["batch_size"] = job.batch_size
    elif theirs is not None and _has_own_batches(theirs):
        order = UnseenBatches(theirs.batch_sampler, opened.batch_size, job.first)
        options["batch_sampler"] = order
    else:
        order = UnseenIndices(opened.length or 0, job.first, is_shuffled(theirs))
        options["sampler"] = order
        options["batch_size"] = job.batch_size
    if theirs is not None and theirs.batch_sampler is None:
        options["batch_size"] = None  # their data set makes whole batches
    return Built(DataLoader(dataset, collate_fn=collate, **options), order, timed)


def _has_own_batches(loader: Any) -> bool:
    from torch.utils.data import BatchSampler

    return loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler


def _one(opened: Opened) -> Any:
    return next(iter(opened.dataset)) if opened.kind == "stream" else opened.dataset[0]
