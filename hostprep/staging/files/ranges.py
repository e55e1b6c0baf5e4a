"""A large file in pieces: ranges that several workers copy in any order, and its completion."""

from __future__ import annotations

import errno
import os
import stat

from hostprep.staging.files import copying, transfer
from hostprep.staging.files.fatal import raise_if_of_all
from hostprep.staging.files.holding import FOLDER_NAME, THIS_NAME, holding, is_unholdable
from hostprep.staging.files.metadata import CopyStyle, copy_metadata
from hostprep.staging.files.settling import settle
from hostprep.staging.model import Entry
from hostprep.staging.tree import Plain
from hostprep.system.trees import DirCache, join

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def copy(
    directory: str,
    item: Plain,
    offset: int,
    length: int,
    source_tree: DirCache,
    target_tree: DirCache,
    style: CopyStyle,
    buffer: memoryview,
) -> tuple[bytes, str | None]:
    """Copy ``length`` bytes, starting at ``offset``, of the file ``item`` below ``directory``.

    Returns their digest and what went wrong. Raises ``OSError``.
    """
    entry = Entry._make(item)
    settle((entry.mtime_ns,))
    try:
        source = copying.open_source(entry.name, source_tree.fd(directory), style)
        try:
            with holding(FOLDER_NAME, directory):
                target_dir = target_tree.fd(directory)
            target = open_target(entry, target_dir)
            try:
                found = transfer.copy_range(
                    source, target, offset, length, style, buffer, shared=True
                )
                if style.drop_behind:
                    os.posix_fadvise(source, offset, length, os.POSIX_FADV_DONTNEED)
                return found, None
            finally:
                os.close(target)
        finally:
            os.close(source)
    except transfer.WrongSize:
        return b"", "wrong size"
    except transfer.Changed:
        return b"", "changed"
    except transfer.Differs:
        return b"", "differs"


def open_target(entry: Entry, target_dir: int) -> int:
    """Open the target of a file and set its final size.

    Several workers do this for the same file in any order; the mode stays private until the end.
    """
    with holding(THIS_NAME, entry.name):
        target = os.open(entry.name, _FLAGS | os.O_CREAT, 0o600, dir_fd=target_dir)
    st = os.fstat(target)
    if not stat.S_ISREG(st.st_mode):
        os.close(target)
        raise OSError(errno.EEXIST, "something that is not a file is in the way", entry.name)
    os.ftruncate(target, entry.size)
    return target


def finish(
    directory: str, entry: Entry, source_tree: DirCache, target_tree: DirCache, style: CopyStyle
) -> str | None:
    """Set the metadata of a file whose ranges are all copied; return a problem, if any.

    A source that has changed meanwhile is one, too.
    """
    target_dir = target_tree.fd(directory)
    try:
        source = copying.open_source(entry.name, source_tree.fd(directory), style)
        try:
            st = os.fstat(source)
            copying.check_unchanged(entry, st)
            transfer.check_ends(source, entry.size)
            target = os.open(entry.name, _FLAGS, dir_fd=target_dir)
            try:
                copy_metadata(st, source, target, style)
            finally:
                os.close(target)
        finally:
            os.close(source)
    except transfer.WrongSize:
        return "wrong size"
    except transfer.Changed:
        return "changed"
    except OSError as error:
        raise_if_of_all(error, source_tree)
        return copying.reason_below(error, directory, entry.name, source_tree)
    return None


def discard(directory: str, name: str, target_tree: DirCache) -> None:
    """Remove a file that will not be finished, if it is there."""
    try:
        with holding(THIS_NAME, join(directory, name)):
            os.unlink(name, dir_fd=target_tree.fd(directory))
    except OSError as error:
        if not (is_unholdable(error) or error.errno == errno.ENOENT):
            raise
