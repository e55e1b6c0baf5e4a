"""How a source is best read: by how many readers at once and in which order, and why.

Facts: one arm wants one reader in the order of the disk, behind a server too; RAM wants as many
processes as cores and no more; everything that answers late wants more requests in flight than
cores (Little's law): by hints to the kernel where it takes them, which cost the least, else by more
readers.
"""

from __future__ import annotations

import math

from hostprep.dataclass import dataclass
from hostprep.host.block import SERVED, StorageClass
from hostprep.staging.files.lookahead import WINDOW_BYTES, WINDOW_FILES
from hostprep.staging.source.sampling import Sample
from hostprep.units import format_bytes, format_count

# What a core spends on a file beside waiting for it, measured on small files.
_CPU_SECONDS_A_FILE = 60e-6
_LEAST_COLD_READERS = 16
_MOST_READERS = 64
# Data of less than this share of the free memory may stay in the page cache.
_DROP_BEHIND_SHARE = 0.25
_ALL_BUT_A_FEW = 0.8
# A disk that answers a cold read faster than this does not move an arm (half a turn is 4 ms).
_ARM_SECONDS = 0.001
# Side by side an arm does no more than one after the other; anything else gains.
_SERIAL_GAIN = 2.0
# Where the kernel reads ahead for hints: a local disk, if only below a container's layers.
_BLOCK = (
    StorageClass.ARM,
    StorageClass.SATA_FLASH,
    StorageClass.NVME,
    StorageClass.VIRTUAL,
    StorageClass.OVERLAY,
)
# On average: more than a hint brings is read with larger pages, and so for less, by readers.
_HINT_BYTES = 1024 * 1024
# A file that was just listed is opened from memory in a few microseconds.
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

    ``adapts``: where more of them do not help, fewer go on. ``may_grow``: more are tried, since the
    look at a few files may have missed what is not cached, or what a server does at once. A task
    carries at least ``task_files`` files, of large ones fewer. ``look_ahead`` hints at files before
    their turn. ``drop_behind`` drops what was read from the page cache, where the data would fill
    it and take the memory that the tmpfs needs.
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
        """Return how many threads of a process may ask for what is not data, where that is slow.

        A server whose files are cached here may still be asked for each of its directories.
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

    ``cpus`` are the cores that may be used, ``files`` and ``size_bytes`` what is to be read,
    ``available_bytes`` the machine's free memory. ``readers`` and ``order`` override.
    """
    arm = _moves_an_arm(storage_class, sample)
    warm = sample.is_warm and not arm
    drop = (
        not warm
        and storage_class is not StorageClass.RAM
        and available_bytes is not None
        and size_bytes > available_bytes * _DROP_BEHIND_SHARE
    )
    # A server of several threads would not answer hints in their order, and moves the arm for it.
    hints = arm and storage_class not in SERVED
    order = order or (_sweep(storage_class, sample) if arm else "listed")
    if gentle or readers is not None:
        count = 1 if gentle else readers or 1
        processes, threads = _divided(count, cpus)
        asked = "as --gentle asks" if gentle else "as --readers asks"
        if processes * threads < count:
            asked = f"--readers asks for at most {count}, and each process takes as many"
        return Reading(processes, threads, order, drop, hints, _task_files(count, hints), asked)
    if warm or storage_class is StorageClass.RAM:
        where = "in RAM" if storage_class is StorageClass.RAM else "in the page cache"
        reason = f"the source is {where}: one process a core"
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


def _choose_cold(
    storage_class: StorageClass,
    sample: Sample,
    cpus: int,
    files: int,
    size_bytes: int,
    order: str,
    drop: bool,
) -> Reading:
    """Choose for a source without an arm, of which not all is in the page cache: by its wait."""
    if sample.seconds is None and storage_class not in SERVED:
        reason = "nothing was found that can be read to see how soon it answers: one process a core"
        return Reading(cpus, 1, order, drop, False, _task_files(cpus, False), reason, may_grow=True)
    wait_seconds = sample.seconds or 0.0
    if _takes_hints(storage_class, sample) and size_bytes <= files * _HINT_BYTES:
        reason = (
            f"a cold file answers after {wait_seconds * 1000:.1f} ms: one process a core, each with"
            f" up to {WINDOW_FILES} files or {format_bytes(WINDOW_BYTES)} asked for ahead"
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

    A disk that claims to rotate and answers at once does not. What hides its disk and answers late,
    and side by side no sooner than one after the other, does; or it is a server that does one thing
    at a time, which one reader keeps as busy as many.
    """
    if storage_class is StorageClass.ARM:
        # A few files that have to be sought take longer than all the others that are cached.
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
        what = "several files at once come no sooner than one by one, as if by one arm"
    elif storage_class is StorageClass.ARM:
        what = "a disk with an arm"
    else:
        what = "a disk with an arm, as it answers like one"
    return f"{what}, and a part only is in the page cache" if sample.cached_share else what


def _divided(readers: int, cpus: int) -> tuple[int, int]:
    """Return how many processes, and how many threads in each, make so many readers.

    Never more of them: somebody may want to spare a server. But a few less, where to have all of
    them would take fewer processes than there are cores.
    """
    most = min(readers, cpus)
    shares = ((processes, readers // processes) for processes in range(most, 0, -1))
    return next(
        (processes, threads)
        for processes, threads in shares
        if processes * threads >= _ALL_BUT_A_FEW * readers
    )


def _sweep(storage_class: StorageClass, sample: Sample) -> str:
    """Return the order in which an arm is moved least, as far as it can be known.

    For ``physical`` each file is opened and asked. FUSE and file systems of servers do not tell (so
    that it would end as ``inode``), and an open may be a request there; a block device that is
    reached over a network has a file system of this host on it, which opens at once and tells.
    """
    opening = sample.open_seconds
    at_once = opening is not None and opening < _PROMPT_SECONDS
    if storage_class is StorageClass.FUSE or (storage_class in SERVED and not at_once):
        return "inode"
    return "physical"


def _takes_hints(storage_class: StorageClass, sample: Sample) -> bool:
    """Whether hints keep a source as busy as many readers do, for less of the processors.

    The kernel reads for a hint while the program goes on; for opening a file it does not, so where
    that has to wait, as on a network, only more readers help.
    """
    opening = sample.open_seconds
    return storage_class in _BLOCK and opening is not None and opening < _PROMPT_SECONDS


def _task_files(readers: int, look_ahead: bool) -> int:
    if look_ahead:
        return 512  # it ends with the task
    # Many slow readers: small tasks, so that the last ones do not wait for one with a full hand.
    return 64 if readers <= 4 else 16
