"""How a source is best read: by how many readers at once and in which order, and why.

Facts: one arm wants one reader in the order of the disk; RAM wants as many processes as cores and
no more; everything that answers late wants more requests in flight than cores (Little's law).
"""

from __future__ import annotations

import errno
import math
import os
import random
import time
from dataclasses import dataclass

from hostprep.host.block import StorageClass
from hostprep.staging.scan import Scan
from hostprep.staging.tree import DirCache

_SAMPLE_FILES = 24
_SAMPLE_SECONDS = 0.25
# What a core spends on a file beside waiting for it, measured on small files.
_CPU_SECONDS_A_FILE = 60e-6
_LEAST_COLD_READERS = 16
_MOST_READERS = 64
# Fewer readers than this share of MemAvailable in data leave the page cache alone.
_DROP_BEHIND_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Sample:
    """A short look at how a source answers.

    ``cached_share`` is the share of sampled files whose first page was in the page cache, None
    where the file system does not tell; ``seconds`` the median time of opening a file and reading
    its first 128 KiB, None where nothing could be read.
    """

    files: int
    cached_share: float | None
    seconds: float | None

    @property
    def is_warm(self) -> bool:
        """Whether reads are answered from memory."""
        if self.cached_share is not None:
            return self.cached_share > 0.9
        return self.seconds is not None and self.seconds < 100e-6


@dataclass(frozen=True, slots=True)
class Reading:
    """``processes`` x ``threads`` readers, in ``order`` (``listed``, ``physical`` or ``inode``).

    A task carries at least ``task_files`` files where directories hold fewer.
    """

    processes: int
    threads: int
    order: str
    drop_behind: bool
    task_files: int
    reason: str

    @property
    def readers(self) -> int:
        """Return how many files are read at once."""
        return self.processes * self.threads


def choose_reading(
    storage_class: StorageClass,
    sample: Sample,
    *,
    cpus: int,
    size_bytes: int,
    available_bytes: int | None,
    readers: int | None = None,
    order: str | None = None,
    gentle: bool = False,
) -> Reading:
    """Choose concurrency and order for a source; pure.

    ``cpus`` are the cores that may be used, ``size_bytes`` what is to be read,
    ``available_bytes`` the machine's free memory. ``readers`` and ``order`` override.
    """
    drop = (
        not sample.is_warm
        and storage_class is not StorageClass.RAM
        and available_bytes is not None
        and size_bytes > available_bytes * _DROP_BEHIND_SHARE
    )
    if gentle:
        return Reading(1, 1, order or "listed", drop, 64, "one reader, as --gentle asks")
    if readers is not None:
        processes = min(readers, cpus)
        threads = math.ceil(readers / processes)
        return Reading(
            processes, threads, order or "listed", drop, _task_files(readers), "as --readers asks"
        )
    if sample.is_warm or storage_class is StorageClass.RAM:
        where = "in RAM" if storage_class is StorageClass.RAM else "in the page cache"
        return Reading(
            cpus, 1, order or "listed", drop, 64, f"the source is {where}: one process a core"
        )
    if storage_class is StorageClass.ARM:
        return Reading(
            1,
            1,
            order or "physical",
            True,
            64,
            "a disk with an arm: one reader, in the order of the disk",
        )
    wait_seconds = sample.seconds or 0.0
    wanted = math.ceil(cpus * (1 + wait_seconds / _CPU_SECONDS_A_FILE))
    in_flight = min(max(wanted, _LEAST_COLD_READERS), _MOST_READERS)
    threads = math.ceil(in_flight / cpus)
    reason = (
        f"a cold file answers after {wait_seconds * 1000:.1f} ms: {cpus * threads} in flight keep "
        f"{cpus} cores busy (Little's law, at most {_MOST_READERS})"
    )
    return Reading(cpus, threads, order or "listed", drop, _task_files(in_flight), reason)


def _task_files(readers: int) -> int:
    # Many slow readers: small tasks, so that the last ones do not wait for one with a full hand.
    return 64 if readers <= 4 else 16


def take_sample(source_fd: int, scan: Scan) -> Sample:
    """Open and read a few files here and there, for at most about a quarter of a second."""
    chooser = random.Random(0)
    candidates = [listing for listing in scan.listings if listing.batches]
    if not candidates:
        return Sample(0, None, None)
    chosen = chooser.sample(candidates, min(len(candidates), _SAMPLE_FILES))
    cached: list[bool] = []
    seconds: list[float] = []
    buffer = bytearray(128 * 1024)
    deadline = time.monotonic() + _SAMPLE_SECONDS
    with DirCache(source_fd) as cache:
        for listing in chosen:
            batch = chooser.choice(listing.batches)
            for entry in chooser.sample(
                files := [entry for entry in batch.entries() if entry.size],
                min(len(files), max(1, _SAMPLE_FILES // len(chosen))),
            ):
                started = time.monotonic()
                try:
                    descriptor = os.open(
                        entry.name,
                        os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                        dir_fd=cache.fd(listing.directory),
                    )
                except OSError:
                    continue  # the copy will meet it again and say so
                try:
                    hit = _is_cached(descriptor)
                    if hit is not None:
                        cached.append(hit)
                    os.preadv(descriptor, [buffer], 0)
                    seconds.append(time.monotonic() - started)
                except OSError:
                    continue
                finally:
                    os.close(descriptor)
                if time.monotonic() > deadline:
                    break
            if time.monotonic() > deadline:
                break
    share = sum(cached) / len(cached) if cached else None
    return Sample(len(seconds), share, sorted(seconds)[len(seconds) // 2] if seconds else None)


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
