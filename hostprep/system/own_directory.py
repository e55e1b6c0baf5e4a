"""A directory of our own inside one that others may write to, held by its descriptor.

They can move it at any moment, and replace it by a symlink, or by a directory of theirs or of
anybody's. So nothing in it is ever reached by its name: it is opened once, right after it was
created, and only what is certainly ours is used, and emptied.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from hostprep.system.descriptors import closed_on_error, closing_fd
from hostprep.system.trees import (
    DIRECTORY_FLAGS,
    NEW_FILE_FLAGS,
    empty_tree,
    names_in,
    remove_directory,
)

# Directories that probe and verify create in a folder while they measure it.
PROBE_PREFIX, VERIFY_PREFIX = ".hostprep-probe-", ".hostprep-verify-"
_OTHERS_WRITE = 0o022
_EXCHANGED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_TRIED_NAMES = 16


def is_own(name: str) -> bool:
    """Whether a directory of that name holds test data; it is never part of a data set."""
    return name.startswith((PROBE_PREFIX, VERIFY_PREFIX))


def make_own(parent_fd: int, name: str) -> int:
    """Create the directory ``name`` for us alone, and return a descriptor of it.

    FileExistsError if the name is taken, or was given to something else before we opened it.
    """
    os.mkdir(name, 0o700, dir_fd=parent_fd)
    try:
        descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
    except OSError as error:
        if error.errno in _EXCHANGED:
            raise _taken(name) from None
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=parent_fd)
        raise
    with closed_on_error(descriptor):
        try:
            ours = _is_ours(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_directory(parent_fd, name, descriptor)
            raise
        if not ours:
            raise _taken(name)
    return descriptor


@contextlib.contextmanager
def own_directory(parent: str, prefix: str) -> Iterator[int]:
    """Create a directory in ``parent`` for the body; yield its descriptor.

    It is removed with its contents; if somebody has moved it, it stays, but empty. OSError if it
    cannot be created, or something in it cannot be removed.
    """
    with closing_fd(os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as parent_fd:
        name, descriptor = _make_any(parent_fd, prefix)
        try:
            yield descriptor
        finally:
            with closing_fd(descriptor):
                empty_tree(descriptor)
                remove_directory(parent_fd, name, descriptor)


def remove_left(path: str, device: int, inode: int) -> None:
    """Remove the directory that a killed process of ours left, if it is still that one.

    As far as possible: what cannot be removed stays.
    """
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
        parent, name = os.path.split(path)
        parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, parent_fd)
        descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
        opened.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) == (device, inode):
            empty_tree(descriptor)
            remove_directory(parent_fd, name, descriptor)


def _make_any(parent_fd: int, prefix: str) -> tuple[str, int]:
    """Create a directory with an unpredictable name; return the name and a descriptor."""
    for _ in range(_TRIED_NAMES):
        name = prefix + os.urandom(6).hex()
        try:
            return name, make_own(parent_fd, name)
        except FileExistsError:
            continue
    raise FileExistsError(errno.EEXIST, "somebody removes each folder that is made", prefix)


def _is_ours(descriptor: int) -> bool:
    """Return whether an open directory is the one just created: empty, and our own.

    If somebody found another directory of ours and put it here, it is as good, if it is empty.
    """
    if names_in(descriptor):
        return False
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() and status.st_uid != _owner_of_ours(descriptor):
        return False
    if status.st_mode & _OTHERS_WRITE:
        with contextlib.suppress(OSError):  # the file system has no modes
            os.fchmod(descriptor, 0o700)
    return not names_in(descriptor)


def _owner_of_ours(descriptor: int) -> int:
    """Return who owns what we create there: vfat, and NFS with squashed root, name another."""
    name = f"owner-{os.urandom(6).hex()}"
    file = os.open(name, NEW_FILE_FLAGS, 0o600, dir_fd=descriptor)
    try:
        return os.fstat(file).st_uid
    finally:
        os.close(file)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=descriptor)


def _taken(name: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
