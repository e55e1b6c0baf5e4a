"""A short look at how a source answers: from memory or from a device, how soon, how parallel."""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TypeVar

from hostprep.dataclass import dataclass
from hostprep.staging.source.scan import Scan
from hostprep.system.trees import DirCache

_FILES = 24
_ARM_FILES = 4
_SECONDS = 0.25
_SIDE_BY_SIDE = 8
_SLOW_SECONDS = 0.003
SAMPLED_BYTES = 128 * 1024
_FEW_BYTES = 4096

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Sample:
    """How a source answered.

    ``cached_share`` is the share of sampled files whose first page was in the page cache, None
    where the file system does not tell; ``seconds`` the median time of opening a file and reading
    its first ``SAMPLED_BYTES``, None where nothing could be read. ``parallel_gain`` is how many
    times sooner 8 files answered side by side than one after the other, None where that was not
    tried. ``open_seconds`` is what opening alone took of ``seconds``.
    """

    files: int
    cached_share: float | None
    seconds: float | None
    parallel_gain: float | None = None
    open_seconds: float | None = None

    @property
    def is_warm(self) -> bool:
        """Whether reads are answered from memory."""
        if self.cached_share is not None:
            return self.cached_share > 0.9
        return self.seconds is not None and self.seconds < 100e-6


def take_sample(source_fd: int, scan: Scan, *, arm: bool) -> Sample:
    """Open and read a few files here and there, for about a quarter of a second at most.

    ``arm`` says that the kernel claims an arm: then a few reads suffice, since each costs a seek.
    A source that answers late is also asked for several files at once.
    """
    # Others each time: an earlier run has brought those that it looked at into memory.
    phase = time.monotonic() % 1
    chosen = _choose(scan, _ARM_FILES if arm else _FILES, phase)
    cached: list[bool] = []
    seconds: list[float] = []
    opening: list[float] = []
    deadline = time.monotonic() + _SECONDS
    with DirCache(source_fd) as cache:
        while chosen and time.monotonic() < deadline:
            directory, name = chosen.pop()
            answer = _read(cache, directory, name)
            if answer is None:
                continue
            hit, opened, spent = answer
            seconds.append(spent)
            opening.append(opened)
            if hit is not None:
                cached.append(hit)
    if not seconds:
        return Sample(0, None, None)
    share = sum(cached) / len(cached) if cached else None
    median = sorted(seconds)[len(seconds) // 2]
    gain = None
    if not arm and median > _SLOW_SECONDS:
        gain = _parallel_gain(source_fd, scan, median, (phase + 0.5) % 1)
    return Sample(len(seconds), share, median, gain, sorted(opening)[len(opening) // 2])


def _choose(scan: Scan, count: int, phase: float) -> list[tuple[str, str]]:
    """Return (directory, name) of files, spread over the directories and in them.

    ``phase`` in [0, 1) chooses others: it moves the picks by this share of their distance.
    """
    listings = [listing for listing in scan.listings if listing.batches or listing.singles]
    chosen: list[tuple[str, str]] = []
    share = -(-count // max(1, len(listings)))
    for number, listing in enumerate(_spread(listings, count, phase)):
        entries = [*listing.singles]
        if listing.batches:
            entries += listing.batches[number % len(listing.batches)].entries()
        entries = [entry for entry in entries if entry.size and stat.S_ISREG(entry.mode)]
        chosen += [(listing.directory, entry.name) for entry in _spread(entries, share, phase)]
    return _spread(chosen, count, phase)


def _spread(items: list[_T], count: int, phase: float) -> list[_T]:
    """Return at most ``count`` of the items at equal distances."""
    step = len(items) / count
    return items if step <= 1 else [items[int((number + phase) * step)] for number in range(count)]


def _read(
    cache: DirCache, directory: str, name: str, size_bytes: int = SAMPLED_BYTES
) -> tuple[bool | None, float, float] | None:
    """Read a file's beginning: (was it cached, seconds to open it, seconds in all), None if not."""
    started = time.monotonic()
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=cache.fd(directory))
    except OSError:
        return None  # the copy will meet it again and say so
    opened = time.monotonic() - started
    try:
        hit = _is_cached(descriptor)
        os.preadv(descriptor, [bytearray(size_bytes)], 0)
        return hit, opened, time.monotonic() - started
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_cached(descriptor: int) -> bool | None:
    """Return whether the file's first page is in the page cache; None where one cannot tell."""
    try:
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            return None
        raise
    return True


def _parallel_gain(source_fd: int, scan: Scan, median_seconds: float, phase: float) -> float | None:
    """Read other files side by side and compare with what they take one after the other.

    Little of each: an arm takes as long for that, while a slow line, which is full with one file as
    with many but takes several at once all the same, does not.
    """
    from concurrent.futures import ThreadPoolExecutor

    chosen = _choose(scan, _SIDE_BY_SIDE, phase)
    if len(chosen) < _SIDE_BY_SIDE:
        return None

    def read(item: tuple[str, str]) -> float | None:
        with DirCache(source_fd) as cache:
            answer = _read(cache, *item, _FEW_BYTES)
            return None if answer is None or answer[0] else time.monotonic() - started

    started = time.monotonic()
    try:
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            answered = [seconds for seconds in pool.map(read, chosen) if seconds is not None]
    except RuntimeError:  # a limit on processes, which counts threads too
        return None
    return gain_of(median_seconds, answered)


def gain_of(median_seconds: float, answered: list[float]) -> float | None:
    """Return how many times sooner files came side by side, by when each came; pure.

    None for less than 4. The last quarter is left out: of many that are far away one or two may be
    late for a reason of their own, and then it is not that they wait for each other.
    """
    if len(answered) < _SIDE_BY_SIDE // 2:
        return None
    most = len(answered) * 3 // 4
    return most * median_seconds / sorted(answered)[most - 1]
