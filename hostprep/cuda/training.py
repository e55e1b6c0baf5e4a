"""An end-to-end pass: files, DataLoader, prefetcher, a small convolutional step; and its parts.

A small network's step is launched faster than its batch is loaded, and then nothing can hide the
loading. Matrix products lengthen it to somewhat more than that, like a real step: then a rate near
that of the slowest part shows that loading was hidden.

Files that were just written are in the page cache. If they are to come from storage, they are
evicted before each timed pass; and if some stay there nevertheless, the result says so.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from hostprep.cuda.bench import Bench
from hostprep.cuda.prefetcher import CudaPrefetcher
from hostprep.cuda.telling import tell
from hostprep.cuda.traces import TrainingTrace
from hostprep.dataclass import dataclass
from hostprep.errors import Inconclusive
from hostprep.host.cpu import scheduled_cpus
from hostprep.system import page_cache
from hostprep.system.own_directory import VERIFY_PREFIX, own_directory
from hostprep.units import MIB, format_count

_SIDE = 128
_SAMPLE_BYTES = 3 * _SIDE * _SIDE
_BATCH = 64
_BATCHES, _QUICK_BATCHES = 64, 24
_MOST_WORKERS = 4
_ROUNDS, _QUICK_ROUNDS = 5, 3
# How much longer than its batch's loading a step should take; its least length, so that host delays
# are small in comparison, and its greatest.
_STEP_OVER_LOADING = 1.5
_LEAST_STEP_SECONDS, _MOST_STEP_SECONDS = 0.005, 0.02
_LEARNING_RATE = 1e-3
# For files that come from storage: how many are read to see how long one takes, how many passes of
# a round and before it read all of them, how long writing them may take whatever time is left, and
# the fewest batches worth a pass.
_TRIED_FILES = 32
_COLD_PASSES = 4
_LEAST_WRITING_SECONDS = 20.0
_FEWEST_BATCHES = 8
_LOOKED_AT_FILES = 64
# Share of the files' pages: more of them in the page cache are worth mentioning.
_CACHED_AT_MOST = 0.05


class RawFiles:
    """A data set of raw images, one in each file: a DataLoader reads them and need not decode."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch

        with open(self.files[index], "rb") as file:
            data = bytearray(file.read())
        return torch.frombuffer(data, dtype=torch.uint8).reshape(3, _SIDE, _SIDE), index % 10


def needed_bytes(quick: bool) -> int:
    """Return how much room the sample data set takes."""
    return _SAMPLE_BYTES * _BATCH * (_QUICK_BATCHES if quick else _BATCHES) + 16 * MIB


@dataclass(slots=True)
class _SampleFiles:
    """The files; ``kept`` is the share that was left in the page cache, each time."""

    files: list[str]
    in_memory: bool
    kept: list[float | None]

    def make_cold(self) -> None:
        """Evict them from the page cache, unless they are in RAM."""
        if not self.in_memory:
            self.kept.append(_forget(self.files))


class _Pass(NamedTuple):
    """The seconds of a pass over all batches, and how long the device was idle in it.

    The idle time is split: until a prefetcher is ahead by its depth (anything else: until the first
    batch), and between the steps after that.
    """

    seconds: float
    first_gap_seconds: float
    gaps_seconds: float


class _Round(NamedTuple):
    """Loading alone, then passes with batches that are loaded, and with one that stays."""

    loading_seconds: float
    fed: _Pass
    resident: _Pass


def train(
    bench: Bench,
    folder: str,
    storage: str,
    bus_bytes_per_s: float,
    quick: bool,
    until: float,
    *,
    in_memory: bool,
) -> TrainingTrace:
    """Return the trace of passes over sample files that are written below ``folder``.

    The files are removed again. ``storage`` says in words what ``folder`` is on; ``in_memory``: it
    is RAM, and nothing is to be evicted from the page cache. After the first no round of passes
    begins that would not end by ``until`` (``time.monotonic()``). Raises ``Inconclusive`` if the
    files are written too slowly.
    """
    import torch

    batches = _QUICK_BATCHES if quick else _BATCHES
    with _sample_files(folder, batches, until, in_memory=in_memory) as samples:
        loader = _loader(samples.files)
        dtypes = {torch.uint8: torch.float32}
        prefetcher = CudaPrefetcher(
            loader, bench.device.index, depth=2, dtypes=dtypes, channels_last=True
        )
        network = _step(bench)
        _timed_pass(bench, prefetcher, network)  # workers start, cuDNN chooses, memory is reserved
        samples.make_cold()
        longer = _STEP_OVER_LOADING * _loading_seconds(loader) / len(loader)
        ballast = bench.products(min(_MOST_STEP_SECONDS, max(_LEAST_STEP_SECONDS, longer)))

        def step(batch: Any) -> None:
            network(batch)
            ballast()

        resident = next(iter(prefetcher))
        samples.kept.clear()
        rounds: list[_Round] = []
        most, round_seconds = _QUICK_ROUNDS if quick else _ROUNDS, 0.0
        # In turns, so that a hiccup or a drift does not affect one of the three alone.
        while not rounds or (len(rounds) < most and time.monotonic() + round_seconds < until):
            round_began = time.monotonic()
            samples.make_cold()
            loaded = _loading_seconds(loader)
            samples.make_cold()
            fed = _timed_pass(bench, prefetcher, step)
            stays = _timed_pass(bench, repeat(resident, len(loader)), step)
            rounds.append(_Round(loaded, fed, stays))
            round_seconds = time.monotonic() - round_began
        del loader, prefetcher
    count = len(samples.files)
    seconds = median(each.fed.seconds for each in rounds)
    resident_seconds = median(each.resident.seconds for each in rounds)
    return TrainingTrace(
        storage=storage if in_memory else f"{storage}, {_origin(samples.kept)}",
        samples=count,
        rounds=len(rounds),
        seconds=seconds,
        first_batch_seconds=median(each.fed.first_gap_seconds for each in rounds),
        gaps_seconds=median(each.fed.gaps_seconds for each in rounds),
        resident_seconds=resident_seconds,
        resident_gaps_seconds=median(each.resident.gaps_seconds for each in rounds),
        samples_per_s=count / seconds,
        loader_samples_per_s=count / median(each.loading_seconds for each in rounds),
        step_samples_per_s=count / resident_seconds,
        bus_samples_per_s=bus_bytes_per_s / _SAMPLE_BYTES,
    )


@contextmanager
def _sample_files(
    folder: str, batches: int, until: float, *, in_memory: bool
) -> Iterator[_SampleFiles]:
    """Write sample files below ``folder``, and remove them again."""
    with own_directory(folder, VERIFY_PREFIX) as place_fd:
        # By its descriptor: the folder's owner may move it and put a symlink in its place.
        place = f"/proc/{os.getpid()}/fd/{place_fd}"
        status = os.fstat(place_fd)
        # Told to the parent, in case this process is killed.
        tell("folder", path=os.readlink(place), device=status.st_dev, inode=status.st_ino)
        files = _written(place, batches, until)
        if not in_memory:
            page_cache.write_out(place)
            files = files[: _BATCH * _batches_until(files, until)]
        yield _SampleFiles(files, in_memory, [])


def _loader(files: list[str]) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(
        RawFiles(files),  # type: ignore[arg-type]
        batch_size=_BATCH,
        shuffle=True,
        num_workers=max(1, min(_MOST_WORKERS, len(scheduled_cpus()) - 1)),
        pin_memory=True,
        persistent_workers=True,
        # Python's default from 3.14 on would make each worker import torch: seconds of a short run.
        multiprocessing_context="fork",
    )


def _written(place: str, batches: int, until: float) -> list[str]:
    """Write the sample files of that many batches, or fewer if it takes long; return them.

    Raises ``Inconclusive`` if not even a few are written by ``until``.
    """
    began = time.monotonic()
    left = max(0.0, until - began)
    enough, late = began + left / 3, began + max(left, _LEAST_WRITING_SECONDS)
    files: list[str] = []
    while len(files) < batches * _BATCH:
        few, now = len(files) < _FEWEST_BATCHES * _BATCH, time.monotonic()
        if few and now > late:
            raise Inconclusive(
                f"writing {format_count(len(files), 'sample file')} took {now - began:.0f} s"
            )
        if not few and now > enough and len(files) % _BATCH == 0:
            break
        files.append(f"{place}/{len(files)}.raw")
        Path(files[-1]).write_bytes(os.urandom(_SAMPLE_BYTES))
    return files


def _batches_until(files: Sequence[str], until: float) -> int:
    """Return how many batches one round can read from storage by ``until``; at least a few."""
    tried = random.sample(files, min(_TRIED_FILES, len(files)))
    _forget(tried)
    began = time.perf_counter()
    for file in tried:
        Path(file).read_bytes()
    batch_seconds = (time.perf_counter() - began) / len(tried) * _BATCH
    can = int((until - time.monotonic()) / _COLD_PASSES / max(batch_seconds, 1e-9))
    return min(len(files) // _BATCH, max(_FEWEST_BATCHES, can))


def _forget(files: Sequence[str]) -> float | None:
    """Evict files that were flushed before from the page cache.

    Return the share of them that stays there, None if that cannot be seen.
    """
    for file in files:
        page_cache.evict(file, written_out=True)
    return page_cache.resident_share(files[-_LOOKED_AT_FILES:])


def _origin(kept: Sequence[float | None]) -> str:
    """Return in words where files came from; ``kept`` is the share in the page cache each time."""
    shares = [share for share in kept if share is not None]
    if len(shares) < len(kept):
        return "how much of it came from the page cache cannot be seen"
    if max(shares) > _CACHED_AT_MOST:
        return f"{max(shares):.0%} of it came from the page cache, which could not be emptied"
    return "not from the page cache"


def _loading_seconds(loader: Iterable[Any]) -> float:
    """Return how long the loader takes for all its batches if nobody uses them."""
    began = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - began


def _step(bench: Bench) -> Any:
    """Return a function that takes a batch and queues a training step of a small network."""
    from torch import nn

    network: Any = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    torch = bench.torch
    network = network.to(bench.device, memory_format=torch.channels_last)
    parameters = list(network.parameters())

    def step(batch: Any) -> None:
        images, labels = batch
        loss = nn.functional.cross_entropy(network(images / 255), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        # Not torch.optim: it first imports torch's compiler, seconds out of the twenty of --quick.
        with torch.no_grad():
            for parameter in parameters:
                parameter.sub_(parameter.grad, alpha=_LEARNING_RATE)
                parameter.grad = None

    return step


def _timed_pass(bench: Bench, batches: Iterable[Any], step: Any) -> _Pass:
    """Go through ``batches`` once, with a ``step`` for each.

    One event before each step marks when its batch has arrived, another after it when the step is
    done.
    """
    torch = bench.torch
    # Up to there each step waits for two of the loader's batches: once an epoch, as for the first.
    beginning = 1 + (batches.depth if isinstance(batches, CudaPrefetcher) else 0)
    torch.cuda.synchronize(bench.device)
    began = time.perf_counter()
    marks: list[tuple[Any, Any]] = []
    last: Any = torch.cuda.Event(enable_timing=True)
    last.record()
    gaps = []
    for batch in batches:
        start: Any = torch.cuda.Event(enable_timing=True)
        end: Any = torch.cuda.Event(enable_timing=True)
        start.record()
        step(batch)
        end.record()
        marks.append((start, end))
    torch.cuda.synchronize(bench.device)
    seconds = time.perf_counter() - began
    for start, end in marks:
        gaps.append(last.elapsed_time(start) / 1e3)
        last = end
    return _Pass(seconds, sum(gaps[:beginning]), sum(gaps[beginning:]))
