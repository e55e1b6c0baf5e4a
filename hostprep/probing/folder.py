"""The probe's own folder: hidden, locked while in use, removed whatever happens.

A killed run cannot remove its folder. The kernel drops its lock, though, and the next run of the
same host removes what nobody holds any more. Where the file system has no locks, nobody knows what
is still in use, and all that is there stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".hostprep-probe-"
_LOCK = "lock"
_SLOTS = 16
_ABANDONED_SECONDS = 60
# What flock(2) says where there are no locks: some FUSE, NFS without its lock service.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """Make a folder below ``parent`` for as long as the body runs.

    OSError where none can be made there. Afterwards the parent's times are as before, so that
    nobody takes the data for changed; unless it was changed meanwhile, which must not be hidden.
    Names are numbered, so that what killed runs left is found without listing a folder of a million
    files.
    """
    before = os.stat(parent)
    folder, lock = _take(parent)
    made = _mtime_ns(parent)
    try:
        yield folder
    finally:
        unchanged = made is not None and _mtime_ns(parent) == made
        _remove(folder, lock)
        if unchanged:
            try:
                os.utime(parent, ns=(before.st_atime_ns, before.st_mtime_ns))
            except OSError:
                pass  # not ours to set


def _mtime_ns(parent: Path) -> int | None:
    """Return when something was last made or removed in ``parent``, None where it fails now."""
    try:
        return os.stat(parent).st_mtime_ns
    except OSError:
        return None


def _take(parent: Path) -> tuple[Path, int | None]:
    """Make the first folder that nobody holds; return it and its lock, if there are locks."""
    folders = [parent / f"{PREFIX}{_host()}-{slot}" for slot in range(_SLOTS)]
    for folder in folders:
        _remove_stale(folder, os.geteuid())
    for folder in folders:
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue  # of a run that lives, or not ours
        try:
            lock = _lock(folder, os.O_CREAT | os.O_EXCL)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return folder, None
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if lock is not None:
            owner = folder.stat().st_uid
            if owner != os.geteuid():
                # The file system names an owner of its own (vfat, an NFS export that squashes
                # root): only by what is ours now is it known what was.
                for other in folders:
                    _remove_stale(other, owner)
            return folder, lock
    raise FileExistsError(errno.EEXIST, "all names of hostprep's folder are taken", str(parent))


def _lock(folder: Path, flags: int) -> int | None:
    """Open and take the folder's lock; None where another run has it, or has removed it."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(folder / _LOCK)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _remove_stale(folder: Path, owner: int) -> None:
    """Remove the folder if a killed run of ``owner``, who is us, left it: its lock is free then."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner:
        return
    try:
        lock = _lock(folder, 0)
    except FileNotFoundError:
        # Killed before it made its lock, if it is empty and not from just now.
        if time.time() - status.st_mtime > _ABANDONED_SECONDS:
            try:
                folder.rmdir()
            except OSError:
                pass
        return
    except OSError:
        return
    if lock is not None:
        _remove(folder, lock)


def _remove(folder: Path, lock: int | None) -> None:
    """Remove all but the lock, let go of it, and remove the rest.

    On NFS and FUSE an open file that is removed lives on under another name, in this very folder.
    Where something cannot be removed the lock stays too: by it the next run knows that the folder
    is nobody's, and tries again.
    """
    try:
        cleared = _clear(folder)
    finally:
        if lock is not None:
            os.close(lock)
    if lock is None or cleared or _clear(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _clear(folder: Path) -> bool:
    """Remove all but the lock; return whether nothing else is left."""
    try:
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _LOCK:
                entry.unlink(missing_ok=True)
        return {entry.name for entry in folder.iterdir()} <= {_LOCK}
    except OSError:
        return False  # a file system that fails right now; the next run finds what is left


def _host() -> str:
    """Return this host's name: on a shared file system, locks of others may not be visible."""
    return re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()) or "host"
