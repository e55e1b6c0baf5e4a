"""Directories below a root, opened by descriptor, one part of the path at a time; and their files.

Links are never followed: if a directory was replaced by a symlink, opening it fails with ELOOP or
ENOTDIR instead of leading out of the tree. This makes it safe for root to work in trees that other
people can write to.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hostprep.system.descriptors import closing_fd
from hostprep.system.limits import open_files

# How many directories a cache keeps open by default, and the minimum with which it works.
MOST_OPEN = 64
LEAST_OPEN = 2
# For a low limit: up to four caches are in use at once, besides roots, pipes, locks and records.
_CACHES = 4
_BESIDE = 40
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, because opening a fifo that took a file's place would wait for a writer for ever.
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# For files that users name, or may have put there: links are followed, and a terminal does not
# become our controlling one.
NAMED_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DirCache:
    """Descriptors of the most recently used directories below ``root_fd``; older ones are closed.

    With ``create``, for trees of ours, whose modes are set last, missing directories are created
    with mode 0700, and those that are closed to their owner are opened. In a ``fresh`` tree they
    are assumed to be missing and created at once; one that an earlier run left loses its setgid
    bit. Not to be shared between threads. The root's descriptor remains the caller's. ``limit`` is
    how many are kept open: by default ``MOST_OPEN``, or fewer if few open files are allowed
    (``ulimit -n``).
    """

    def __init__(
        self,
        root_fd: int,
        *,
        create: bool = False,
        fresh: bool = False,
        limit: int | None = None,
    ) -> None:
        self._root_fd = root_fd
        self._create = create
        self._fresh = fresh
        self._limit = _keep_open() if limit is None else limit
        self._open: OrderedDict[str, int] = OrderedDict()

    def __enter__(self) -> DirCache:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def fd(self, path: str) -> int:
        """Return a descriptor of the directory ``path``, valid until the next call."""
        if not path:
            return self._root_fd
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        # Start from the nearest ancestor that is open.
        missing = [path]
        ancestor = path.rpartition("/")[0]
        while ancestor and ancestor not in self._open:
            missing.append(ancestor)
            ancestor = ancestor.rpartition("/")[0]
        descriptor = self._open[ancestor] if ancestor else self._root_fd
        for directory in reversed(missing):
            descriptor = self._open_below(descriptor, directory.rpartition("/")[2])
            self._open[directory] = descriptor
            if len(self._open) > self._limit:
                os.close(self._open.popitem(last=False)[1])
        return descriptor

    def close(self) -> None:
        """Close all descriptors except the root's."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _open_below(self, parent_fd: int, name: str) -> int:
        if self._fresh and not _make_directory(parent_fd, name):
            return without_setgid(self._open_or_make(parent_fd, name))
        return self._open_or_make(parent_fd, name)

    def _open_or_make(self, parent_fd: int, name: str) -> int:
        try:
            return os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
        except PermissionError:
            if not self._create:
                raise
            _open_to_owner(parent_fd, name)
            return os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
        except FileNotFoundError:
            if not self._create:
                raise
        _make_directory(parent_fd, name)
        return os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)


def _make_directory(parent_fd: int, name: str) -> bool:
    """Create a directory and return True, or False if another worker was faster."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=writable(parent_fd))
        return True
    return False


def without_setgid(directory_fd: int) -> int:
    """Remove the setgid bit of an open directory, so that files created in it get our group."""
    mode = stat.S_IMODE(os.fstat(directory_fd).st_mode)
    if mode & stat.S_ISGID:
        with suppress(OSError):  # the file system shows the bit on everything, and keeps it
            os.fchmod(directory_fd, mode & ~stat.S_ISGID)
    return directory_fd


def _keep_open() -> int:
    return max(LEAST_OPEN, min(MOST_OPEN, (open_files() - _BESIDE) // _CACHES))


def writable(directory_fd: int) -> int:
    """Let ordinary users write to a directory of theirs that is closed to its owner.

    For directories of ours alone, whose modes are set again once the work in them is done.
    """
    if os.geteuid() != 0:
        mode = stat.S_IMODE(os.fstat(directory_fd).st_mode)
        if mode & 0o300 != 0o300:
            os.fchmod(directory_fd, mode | 0o300)
    return directory_fd


def _open_to_owner(parent_fd: int, name: str) -> None:
    """Let ordinary users into a directory of theirs that was staged without a mode for them."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing_fd(os.open(name, flags, dir_fd=parent_fd)) as descriptor:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.chmod(f"/proc/self/fd/{descriptor}", mode | 0o700)


def join(directory: str, name: str) -> str:
    """Return the path of ``name`` in ``directory``, both relative to the root of a data set."""
    return f"{directory}/{name}" if directory else name


def above(path: str) -> Iterator[str]:
    """Yield the parent directories of ``path``, the nearest first, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def rewind(descriptor: int) -> None:
    """Go to the first entry: listing an open directory continues where the last one ended.

    Without this, Btrfs only shows what was there when the directory was opened.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)


@contextmanager
def opened_anew(descriptor: int) -> Iterator[int]:
    """Open an open directory once more, to list its present contents.

    On some file systems (sshfs) a descriptor can be listed only once; and if several processes have
    inherited a descriptor, they share its position.
    """
    try:
        own = os.open(".", DIRECTORY_FLAGS, dir_fd=descriptor)
    except PermissionError:  # it has been closed to its owner since
        own = os.dup(descriptor)
        rewind(own)
    with closing_fd(own):
        yield own


def names_in(descriptor: int) -> list[str]:
    """Return the present names in an open directory."""
    with opened_anew(descriptor) as own:
        return os.listdir(own)


def remove_tree(parent_fd: int, name: str) -> None:
    """Remove ``name`` below ``parent_fd`` with all its contents, however deep, following nothing.

    For what hostprep created for itself alone, in a directory that nobody else can write to. What
    is already gone is fine.
    """
    try:
        root_fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
    except FileNotFoundError:
        return
    with closing_fd(root_fd):
        empty_tree(root_fd)
    os.rmdir(name, dir_fd=parent_fd)


def empty_tree(
    root_fd: int, *, last: str = "", on_removed: Callable[[], None] | None = None
) -> None:
    """Remove all the contents of an open directory, however deep, following nothing.

    For a tree that hostprep created for itself alone. The file ``last`` is removed last.
    ``on_removed`` is called after each other entry: there may be millions.
    """
    told = on_removed or (lambda: None)
    with DirCache(root_fd, create=True) as tree:
        pending, directories = [""], []
        kept = False
        while pending:
            path = pending.pop()
            descriptor = tree.fd(path)
            _keep_to_ourselves(descriptor)
            with opened_anew(descriptor) as own, os.scandir(own) as listing:
                items = [(item.name, item.is_dir(follow_symlinks=False)) for item in listing]
            for item, is_directory in items:
                if is_directory:
                    pending.append(join(path, item))
                elif not path and item == last:
                    kept = True
                else:
                    os.unlink(item, dir_fd=descriptor)
                    told()
            if path:
                directories.append(path)
        for path in reversed(directories):  # children before their parents
            parent, _, item = path.rpartition("/")
            os.rmdir(item, dir_fd=tree.fd(parent))
            told()
    if kept:
        os.unlink(last, dir_fd=root_fd)


def _keep_to_ourselves(descriptor: int) -> None:
    """Let us, and nobody else, into a directory whose mode keeps its owner out.

    A file system without modes (some FUSE) may refuse that, but does not need it.
    """
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode != 0o700:
        try:
            os.fchmod(descriptor, 0o700)
        except OSError:
            if mode & 0o700 != 0o700:
                raise


def remove_directory(parent_fd: int, name: str, descriptor: int) -> bool:
    """Remove the empty directory that is open as ``descriptor``; return whether it is gone.

    Whoever may write to the parent can have moved it and given its name to another: that is left
    alone. What they exchange in the instant after the check is removed only if it is empty too.
    """
    status = os.fstat(descriptor)
    try:
        there = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return status.st_nlink == 0
    if not os.path.samestat(there, status):
        return status.st_nlink == 0
    os.rmdir(name, dir_fd=parent_fd)
    return True
