"""Why figures may not be what the storage gives: contradictions between them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hostprep.host.block import StorageClass
from hostprep.probing.behaviour import FLASH_IOPS_AT_LEAST
from hostprep.probing.judgement import Reason
from hostprep.probing.model import (
    RANDOM_READS,
    SEQUENTIAL_READS,
    SMALL_FILES,
    Fewer,
    FioRun,
    Measured,
    SmallFiles,
    SmallRun,
)
from hostprep.probing.others import held_up_by_others
from hostprep.probing.processors import held_back, held_back_in_memory
from hostprep.probing.rates import FAILING, PASS_SHARE, TOO_LITTLE_TIME
from hostprep.probing.read_limits import held_to
from hostprep.probing.steady import slowed, sped_up
from hostprep.units import format_bytes

# Flash needs 40 us and more, Optane 10, memory 1 to 5; a virtual disk adds 10 to 30 to its own.
_MEMORY_SECONDS = 20e-6
_BEHIND_ANOTHER = frozenset({StorageClass.FUSE, StorageClass.NETWORK})
_DELIVERED_AT_LEAST = 0.5
# btrfs shrinks 128 KiB at most to one block of 4 KiB; training data shrinks far less.
_DELIVERED_COMPRESSED_AT_LEAST = 0.02
_CACHED_AT_MOST = _HOLES_AT_MOST = 0.05
_FEWEST_FILES = 20
_AS_CACHED_AT_MOST = 1.5  # times as long
# What gains nothing from a few requests at a time gains nothing from many.
_NO_GAIN_BELOW = 1.2


def contradictions(measured: Measured) -> tuple[Reason, ...]:
    """Return why the numbers are not what the storage gives; none if they are consistent."""
    if measured.storage.storage_class is StorageClass.RAM:
        # In memory, caches and speeds beyond any disk's are normal.
        return (*_missing(measured), *held_back_in_memory(measured))
    reasons = [*_missing(measured)]
    if measured.layout_holes:
        reasons.append(Reason("holes", "the test file has holes, which cost nothing to read"))
    # If the disks below a loop device are visible, their counters decide.
    for device in measured.storage.disks or measured.storage.devices:
        if device.cached:
            text = f"{device.name} reads its file through the page cache, to an unknown extent"
            reasons.append(Reason("buffered", text))
    reasons += _too_fast(measured)
    reasons += _from_their_memory(measured)
    reasons += _of_file(measured)
    if measured.small is not None:
        reasons += _of_small(measured, measured.small)
    reasons += held_up_by_others(measured)
    # What a cache answered asks nothing of the disks, and says nothing about their later speed.
    of_disks = tuple(run for run in measured.fio if not _of_cache(measured, run))
    reasons += slowed(replace(measured, fio=of_disks))
    reasons += sped_up(replace(measured, fio=of_disks))
    told = {(reason.code, reason.of): reason for reason in reversed(reasons)}
    return tuple(told.values())[::-1]


def _of_file(measured: Measured) -> list[Reason]:
    """Return what casts doubt on the figures of the file that fio read."""
    reasons: list[Reason] = []
    share = measured.file_cached_share
    if share is not None and share > _CACHED_AT_MOST:
        text = f"{share:.0%} of the file that was read stayed in memory: a layer of it is a tmpfs"
        reasons += [Reason("in_memory", text, of) for of in (SEQUENTIAL_READS, RANDOM_READS)]
    for run in measured.fio:
        if not measured.layout_holes:
            reasons += _of_cache(measured, run)
        reasons += held_back(run)
        reasons += held_to(measured, run)
        if not measured.direct and run.load.device_bytes is None:
            text = f"{run.words} could not bypass the page cache, nor tell what came from it"
            reasons.append(Reason("buffered", text, run.of))
    return reasons


def _of_small(measured: Measured, small: SmallFiles) -> list[Reason]:
    """Return what casts doubt on the figures of small files."""
    reasons: list[Reason] = []
    compressed = measured.compressed and small.source == "dataset"
    least = _DELIVERED_COMPRESSED_AT_LEAST if compressed else _DELIVERED_AT_LEAST
    sparse = is_sparse(measured)
    if sparse:
        reasons.append(Reason("holes", holes(measured), SMALL_FILES))
    for run in small.cold:
        if not sparse:
            reasons += _not_delivered(run, run.read_bytes + run.again_bytes, least)
        reasons += held_back(run)
        reasons += held_to(measured, run)
    if small.fault is not None:
        text = f"the storage fails: there are files that could not be read ({small.fault})"
        reasons.append(Reason(FAILING, text))
    share = small.cached_share
    if share is not None and share > _CACHED_AT_MOST:
        why = "a program holds them there"
        if measured.storage.storage_class is StorageClass.OVERLAY:
            why += ", or a layer is a tmpfs"
        text = f"{share:.0%} of the small files stayed in memory: {why}"
        reasons.append(Reason("in_memory", text, SMALL_FILES))
    elif _as_from_memory(small):
        text = "small files came as fast as from memory: a cache or a tmpfs answered"
        reasons.append(Reason("in_memory", text, SMALL_FILES))
    return reasons


def _missing(measured: Measured) -> tuple[Reason, ...]:
    reasons = [
        Reason(TOO_LITTLE_TIME, f"{fewer.message}: more at a time may give more", fewer.of)
        for fewer in measured.fewer
        if _may_give_more(measured, fewer)
    ]
    if measured.fio_note:
        reasons.append(Reason("fio_unfinished", measured.fio_note))
    elif not measured.fio and not measured.fio_fewer:
        note = measured.file_note or "no reason given"
        text = f"there was no file for fio to read: {note}"
        reasons.append(Reason("no_file", text, SEQUENTIAL_READS))
    if measured.dataset_note:
        text = f"the data set itself was not measured: {measured.dataset_note}"
        reasons.append(Reason("unreadable", text))
    small = measured.small
    if small is None:
        note = measured.small_note or "none was finished in time"
        # Shards are judged by sequential reads, whatever small files give.
        of = SMALL_FILES if measured.dataset.large_files else None
        reasons.append(Reason("no_small_files", f"small files were not measured: {note}", of))
    elif small.best.files < _FEWEST_FILES:
        were = "file was" if small.best.files == 1 else "files were"
        text = f"only {small.best.files} {were} read in the time given"
        reasons.append(Reason("too_few_files", text, SMALL_FILES))
    return tuple(reasons)


def _may_give_more(measured: Measured, fewer: Fewer) -> bool:
    """Return whether the rate may be higher with as many reads at a time as were wanted."""
    if fewer.used is None:
        return True
    if fewer.of == SMALL_FILES:
        cold = measured.small.cold if measured.small is not None else ()
        return len(cold) < 2 or cold[1].files_per_s >= _NO_GAIN_BELOW * cold[0].files_per_s
    pattern = "read" if fewer.of == SEQUENTIAL_READS else "randread"
    single, queued = measured.run(pattern, 1), measured.run(pattern, fewer.used)
    return single is None or queued is None or queued.iops >= _NO_GAIN_BELOW * single.iops


def _too_fast(measured: Measured) -> list[Reason]:
    """Random reads at the speed of memory, or beyond a hard disk's: a cache answered."""
    single, sequential = measured.run("randread", 1), measured.sequential
    if single is None or sequential is None:
        return []
    # If it may be the page cache, small files were evicted from that before.
    of = None if measured.direct else RANDOM_READS
    if (
        measured.storage.storage_class is StorageClass.ARM
        and single.iops >= FLASH_IOPS_AT_LEAST
        and not any(disk.virtual for disk in measured.storage.disks)
    ):
        text = f"{single.iops:,.0f} random reads a second are more than a hard disk can do"
        return [Reason("random_too_fast", f"{text}: a cache answered", of)]
    alike = measured.run("read", 1) or sequential
    if _at_memory_speed(single) and single.bytes_per_s >= PASS_SHARE * alike.bytes_per_s:
        text = "random 4 KiB reads were as fast as sequential ones: a cache answered"
        return [Reason("random_too_fast", text, of)]
    return []


def _at_memory_speed(single: FioRun) -> bool:
    return single.latency is not None and single.latency.p50 < _MEMORY_SECONDS


def _from_their_memory(measured: Measured) -> Iterator[Reason]:
    """Yield the rates of a cache in front of the disks: a program's, a server's, a loop device's.

    What the disks deliver is not counted there, or may be for others; but requests answered this
    fast left no time for a disk. Files that were just made are in that cache like the large one;
    others need not be.
    """
    storage, small, single = measured.storage, measured.small, measured.run("randread", 1)
    if single is None or single.latency is None or not _at_memory_speed(single):
        return
    apart = storage.storage_class in _BEHIND_ANOTHER and single.load.device_bytes is None
    if apart or any(device.cached for device in storage.devices):
        text = (
            f"random 4 KiB reads took {single.latency.p50 * 1e6:.0f} us, too fast for a disk"
            " behind a program, a server or a loop device: a cache there answered"
        )
        made = small is not None and small.source == "made"
        for of in (SEQUENTIAL_READS, RANDOM_READS, *((SMALL_FILES,) if made else ())):
            yield Reason("in_memory", text, of)


def _as_from_memory(small: SmallFiles) -> bool:
    """Return whether cold files came as fast as cached ones, if no disk counts what it delivers.

    By the rate, with the same number of readers, and by the time of single ones: either alone may
    be due to other programs' use of the processors.
    """
    one, several, cached = small.cold[0], small.cold[-1], small.cached
    if cached is None or several.readers != cached.readers or one.load.device_bytes is not None:
        return False
    as_many = several.files_per_s >= PASS_SHARE * cached.files_per_s
    return as_many and one.latency.p50 <= _AS_CACHED_AT_MOST * cached.latency.p50


def _of_cache(measured: Measured, run: FioRun) -> list[Reason]:
    return _not_delivered(run, run.read_bytes, _least_of_fio(measured, run))


def _least_of_fio(measured: Measured, run: FioRun) -> float:
    """Return the share of a pass that the disks must have delivered, or else a cache has.

    The file made for fio cannot be compressed. An existing one may be, which excuses only the first
    time around: read directly or not, decompressed data stays in memory.
    """
    compressed = measured.compressed and measured.file_source == "existing"
    if compressed and run.read_bytes <= measured.file_bytes:
        return _DELIVERED_COMPRESSED_AT_LEAST
    return _DELIVERED_AT_LEAST


def _not_delivered(run: FioRun | SmallRun, read_bytes: int, least: float) -> list[Reason]:
    delivered = run.load.device_bytes
    if delivered is None or delivered >= least * read_bytes:
        return []
    text = (
        f"{run.words} read {format_bytes(read_bytes)}, but the disks delivered only "
        f"{format_bytes(delivered)}: a cache answered"
    )
    return [Reason("not_delivered", text, run.of)]


def is_sparse(measured: Measured) -> bool:
    """Return whether the small files belong to a data set with many holes."""
    from_dataset = measured.small is not None and measured.small.source == "dataset"
    return from_dataset and measured.dataset.hole_share > _HOLES_AT_MOST


def holes(measured: Measured) -> str:
    share = measured.dataset.hole_share
    return f"{share:.0%} of the data set's bytes are holes, which the disks need not read"
