"""Locks between runs of hostprep; a run that waits is told which run has the lock."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hostprep.errors import HostprepError
from hostprep.system.kept import parse_kept
from hostprep.system.lock_files import FLAGS, fault_of, no_lock, open_lock
from hostprep.system.state import check_own_records, early_run_dir, readable_run_dirs, run_dir

_POLL_SECONDS = 0.2
# ``is_locked``, which only checks whether a lock is held, holds it for a moment: ignore that.
_LOOK_SECONDS, _LOOK_AGAIN_SECONDS = 0.05, 0.005


class Locked(HostprepError):
    """Another run has the lock."""

    code = "locked"


@contextmanager
def lock(
    name: str,
    *,
    purpose: str,
    wait_seconds: float | None = None,
    on_wait: Callable[[str], None] | None = None,
    handed_on: bool = False,
) -> Iterator[int]:
    """Hold ``hostprep-NAME.lock`` in the run directory while the body runs.

    Yields its descriptor. A child process that inherits it also holds the lock if this process is
    killed; with ``handed_on`` even beyond the body. Without, the lock ends with the body, because a
    killed worker that is stuck on a server without an answer would keep everybody waiting.
    ``wait_seconds`` of None waits for as long as it takes, 0 does not wait. ``on_wait`` is told
    once, in a sentence, who has the lock. The kernel drops the lock with the process, so a killed
    run leaves none; the file itself stays, because removing it would race. If early versions made
    the user a file for this lock elsewhere, that is locked too.

    Raises ``Locked`` if the time has passed, ``HostprepError`` if the file cannot be opened, or is
    one that somebody else could keep from us, ``Refused`` if the records are not one's own.
    """
    check_own_records()
    path = run_dir() / f"hostprep-{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise no_lock(path, error) from None
    descriptor, early = open_lock(path), -1
    try:
        _take(descriptor, path, wait_seconds, on_wait)
        if (early := _early_lock(path.name)) >= 0:
            _take(early, path, wait_seconds, on_wait)
        note = {"pid": os.getpid(), "purpose": purpose, "since": time.time()}
        for each in (descriptor, *([early] if early >= 0 else [])):
            with suppress(OSError):  # the lock works without it, as on a full file system
                # Overwrite the old note: ext4 flushes a file that was emptied, and makes us wait.
                os.ftruncate(each, os.pwrite(each, json.dumps(note).encode(), 0))
        try:
            yield descriptor
        finally:
            if not handed_on:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
        if early >= 0:
            fcntl.flock(early, fcntl.LOCK_UN)
            os.close(early)


def _early_lock(file_name: str) -> int:
    """Open the lock's file of early versions, which look for no other; return -1 without one.

    It is there if one of them was at work on the same thing since the user's login.
    """
    directory = early_run_dir()
    if directory is None:
        return -1
    try:
        descriptor = os.open(directory / file_name, os.O_RDWR | FLAGS)
    except OSError:
        return -1
    if fault_of(descriptor) is None:
        return descriptor
    os.close(descriptor)
    return -1


def _take(
    descriptor: int, path: Path, wait_seconds: float | None, on_wait: Callable[[str], None] | None
) -> None:
    """Wait for the lock as ``lock`` says, and take it."""
    looked_until = time.monotonic() + _LOOK_SECONDS
    deadline = math.inf if wait_seconds is None else looked_until + wait_seconds
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                # This file system has no locks, for instance Lustre without `flock`.
                raise no_lock(path, error, "locked") from None
        if time.monotonic() < looked_until:
            time.sleep(_LOOK_AGAIN_SECONDS)
            continue
        holder = _holder(descriptor)
        if time.monotonic() >= deadline:
            raise Locked(
                f"{holder} is at work on the same thing; nothing was changed.",
                "wait for it to end, or run again without --no-wait",
            )
        if on_wait is not None and not told:
            on_wait(f"waiting for {holder}")
            told = True
        time.sleep(_POLL_SECONDS)


def is_locked(name: str) -> bool:
    """Return whether a run, of this user or of root, has the lock ``name`` now.

    False if that is unknown.
    """
    return any(_is_held(path / f"hostprep-{name}.lock") for path in readable_run_dirs())


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | FLAGS)
    except PermissionError:  # it is root's, and an ordinary user asks
        return _is_listed(path)
    except OSError:
        return False
    try:
        if fault_of(descriptor) is not None:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    finally:
        os.close(descriptor)
    return False


def _is_listed(path: Path) -> bool:
    """Return whether the kernel lists a lock on the file; everybody may read proc_locks(5)."""
    try:
        status = os.stat(path)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    if status.st_uid != 0:  # in a directory that everybody can write to
        return False
    device = status.st_dev
    inode = f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}"
    return any(fields[1] == "FLOCK" and fields[5] == inode for fields in map(str.split, lines))


def _holder(descriptor: int) -> str:
    try:
        note = parse_kept(os.pread(descriptor, 4096, 0))
        since = time.strftime("%H:%M:%S", time.localtime(note["since"]))
        return f"`{note['purpose']}` (process {note['pid']}, since {since})"
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError):  # no time, or none ever
        return "another hostprep"
