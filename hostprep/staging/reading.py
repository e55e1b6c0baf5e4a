"""How a source is best read: by how many readers at once and in which order, and why.

Facts: one arm wants one reader in the order of the disk; RAM wants as many processes as cores and
no more; everything that answers late wants more requests in flight than cores (Little's law).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hostprep.host.block import StorageClass
from hostprep.staging.sampling import Sample

# What a core spends on a file beside waiting for it, measured on small files.
_CPU_SECONDS_A_FILE = 60e-6
_LEAST_COLD_READERS = 16
_MOST_READERS = 64
# Data of less than this share of the free memory may stay in the page cache.
_DROP_BEHIND_SHARE = 0.25
# A disk that answers a cold read faster than this does not move an arm (half a turn is 4 ms).
_ARM_SECONDS = 0.001
# Side by side an arm does no more than one after the other; anything else gains.
_SERIAL_GAIN = 2.0


@dataclass(frozen=True, slots=True)
class Reading:
    """``processes`` x ``threads`` readers, in ``order`` (``listed``, ``physical`` or ``inode``).

    ``adapts``: where more of them do not help, fewer go on. A task carries at least ``task_files``
    files. ``look_ahead`` hints at files before their turn;
    ``drop_behind`` drops what was read from the page cache, where the data would fill it and take
    the memory that the tmpfs needs.
    """

    processes: int
    threads: int
    order: str
    drop_behind: bool
    look_ahead: bool
    task_files: int
    reason: str
    adapts: bool = False

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
    arm = _moves_an_arm(storage_class, sample)
    order = order or ("physical" if arm else "listed")
    if gentle or readers is not None:
        count = 1 if gentle else readers or 1
        processes = min(count, cpus)
        threads = math.ceil(count / processes)
        asked = "--gentle asks" if gentle else "--readers asks"
        return Reading(processes, threads, order, drop, arm, _task_files(count, arm), f"as {asked}")
    if sample.is_warm or storage_class is StorageClass.RAM:
        where = "in RAM" if storage_class is StorageClass.RAM else "in the page cache"
        reason = f"the source is {where}: one process a core"
        return Reading(cpus, 1, order, drop, False, _task_files(cpus, False), reason)
    if arm:
        said = "" if storage_class is StorageClass.ARM else ", as it answers like one"
        reason = f"a disk with an arm{said}: one reader, in the order of the disk"
        return Reading(1, 1, order, True, True, _task_files(1, True), reason)
    wait_seconds = sample.seconds or 0.0
    wanted = math.ceil(cpus * (1 + wait_seconds / _CPU_SECONDS_A_FILE))
    in_flight = min(max(wanted, _LEAST_COLD_READERS), _MOST_READERS)
    threads = math.ceil(in_flight / cpus)
    reason = (
        f"a cold file answers after {wait_seconds * 1000:.1f} ms: by Little's law "
        f"{cpus * threads} in flight (at least {_LEAST_COLD_READERS}, at most {_MOST_READERS}) "
        f"keep {cpus} cores busy"
    )
    return Reading(
        cpus, threads, order, drop, False, _task_files(in_flight, False), reason, adapts=True
    )


def _moves_an_arm(storage_class: StorageClass, sample: Sample) -> bool:
    """Whether cold reads move an arm, by what the kernel says and by how the source answered.

    A disk that claims to rotate and answers at once does not. One of unknown or virtual kind that
    answers late, and side by side no sooner than one after the other, does.
    """
    if sample.is_warm or sample.seconds is None:
        return storage_class is StorageClass.ARM and not sample.is_warm
    if storage_class is StorageClass.ARM:
        return sample.seconds >= _ARM_SECONDS
    if storage_class in (StorageClass.VIRTUAL, StorageClass.UNKNOWN, StorageClass.OVERLAY):
        gain = sample.parallel_gain
        return sample.seconds >= 3 * _ARM_SECONDS and gain is not None and gain < _SERIAL_GAIN
    return False


def _task_files(readers: int, arm: bool) -> int:
    if arm:
        return 512  # the look ahead ends with the task
    # Many slow readers: small tasks, so that the last ones do not wait for one with a full hand.
    return 64 if readers <= 4 else 16
