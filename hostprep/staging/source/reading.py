"""How best to read a source: with how many readers at once and in which order, and why.

Principles: a disk arm works best with one reader, in the order of the disk, also behind a server.
RAM needs as many processes as cores and no more. Everything with slow answers needs more requests
in flight than there are cores (Little's law): by hints to the kernel if it takes them, which is
cheapest, otherwise by more readers.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.host.block import SERVED, StorageClass
from hostprep.staging.files.lookahead import WINDOW_BYTES, WINDOW_FILES
from hostprep.staging.source.sampling import Sample
from hostprep.units import format_bytes, format_count

# What a core spends on a file apart from waiting for it, measured on small files.
_CPU_SECONDS_A_FILE = 60e-6
_LEAST_COLD_READERS = 16
_MOST_READERS = 64
# What a process takes, and each further thread of it: measured, with their buffers.
_PROCESS_BYTES, _THREAD_BYTES = 8 * 1024 * 1024, 3 * 1024 * 1024
# Less than is kept free beside a copy in memory: what a cgroup leaves beyond it gets them killed.
_READERS_SHARE = 0.25
# Data smaller than this share of the free memory may stay in the page cache.
_DROP_BEHIND_SHARE = 0.25
_ALL_BUT_A_FEW = 0.8
# A disk that answers a cold read faster than this moves no arm (half a turn takes 4 ms).
_ARM_SECONDS = 0.001
# An arm is no faster with parallel requests; anything else is, by at least this factor.
_SERIAL_GAIN = 2.0
# Where the kernel reads ahead for hints: local disks, even below a container's layers.
_BLOCK = (
    StorageClass.ARM,
    StorageClass.SATA_FLASH,
    StorageClass.NVME,
    StorageClass.VIRTUAL,
    StorageClass.OVERLAY,
)
# For larger files on average, larger reads by more readers cost less than hints do.
_HINT_BYTES = 1024 * 1024
# A file that was just listed can be opened from memory within microseconds.
_PROMPT_SECONDS = 200e-6
_HIDES_ITS_DISK = (
    StorageClass.VIRTUAL,
    StorageClass.UNKNOWN,
    StorageClass.OVERLAY,
    *SERVED,
)
_ORDER_WORDS = {
    "listed": "as listed",
    "inode": "in the order of inodes",
    "physical": "in the order of the disk",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """``processes`` x ``threads`` readers, in ``order`` (``listed``, ``physical`` or ``inode``).

    ``adapts``: use fewer if they are just as fast. ``may_grow``: try more, because the sample may
    have missed files that are not cached, or how much a server does at once. A task has at least
    ``task_files`` files, fewer large ones. ``look_ahead`` gives the kernel hints about files before
    their turn. ``drop_behind`` drops what was read from the page cache if the data would fill it
    and take the memory that the tmpfs needs.
    """

    processes: int
    threads: int
    order: str
    drop_behind: bool
    look_ahead: bool
    task_files: int
    reason: str
    adapts: bool = False
    may_grow: bool = False

    @property
    def readers(self) -> int:
        """Return how many files are read at once."""
        return self.processes * self.threads

    @property
    def lookers(self) -> int:
        """Return how many threads of a process may look up metadata, if that is slow.

        Even if a server's files are cached here, it may be asked for each of its directories.
        """
        return 1 if self.readers == 1 else math.ceil(_MOST_READERS / self.processes)


def choose_reading(
    storage_class: StorageClass,
    sample: Sample,
    *,
    cpus: int,
    files: int,
    size_bytes: int,
    available_bytes: int | None,
    readers: int | None = None,
    order: str | None = None,
    gentle: bool = False,
) -> Reading:
    """Choose concurrency and order for a source; pure.

    ``cpus`` is how many cores may be used, ``files`` and ``size_bytes`` how much is to be read,
    ``available_bytes`` the machine's free memory. ``readers`` and ``order`` override the choice.
    """
    arm = _moves_an_arm(storage_class, sample)
    warm = sample.is_warm and not arm
    drop = (
        not warm
        and storage_class is not StorageClass.RAM
        and available_bytes is not None
        and size_bytes > available_bytes * _DROP_BEHIND_SHARE
    )
    # A multi-threaded server would not answer hints in their order, and so would move the arm.
    hints = arm and storage_class not in SERVED
    order = order or (_sweep(storage_class, sample) if arm else "listed")
    if gentle or readers is not None:
        count = 1 if gentle else readers or 1
        processes, threads = _divided(count, cpus)
        asked = "as --gentle asks" if gentle else "as --readers asks"
        if processes * threads < count:
            asked = f"--readers asks for at most {count}, and every process has the same number"
        return Reading(processes, threads, order, drop, hints, _task_files(count, hints), asked)
    if warm or storage_class is StorageClass.RAM:
        where = "in RAM" if storage_class is StorageClass.RAM else "in the page cache"
        reason = f"the source is {where}: one process per core"
        in_cache = storage_class is not StorageClass.RAM
        return Reading(
            cpus, 1, order, drop, False, _task_files(cpus, False), reason, may_grow=in_cache
        )
    if arm:
        reason = f"{_arm_in_words(storage_class, sample)}: one reader, {_ORDER_WORDS[order]}"
        return Reading(
            1,
            1,
            order,
            drop or hints,
            hints,
            _task_files(1, hints),
            reason,
            may_grow=storage_class in SERVED,
        )
    return _choose_cold(storage_class, sample, cpus, files, size_bytes, order, drop)


def within_memory(reading: Reading, available_bytes: int | None) -> Reading:
    """Leave out readers for which a small container with many cores has no memory."""
    if available_bytes is None:
        return reading
    room = int(available_bytes * _READERS_SHARE)
    processes = max(1, min(reading.processes, room // _PROCESS_BYTES))
    further = max(0, room // processes - _PROCESS_BYTES) // _THREAD_BYTES
    threads = min(reading.threads, 1 + further)
    if (processes, threads) == (reading.processes, reading.threads):
        return reading
    return replace(
        reading,
        processes=processes,
        threads=threads,
        may_grow=False,
        reason=f"{reading.reason}; but memory for {processes * threads} only",
    )


def _choose_cold(
    storage_class: StorageClass,
    sample: Sample,
    cpus: int,
    files: int,
    size_bytes: int,
    order: str,
    drop: bool,
) -> Reading:
    """Choose for a source without an arm that is not all in the page cache, by its latency."""
    if sample.seconds is None and storage_class not in SERVED:
        reason = "no file was found by which to measure how fast it answers: one process per core"
        return Reading(cpus, 1, order, drop, False, _task_files(cpus, False), reason, may_grow=True)
    wait_seconds = sample.seconds or 0.0
    if _takes_hints(storage_class, sample) and size_bytes <= files * _HINT_BYTES:
        reason = (
            f"a cold file answers after {wait_seconds * 1000:.1f} ms: one process per core, each"
            f" with up to {WINDOW_FILES} files or {format_bytes(WINDOW_BYTES)} requested ahead"
        )
        return Reading(cpus, 1, order, drop, True, _task_files(cpus, True), reason, adapts=True)
    wanted = math.ceil(cpus * (1 + wait_seconds / _CPU_SECONDS_A_FILE))
    in_flight = min(max(wanted, _LEAST_COLD_READERS), _MOST_READERS)
    threads = math.ceil(in_flight / cpus)
    reason = (
        f"a cold file answers after {wait_seconds * 1000:.1f} ms: by Little's law "
        f"{cpus * threads} in flight (at least {_LEAST_COLD_READERS}, at most {_MOST_READERS}) "
        f"keep {format_count(cpus, 'core')} busy"
    )
    return Reading(
        cpus, threads, order, drop, False, _task_files(in_flight, False), reason, adapts=True
    )


def _moves_an_arm(storage_class: StorageClass, sample: Sample) -> bool:
    """Whether cold reads move an arm, by what the kernel says and by how the source answered.

    A disk that claims to rotate but answers at once does not. Storage that hides its disk does if
    it answers slowly, and no faster to parallel requests; or it is a server that does one thing at
    a time, which one reader keeps as busy as many do.
    """
    if storage_class is StorageClass.ARM:
        # A few files that need a seek take longer than all the others that are cached.
        late = sample.seconds is None or sample.seconds >= _ARM_SECONDS
        return late and not sample.is_all_cached
    if sample.is_warm or sample.seconds is None:
        return False
    if storage_class in _HIDES_ITS_DISK:
        gain = sample.parallel_gain
        return sample.seconds >= 3 * _ARM_SECONDS and gain is not None and gain < _SERIAL_GAIN
    return False


def _arm_in_words(storage_class: StorageClass, sample: Sample) -> str:
    if storage_class in SERVED:
        what = "reading several files at once is no faster than one by one, as with a hard disk"
    elif storage_class is StorageClass.ARM:
        what = "a hard disk"
    else:
        what = "like a hard disk, judging by how it answers"
    return f"{what}, and only part is in the page cache" if sample.cached_share else what


def _divided(readers: int, cpus: int) -> tuple[int, int]:
    """Return how many processes, with how many threads each, make up this many readers.

    Never more: the user may want to spare a server. But a few less, if the exact number would need
    fewer processes than there are cores.
    """
    most = min(readers, cpus)
    shares = ((processes, readers // processes) for processes in range(most, 0, -1))
    return next(
        (processes, threads)
        for processes, threads in shares
        if processes * threads >= _ALL_BUT_A_FEW * readers
    )


def _sweep(storage_class: StorageClass, sample: Sample) -> str:
    """Return the order in which an arm moves least, as far as that can be known.

    For ``physical`` each file is opened and its place read. FUSE and network file systems do not
    report places (so the order would be by inode anyway), and there an open may be a request. A
    block device that is reached over a network has a local file system on it, which opens files at
    once and reports their places.
    """
    opening = sample.open_seconds
    at_once = opening is not None and opening < _PROMPT_SECONDS
    if storage_class is StorageClass.FUSE or (storage_class in SERVED and not at_once):
        return "inode"
    return "physical"


def _takes_hints(storage_class: StorageClass, sample: Sample) -> bool:
    """Whether hints keep a source as busy as many readers do, with less processor time.

    The kernel reads in the background for a hint, but not for opening a file; so if opening has to
    wait, as over a network, only more readers help.
    """
    opening = sample.open_seconds
    return storage_class in _BLOCK and opening is not None and opening < _PROMPT_SECONDS


def _task_files(readers: int, look_ahead: bool) -> int:
    if look_ahead:
        return 512  # looking ahead ends with the task
    # Many slow readers: small tasks, so that at the end none waits for one with much left to do.
    return 64 if readers <= 4 else 16
