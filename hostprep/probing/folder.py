"""The probe's own folder: hidden, locked while in use, removed whatever happens.

A killed run cannot remove its folder. The kernel drops its lock, though, and the next run of the
same host removes what nobody holds any more. Where the file system has no locks, nobody knows what
is still in use, and all that is there stays.

The folder probed may be somebody else's, who can move ours and put another thing in its place at
any time. So it is held open, and made, filled and emptied by descriptors alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.system.descriptors import closing_fd
from hostprep.system.own_directory import PROBE_PREFIX, make_own
from hostprep.system.trees import DIRECTORY_FLAGS, names_in, remove_directory, remove_tree

_LOCK = "lock"
_SLOTS = 16
_ABANDONED_SECONDS = 60
# What a killed run had started ends with it, but not in the same moment.
_LOOKS, _LOOK_AGAIN_SECONDS = 5, 0.2
# What flock(2) says where there are no locks: some FUSE, NFS without its lock service.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
# All that runs make in their folders, and what NFS and FUSE name a file that was removed while it
# was open. What holds anything else was only given the name of one of ours.
_OURS = re.compile(r"lock|data|small|[0-9]{5}|\.nfs.*|\.fuse_hidden.*")


@dataclass(slots=True)
class OwnFolder:
    """An open folder of ours.

    ``path`` is for people; only ``fd`` certainly leads into it. Once it is left, ``moved`` tells
    whether somebody has moved it meanwhile: then it may still be there, but for what was in it; and
    ``stays`` that it could not be removed, perhaps with all that is in it.
    """

    path: Path
    fd: int
    moved: bool = False
    stays: bool = False

    def note(self) -> str | None:
        """Say that it stays, or was moved; None where it is gone as it should be."""
        if self.stays:
            return (
                f"{self.path}, which held the test files, could not be removed: the next probe here"
                " tries again"
            )
        if not self.moved:
            return None
        return (
            f"somebody moved {self.path}, which held the test files, while it was in use: the"
            " figures are of these files all the same, they were removed where they were, and what"
            " has the folder's name now was left alone"
        )

    @contextmanager
    def inner(self, name: str) -> Iterator[int]:
        """Make a folder in it for as long as the body runs, and yield its descriptor.

        OSError where none can be made. Where something of it cannot be removed now, that is left to
        who removes it all.
        """
        os.mkdir(name, 0o700, dir_fd=self.fd)
        try:
            with closing_fd(os.open(name, DIRECTORY_FLAGS, dir_fd=self.fd)) as descriptor:
                yield descriptor
        finally:
            with suppress(OSError):
                remove_tree(self.fd, name)


@contextmanager
def own_folder(parent: Path) -> Iterator[OwnFolder]:
    """Make a folder below ``parent`` for as long as the body runs.

    OSError where none can be made there. Afterwards the parent's times are as before, so that
    nobody takes the data for changed; unless it was changed meanwhile, which must not be hidden.
    Names are numbered, so that what killed runs left is found without listing a folder of a million
    files.
    """
    with closing_fd(os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as parent_fd:
        before = os.fstat(parent_fd)
        name, descriptor, lock = _take(parent_fd)
        folder = OwnFolder(parent / name, descriptor)
        made = _mtime_ns(parent_fd)
        try:
            yield folder
        finally:
            unchanged = made is not None and _mtime_ns(parent_fd) == made
            with closing_fd(descriptor):
                folder.moved = not _remove(parent_fd, name, descriptor, lock)
                folder.stays = _is_called(parent_fd, name, descriptor)
            if unchanged:
                with suppress(OSError):  # not ours to set
                    os.utime(parent_fd, ns=(before.st_atime_ns, before.st_mtime_ns))


def remove_left(parent: Path) -> bool:
    """Remove what killed runs of ours left below ``parent``; return False where some remains.

    That may also be of another run, which is at work.
    """
    try:
        parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    with closing_fd(parent_fd):
        for look in range(_LOOKS):
            time.sleep(_LOOK_AGAIN_SECONDS if look else 0)
            for name in _names():
                _remove_stale(parent_fd, name, (os.geteuid(), 0o700))
            if not any(_is_there(parent_fd, name) for name in _names()):
                return True
        return False


def _is_there(parent_fd: int, name: str) -> bool:
    try:
        return os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _names() -> list[str]:
    return [f"{PROBE_PREFIX}{_host()}-{slot}" for slot in range(_SLOTS)]


def _mtime_ns(parent_fd: int) -> int | None:
    """Return when something was last made or removed in the parent, None where it fails now."""
    try:
        return os.fstat(parent_fd).st_mtime_ns
    except OSError:
        return None


def _take(parent_fd: int) -> tuple[str, int, int | None]:
    """Make the first folder that nobody holds; return its name, it, and its lock if there are any.

    FileExistsError where no name is free, or stays ours for as long as it takes to open it.
    """
    names = _names()
    usual = os.geteuid(), 0o700
    for name in names:
        _remove_stale(parent_fd, name, usual)
    for name in names:
        try:
            descriptor = make_own(parent_fd, name)
        except FileExistsError:
            continue  # of a run that lives, or not ours
        try:
            lock = _lock_new(descriptor)
        except BlockingIOError:  # another run took it for one that was left
            os.close(descriptor)
            continue
        except OSError:
            _remove(parent_fd, name, descriptor, None)
            os.close(descriptor)
            raise
        ours = _look(descriptor)
        if ours != usual:
            # The file system names an owner or a mode of its own (vfat, an NFS export that squashes
            # root): only by what is ours now is it known what was.
            for other in names:
                _remove_stale(parent_fd, other, ours)
        return name, descriptor, lock
    raise FileExistsError(errno.EEXIST, f"all {_SLOTS} names of hostprep's folder are taken")


def _look(descriptor: int) -> tuple[int, int]:
    """Return the owner and the permissions of what is open: what tells ours from others'."""
    status = os.fstat(descriptor)
    return status.st_uid, status.st_mode & 0o777


def _lock_new(folder_fd: int) -> int | None:
    """Make and take the lock of a new folder; None where there are no locks.

    BlockingIOError where another run has it, or has removed it.
    """
    try:
        lock = _lock(folder_fd, os.O_CREAT | os.O_EXCL)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    if lock is None:
        raise BlockingIOError
    return lock


def _lock(folder_fd: int, flags: int) -> int | None:
    """Open and take the folder's lock; None where another run has it, or has removed it."""
    flags |= os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    lock = os.open(_LOCK, flags, 0o600, dir_fd=folder_fd)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = os.stat(_LOCK, dir_fd=folder_fd, follow_symlinks=False)
        if os.path.samestat(os.fstat(lock), there):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def _remove_stale(parent_fd: int, name: str, ours: tuple[int, int]) -> None:
    """Remove the folder if a killed run left it: it looks as ``ours`` do, and its lock is free."""
    # There is none, or it is no folder, or not ours; or a file system without locks, or one that
    # fails right now.
    with (
        suppress(OSError),
        closing_fd(os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)) as descriptor,
    ):
        if _look(descriptor) == ours:
            _remove_abandoned(parent_fd, name, descriptor)


def _remove_abandoned(parent_fd: int, name: str, descriptor: int) -> None:
    """Remove an open folder that looks like ours if nobody uses it; OSError where none can tell."""
    names = names_in(descriptor)
    if not names:
        # Killed before it made its lock, if it is not from just now.
        if time.time() - os.fstat(descriptor).st_mtime > _ABANDONED_SECONDS:
            remove_directory(parent_fd, name, descriptor)
        return
    if not all(_OURS.fullmatch(each) for each in names):
        return
    lock = _lock(descriptor, 0)
    if lock is not None:
        _remove(parent_fd, name, descriptor, lock)


def _remove(parent_fd: int, name: str, descriptor: int, lock: int | None) -> bool:
    """Remove all but the lock, let go of it, and remove the rest; return False where it was moved.

    On NFS and FUSE an open file that is removed lives on under another name, in this very folder.
    Where something cannot be removed the lock stays too: by it the next run knows that the folder
    is nobody's, and tries again.
    """
    try:
        cleared = _clear(descriptor)
    finally:
        if lock is not None:
            os.close(lock)
    try:
        if lock is None or cleared or _clear(descriptor):
            with suppress(FileNotFoundError):
                os.unlink(_LOCK, dir_fd=descriptor)
            return remove_directory(parent_fd, name, descriptor)
        there = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        return os.path.samestat(there, os.fstat(descriptor))
    except FileNotFoundError:
        return False
    except OSError:
        return True  # as far as one can tell; the next run finds what is left


def _is_called(parent_fd: int, name: str, descriptor: int) -> bool:
    """Return whether what is open still has this name in the parent, if that can be told."""
    try:
        there = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        return os.path.samestat(there, os.fstat(descriptor))
    except OSError:
        return False


def _clear(descriptor: int) -> bool:
    """Remove all but the lock; return whether nothing else is left."""
    try:
        for name in names_in(descriptor):
            if name != _LOCK:
                with suppress(OSError):  # or the large file would stay with a small one
                    _remove_entry(descriptor, name)
        return set(names_in(descriptor)) <= {_LOCK}
    except OSError:
        return False  # a file system that fails right now; the next run finds what is left


def _remove_entry(descriptor: int, name: str) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
        remove_tree(descriptor, name)
    else:
        os.unlink(name, dir_fd=descriptor)


def _host() -> str:
    """Return this host's name: on a shared file system, locks of others may not be visible."""
    return re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()) or "host"
