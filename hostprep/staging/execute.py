"""Carry out a copy plan in the private tree, with as many workers as the source wants.

Nothing here touches what is published.
"""

from __future__ import annotations

import errno
from time import monotonic

from hostprep.errors import LIMIT_HINTS, MOUNT_ANEW, OF_A_SERVER, HostprepError
from hostprep.host.answering import Standstill
from hostprep.staging.checking import check_written
from hostprep.staging.failures import DISK_FAILS
from hostprep.staging.files.holding import lacks_inodes
from hostprep.staging.model import Verify
from hostprep.staging.observer import Observer
from hostprep.staging.planning import StagePlan, timed
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.processes.dying import MEMORY_RAN_OUT, memory_hint
from hostprep.staging.processes.governor import Governor
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.pool import Pool, TaskFailed
from hostprep.staging.processor_time import ProcessorMeter
from hostprep.staging.resuming import run_again
from hostprep.staging.target.private import PrivateDir
from hostprep.staging.tasks import Copied, Tasks
from hostprep.system.flushing import flush_file_system

# The limit if more readers are tried than were chosen.
_MOST_PROCESSES = 16


def copy_all(plan: StagePlan, files: CopyPlan, private: PrivateDir, observer: Observer) -> Copied:
    """Copy ``files`` into the private tree, verified as asked, and journal it.

    ``files`` are those of the run's ``plan``, or some that are copied once more. Files that fail
    are in ``problems``. Raises ``HostprepError`` for errors that end the whole run; the work so far
    is kept for the next one.
    """
    reading, verify, gentle = plan.reading, plan.request.verify, plan.request.gentle
    if verify is Verify.READBACK and not plan.in_ram:
        verify = Verify.INFLIGHT  # read back from the disk itself once all is written
    job = Job(
        plan.source_fd,
        private.tree_fd,
        private.fd,
        verify=verify,
        drop_behind=reading.drop_behind,
        in_ram=plan.in_ram,
        look_ahead=reading.look_ahead,
        gentle=gentle,
        then=private.then,
    )
    copied = Copied()
    meter = ProcessorMeter()
    here = _worth_no_worker(plan, files)
    processes = 0 if here else reading.processes
    most, governor = None, None
    if reading.may_grow and not here:
        most = max(reading.processes, _MOST_PROCESSES)
        governor = Governor(reading.readers, most * reading.threads)
    elif reading.adapts and not here:
        governor = Governor(reading.readers)
    # A disk that is written to may also make us wait.
    standstill = Standstill(plan.request.source, observer.note, doubted=not plan.in_ram)
    try:
        with Pool(job, processes=processes, threads=reading.threads, most_processes=most) as pool:

            def tick() -> None:
                now = monotonic()
                parts, size_bytes = pool.effort()
                if plan.served:
                    standstill.seen((parts, size_bytes), now)
                # A long task counts by its bytes while it runs; copying a file twice counts once.
                so_far = min(size_bytes, files.copied.data_bytes)
                observer.progress(copied.files, max(copied.data_bytes, so_far))
                if governor is not None:
                    pool.readers = governor.update(now, parts, size_bytes, pool.at_work)

            pool.run(Tasks(pool, copied).all(files, reading), tick)
            meter.workers_wait(pool.pids)
        if governor is not None:
            copied.readers = governor.settled
    except TaskFailed as error:
        raise _explain(error, private) from error
    observer.progress(copied.files, copied.data_bytes)
    copied.processors = meter.time()
    return copied


def _worth_no_worker(plan: StagePlan, files: CopyPlan) -> bool:
    """Whether the files are so few, and available so fast, that this process copies them itself.

    Never if the source is served: it may cease to answer, and a process that waits for it cannot be
    interrupted.
    """
    few = files.copied.files <= 64 and files.copied.bytes <= 16 * 1024 * 1024
    at_hand = plan.answers_from_memory or plan.reading.readers == 1
    return few and at_hand and not (plan.request.gentle or plan.served)


def settle(plan: StagePlan, copied: Copied, private: PrivateDir, observer: Observer) -> None:
    """Write all that was ``copied`` to the disk and, if asked for, read it back.

    What differs is copied once more; what differs again is in ``problems``. Raises
    ``HostprepError`` if it cannot be written. Files taken over from an earlier run are always read
    back: the kernel reports a failed write only once, and may have reported it to that run.
    """

    def copy_again(files: CopyPlan) -> Copied:
        again = copy_all(plan, files, private, observer)
        sync_file_system(private.fd, "nothing was published", private.then)
        return again

    observer.phase("sync")
    with timed(plan.seconds, "sync"):
        sync_file_system(private.fd, "nothing was published", private.then)
    if plan.request.verify is Verify.READBACK or plan.files.resumed.files:
        with timed(plan.seconds, "verify"):
            check_written(
                plan.source_fd,
                private,
                plan.files,
                copied,
                plan.reading.processes,
                observer,
                copy_again,
                gentle=plan.request.gentle,
                taken_up_alone=plan.request.verify is not Verify.READBACK,
            )


class NotWritten(HostprepError):
    """The disk did not take all that was written to a file system."""


def sync_file_system(descriptor: int, so_far: str, then: str | None = None) -> None:
    """Write everything on the file system that holds ``descriptor`` to its disk (syncfs(2)).

    Raises ``NotWritten`` if that fails; ``so_far`` says what the state is then, and ``then`` what
    the same command does with it.
    """
    try:
        flush_file_system(descriptor)
    except OSError as error:
        raise NotWritten(
            f"the target's file system could not be flushed to its disk: {error.strerror};"
            f" {so_far}.",
            f"fix that (dmesg may say more about the disk), and {run_again(then)}",
        ) from None


def _explain(error: TaskFailed, private: PrivateDir) -> HostprepError:
    again = run_again(private.then)
    if error.errno == errno.EDQUOT:
        return HostprepError(
            "the disk quota at the target is used up; nothing was published.",
            "have it raised (`quota -s` shows it, for a project `repquota -P`, on Btrfs `btrfs"
            f" qgroup show`), or make room, and {again}",
        )
    if error.errno == errno.ENOSPC and lacks_inodes(private.fd):
        return HostprepError(
            "the target has no inode left for another file; nothing was published.",
            "remove files there, or give it more inodes (a --to-tmpfs volume gets them"
            f" automatically), and {again}",
        )
    if error.errno == errno.ENOSPC:
        return HostprepError(
            "the target is full; nothing was published.",
            f"make room or give the volume a larger size and {again}",
        )
    if error.errno == errno.ENOMEM:
        return HostprepError(f"{MEMORY_RAN_OUT}; nothing was published.", memory_hint(private.then))
    if error.errno in (errno.EMFILE, errno.ENFILE):
        limit = LIMIT_HINTS[error.errno]
        return HostprepError(
            "too many open files; nothing was published.",
            f"{limit}, or use --readers 1",
            spec_hint=limit,
        )
    hint = f"fix that and {again}" if error.errno else again
    if error.errno in DISK_FAILS:  # usually the target's: ext4 becomes read-only after one
        hint = f"`dmesg` says what happened to the disk or the server: {hint}"
    elif error.errno in OF_A_SERVER:
        hint = f"{MOUNT_ANEW}, and {again}"
    return HostprepError(f"copying failed: {error.reason}; nothing was published.", hint)
