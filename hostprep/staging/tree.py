"""Directories below a root, opened by descriptor, one part of the path at a time.

Nothing is followed: where a directory was replaced by a symlink, opening it fails with ELOOP or
ENOTDIR instead of leading out of the tree. That is what makes it safe for root to work in trees
that other people can write.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from time import monotonic
from types import TracebackType

from hostprep.staging.model import Entry

# Directories that are kept open, where nothing says otherwise.
MOST_OPEN = 64
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Memory has answered for an entry in 3 us, and something else has where it took so much longer.
_SLOW_SECONDS = 20e-6
_GRACE_SECONDS = 5e-3


class DirCache:
    """Descriptors of the directories last used below ``root_fd``, closed when they age.

    With ``create`` missing directories are made, with mode 0700 until they get their own, and those
    that are closed to their owner are opened: for trees of ours, whose modes are set last. Not for
    sharing between threads. The root's descriptor stays the caller's.
    """

    def __init__(self, root_fd: int, *, create: bool = False, limit: int = MOST_OPEN) -> None:
        self._root_fd = root_fd
        self._create = create
        self._limit = limit
        self._open: OrderedDict[str, int] = OrderedDict()

    def __enter__(self) -> DirCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def fd(self, path: str) -> int:
        """Return a descriptor of the directory ``path``, valid until the next call."""
        if not path:
            return self._root_fd
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        # The nearest ancestor that is open, then down from there.
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
        """Close all descriptors but the root's."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _open_below(self, parent_fd: int, name: str) -> int:
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
        try:
            os.mkdir(name, 0o700, dir_fd=writable(parent_fd))
        except FileExistsError:
            pass  # another worker was faster
        return os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)


def writable(directory_fd: int) -> int:
    """Let an ordinary user write a directory of theirs that is closed to its owner.

    For directories of ours alone, whose modes are set again once the work in them is done.
    """
    if os.geteuid() != 0:
        mode = stat.S_IMODE(os.fstat(directory_fd).st_mode)
        if mode & 0o300 != 0o300:
            os.fchmod(directory_fd, mode | 0o300)
    return directory_fd


def staged_mode(mode: int) -> int:
    """Return the mode that a copied directory gets where its source has ``mode``.

    An ordinary user keeps the way into their own: what lies in it could not be looked at, updated
    or removed without.
    """
    return mode if os.geteuid() == 0 else mode | 0o500


def _open_to_owner(parent_fd: int, name: str) -> None:
    """Let an ordinary user into a directory of theirs that was staged without a mode for them."""
    descriptor = os.open(
        name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd
    )
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.chmod(f"/proc/self/fd/{descriptor}", mode | 0o700)
    finally:
        os.close(descriptor)


def join(directory: str, name: str) -> str:
    """Return the path of ``name`` in ``directory``, both relative to the root of a data set."""
    return f"{directory}/{name}" if directory else name


# The fields of an ``Entry`` as they travel between processes.
Plain = tuple[str, int, int, int, int, int, int, int, int, int]


def says_absent(error: OSError) -> bool:
    """Whether what was to be looked at is not there, or closed to who is not root."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return os.geteuid() != 0
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def rewind(descriptor: int) -> None:
    """Begin at the first entry: a listing of an open directory goes on where the last one ended.

    Without it Btrfs shows only what was there when the directory was opened.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)


def names_in(descriptor: int) -> list[str]:
    """Return the names in an open directory as it is now."""
    rewind(descriptor)
    return os.listdir(descriptor)


def list_directory(descriptor: int) -> list[Plain]:
    """Return the entries of a directory as plain tuples in the order of ``Entry``.

    An entry that vanishes between the listing and its lstat was never there.
    """
    rewind(descriptor)
    with os.scandir(descriptor) as listing:
        return _look_at(listing)


def list_if_few(
    descriptor: int, most: int, *, by_inode: bool, from_server: bool
) -> tuple[list[Plain], list[str]]:
    """Return the entries of a directory, but the names alone where there are more than ``most``.

    ``by_inode`` has them in the order of their inodes, which is that of the disk; ext4 lists names
    in the order of their hashes. A listing that comes ``from_server`` may bring what the entries
    are (READDIRPLUS of NFS and FUSE), which the kernel asks for only as long as somebody looks at
    them meanwhile: then they are looked at as they come, however many there are, until a look has
    taken long, and names are what is left by then.
    """
    rewind(descriptor)
    with os.scandir(descriptor) as listing:
        items: Iterator[os.DirEntry[str]] = listing
        if by_inode:
            items = iter(sorted(listing, key=os.DirEntry.inode))
        entries = _look_while_prompt(items) if from_server else []
        rest = list(islice(items, max(0, most - len(entries)) + 1))
        if not rest or len(entries) + len(rest) <= most:
            return entries + _look_at(rest), []
        return entries, [item.name for item in chain(rest, items)]


def look_up(descriptor: int, names: Iterable[str]) -> list[Plain]:
    """Return what a directory has of ``names``, as ``list_directory`` does."""
    entries = []
    for name in names:
        try:
            entries.append(_plain(name, os.lstat(name, dir_fd=descriptor)))
        except FileNotFoundError:
            continue
    return entries


def is_slow(seconds: float, entries: int) -> bool:
    """Return whether it is not memory that answered for so many entries."""
    return seconds > _GRACE_SECONDS + entries * _SLOW_SECONDS


def _look_while_prompt(items: Iterator[os.DirEntry[str]]) -> list[Plain]:
    """Return the entries of ``items`` up to the one at which the looks have become slow."""
    entries = []
    seconds = 0.0  # of the looks: those at the next part of the listing say nothing
    for item in items:
        started = monotonic()
        entries += _look_at([item])
        seconds += monotonic() - started
        if is_slow(seconds, len(entries)):
            break
    return entries


def _look_at(items: Iterable[os.DirEntry[str]]) -> list[Plain]:
    entries = []
    for item in items:
        try:
            entries.append(_plain(item.name, item.stat(follow_symlinks=False)))
        except FileNotFoundError:
            continue
    return entries


def entry_of(name: str, st: os.stat_result) -> Entry:
    """Return the entry that an ``os.stat_result`` describes."""
    return Entry._make(_plain(name, st))


def _plain(name: str, st: os.stat_result) -> Plain:
    return (
        name,
        st.st_mode,
        st.st_size,
        st.st_mtime_ns,
        st.st_uid,
        st.st_gid,
        st.st_blocks,
        st.st_nlink,
        st.st_ino,
        st.st_dev,
    )


def walk(root_fd: int, *, ours: bool = False) -> Iterator[tuple[str, list[Entry]]]:
    """Yield each directory below ``root_fd`` with its entries, parents before children.

    In a tree that is ``ours`` alone, directories that are closed to their owner are opened. Raises
    OSError with the directory's path as its filename where one cannot be read.
    """
    pending = [""]
    with DirCache(root_fd, create=ours) as cache:
        while pending:
            directory = pending.pop()
            try:
                entries = [Entry._make(item) for item in list_directory(cache.fd(directory))]
            except OSError as error:
                raise OSError(error.errno, error.strerror, directory) from None
            yield directory, entries
            pending.extend(
                join(directory, entry.name) for entry in entries if stat.S_ISDIR(entry.mode)
            )


def remove_tree(parent_fd: int, name: str) -> None:
    """Remove ``name`` below ``parent_fd`` with all it holds, however deep, following nothing.

    For what hostprep made for itself alone, in a directory that nobody else can write. What is
    already gone is fine.
    """
    try:
        root_fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
    except FileNotFoundError:
        return
    try:
        empty_tree(root_fd)
    finally:
        os.close(root_fd)
    os.rmdir(name, dir_fd=parent_fd)


def empty_tree(root_fd: int, *, last: str = "") -> None:
    """Remove all that an open directory holds, however deep, following nothing.

    For a tree that hostprep made for itself alone. The file ``last`` goes when all else is gone.
    """
    with DirCache(root_fd, create=True) as tree:
        pending, directories = [""], []
        kept = False
        while pending:
            path = pending.pop()
            descriptor = tree.fd(path)
            # Directories may have been given modes that keep their owner out.
            os.fchmod(descriptor, 0o700)
            rewind(descriptor)
            with os.scandir(descriptor) as listing:
                items = [(item.name, item.is_dir(follow_symlinks=False)) for item in listing]
            for item, is_directory in items:
                if is_directory:
                    pending.append(join(path, item))
                elif not path and item == last:
                    kept = True
                else:
                    os.unlink(item, dir_fd=descriptor)
            if path:
                directories.append(path)
        for path in reversed(directories):  # children before their parents
            parent, _, item = path.rpartition("/")
            os.rmdir(item, dir_fd=tree.fd(parent))
    if kept:
        os.unlink(last, dir_fd=root_fd)


def remove_directory(parent_fd: int, name: str, descriptor: int) -> bool:
    """Remove the empty directory that is open as ``descriptor``; return whether it is gone.

    Who may write the parent can have moved it and given its name to another: that is left alone.
    What they exchange in the instant after the look is removed only if it is empty too.
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
