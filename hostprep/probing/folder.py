"""The probe's own folder: hidden, locked while in use, and always removed.

A killed run cannot remove its folder. But the kernel releases its lock, and the next run on the
same host removes folders that nobody has locked. If the file system has no locks, nobody knows what
is still in use, and everything stays.

The probed folder may belong to somebody else, who can move ours and put something else in its place
at any time. So ours is held open, and made, filled and emptied through descriptors only.
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
# The processes of a killed run end with it, but not at the same moment.
_LOOKS, _LOOK_AGAIN_SECONDS = 5, 0.2
# The errors of flock(2) if there are no locks: some FUSE, NFS without its lock service.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
# All that runs make in their folders, and the names that NFS and FUSE give a file that was removed
# while open. A folder that holds anything else only has the name of one of ours.
_OURS = re.compile(r"lock|data|small|[0-9]{5}|\.nfs.*|\.fuse_hidden.*")


@dataclass(slots=True)
class OwnFolder:
    """An open folder of ours.

    ``path`` is for people; only ``fd`` is sure to lead into it. After it was left, ``moved`` says
    whether somebody moved it meanwhile: then it may still exist, but empty; ``stays`` says that it
    could not be removed, perhaps with everything in it.
    """

    path: Path
    fd: int
    moved: bool = False
    stays: bool = False

    def note(self) -> str | None:
        """Return that it stays, or was moved; None if it was removed as it should be."""
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

        Raises OSError if none can be made. If something in it cannot be removed now, it is left to
        the removal of the whole folder.
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

    Raises OSError if none can be made there. Afterwards the parent's times are restored, so that
    nobody takes the data for changed; unless it was changed meanwhile, which must not be hidden.
    Names are numbered, so that leftovers of killed runs are found without listing a folder of a
    million files.
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
    """Remove what killed runs of ours left below ``parent``; return False if some remains.

    What remains may also belong to another run, which is at work.
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
    """Return when something was last made or removed in the parent, None if that fails."""
    try:
        return os.fstat(parent_fd).st_mtime_ns
    except OSError:
        return None


def _take(parent_fd: int) -> tuple[str, int, int | None]:
    """Make the first folder whose name is free; return its name, descriptor, and lock, if any.

    Raises FileExistsError if no name is free, or none stays ours long enough to be opened.
    """
    names = _names()
    usual = os.geteuid(), 0o700
    for name in names:
        _remove_stale(parent_fd, name, usual)
    for name in names:
        try:
            descriptor = make_own(parent_fd, name)
        except FileExistsError:
            continue  # of a live run, or not ours
        try:
            lock = _lock_new(descriptor)
        except BlockingIOError:  # another run took it for a leftover
            os.close(descriptor)
            continue
        except OSError:
            _remove(parent_fd, name, descriptor, None)
            os.close(descriptor)
            raise
        ours = _look(descriptor)
        if ours != usual:
            # The file system sets an owner or a mode of its own (vfat, an NFS export that squashes
            # root): only our new folder shows what our old ones look like.
            for other in names:
                _remove_stale(parent_fd, other, ours)
        return name, descriptor, lock
    raise FileExistsError(errno.EEXIST, f"all {_SLOTS} names of hostprep's folder are taken")


def _look(descriptor: int) -> tuple[int, int]:
    """Return the owner and the permissions of an open folder, which tell ours from others'."""
    status = os.fstat(descriptor)
    return status.st_uid, status.st_mode & 0o777


def _lock_new(folder_fd: int) -> int | None:
    """Make and take the lock of a new folder; None if there are no locks.

    Raises BlockingIOError if another run has it, or has removed it.
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
    """Open and take the folder's lock; None if another run has it, or has removed it."""
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
    """Remove the folder if a killed run left it: it looks like ``ours``, and its lock is free."""
    # Suppressed: it is not there, not a folder, or not ours; or the file system has no locks,
    # or fails right now.
    with (
        suppress(OSError),
        closing_fd(os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)) as descriptor,
    ):
        if _look(descriptor) == ours:
            _remove_abandoned(parent_fd, name, descriptor)


def _remove_abandoned(parent_fd: int, name: str, descriptor: int) -> None:
    """Remove an open folder that looks like ours if nobody uses it; OSError if that is unknown."""
    names = names_in(descriptor)
    if not names:
        # Killed before it made its lock, unless it was made just now.
        if time.time() - os.fstat(descriptor).st_mtime > _ABANDONED_SECONDS:
            remove_directory(parent_fd, name, descriptor)
        return
    if not all(_OURS.fullmatch(each) for each in names):
        return
    lock = _lock(descriptor, 0)
    if lock is not None:
        _remove(parent_fd, name, descriptor, lock)


def _remove(parent_fd: int, name: str, descriptor: int, lock: int | None) -> bool:
    """Remove all but the lock, release that, and remove the rest; return False if it was moved.

    On NFS and FUSE an open file that is removed lives on under another name, in the same folder. If
    something cannot be removed, the lock stays too: it shows the next run that the folder is
    nobody's, and that run tries again.
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
        return True  # as far as is known; the next run finds leftovers


def _is_called(parent_fd: int, name: str, descriptor: int) -> bool:
    """Return whether the open folder still has this name in the parent, if that is known."""
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
                with suppress(OSError):  # or one small file would keep the large one
                    _remove_entry(descriptor, name)
        return set(names_in(descriptor)) <= {_LOCK}
    except OSError:
        return False  # a file system that fails right now; the next run finds leftovers


def _remove_entry(descriptor: int, name: str) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
        remove_tree(descriptor, name)
    else:
        os.unlink(name, dir_fd=descriptor)


def _host() -> str:
    """Return this host's name: on a shared file system other hosts' locks may be invisible."""
    return re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()) or "host"
