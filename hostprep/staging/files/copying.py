"""Copy one entry of any kind with all its metadata, and verify it while it is open.

Nothing here retries; ``copier`` does. Most files take the fast path of ``small``.
"""

from __future__ import annotations

import errno
import os
import stat

from hostprep.staging.files import transfer
from hostprep.staging.files.holding import (
    LINK_TIMES,
    OWNER,
    SYMLINKS,
    THIS_NAME,
    holding,
    is_unholdable,
    reason_of,
)
from hostprep.staging.files.leases import open_unleased
from hostprep.staging.files.metadata import CopyStyle, copy_metadata
from hostprep.staging.files.settling import settle
from hostprep.staging.files.small import TARGET_FLAGS
from hostprep.staging.kept_times import is_kept_time
from hostprep.staging.model import Entry
from hostprep.staging.reasons import GONE, TARGET_CANNOT
from hostprep.staging.tree import entry_of
from hostprep.system.trees import FILE_FLAGS, DirCache

# An entry as it was copied, and the hex hash of a file or the target of a symlink.
Copy = tuple[Entry, str | None]


def open_source(name: str, dir_fd: int, style: CopyStyle) -> int:
    """Open a source file for reading, without changing its access time if that is allowed."""
    try:
        return open_unleased(name, style.source_flags, dir_fd=dir_fd)
    except PermissionError:
        # the file is not ours, or cannot be read: the next line finds out
        descriptor = open_unleased(name, FILE_FLAGS, dir_fd=dir_fd)
        style.source_flags = FILE_FLAGS
        return descriptor


def copy_file(
    entry: Entry, source_dir: int, target_dir: int, style: CopyStyle, buffer: memoryview
) -> Copy:
    """Copy a regular file of up to ``RANGE_BYTES``, or a sparse one of any size.

    Returns the entry as it was copied and the hex hash of its content (None without verification).
    Raises ``Changed``, ``WrongSize``, ``Differs`` or OSError, after removing what was written.
    """
    name = entry.name
    source = open_source(name, source_dir, style)
    try:
        target = _create(entry, target_dir)
        try:
            content = transfer.copy_content(entry, source, target, style, buffer)
            st = os.fstat(source)
            check_unchanged(entry, st)
            transfer.check_ends(source, entry.size)
            if style.drop_behind:
                os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
            copy_metadata(st, source, target, style)
        except BaseException:
            os.unlink(name, dir_fd=target_dir)
            raise
        finally:
            os.close(target)
    finally:
        os.close(source)
    return entry, content


def copy_again(
    entry: Entry, source_dir: int, target_dir: int, style: CopyStyle, buffer: memoryview
) -> Copy:
    """Copy an entry a second time, in its current state; raises as ``copy_file`` does."""
    now = current(entry, source_dir)
    if settle((now.mtime_ns,)):
        now = current(entry, source_dir)
    if stat.S_IFMT(now.mode) != stat.S_IFMT(entry.mode):
        raise transfer.Changed
    if stat.S_ISLNK(now.mode):
        return copy_symlink(now, source_dir, target_dir, style)
    return copy_file(now, source_dir, target_dir, style, buffer)


def _create(entry: Entry, target_dir: int) -> int:
    # The workers' umask is 0, so that this mode takes effect without another call. Bits that chown
    # would clear, and modes without access, are set at the end.
    mode = entry.mode & 0o777
    try:
        with holding(THIS_NAME, entry.name):
            return os.open(entry.name, TARGET_FLAGS, mode, dir_fd=target_dir)
    except FileExistsError:
        # Left by an interrupted run, or by the first of two tries.
        os.unlink(entry.name, dir_fd=target_dir)
        return os.open(entry.name, TARGET_FLAGS, mode, dir_fd=target_dir)


def copy_symlink(entry: Entry, source_dir: int, target_dir: int, style: CopyStyle) -> Copy:
    """Copy a symlink as a symlink and return its entry and what it points to.

    Raises ``Changed`` or OSError, after removing what was made.
    """
    content = os.readlink(entry.name, dir_fd=source_dir)
    try:
        with holding(SYMLINKS, entry.name):
            os.symlink(content, entry.name, dir_fd=target_dir)
    except FileExistsError:
        os.unlink(entry.name, dir_fd=target_dir)
        os.symlink(content, entry.name, dir_fd=target_dir)
    try:
        st = os.lstat(entry.name, dir_fd=source_dir)
        check_unchanged(entry, st)
        if style.may_chown and (st.st_uid, st.st_gid) != (style.own_uid, style.own_gid):
            owner = st.st_uid, st.st_gid
            with holding(OWNER):
                os.chown(entry.name, *owner, dir_fd=target_dir, follow_symlinks=False)
        _give_times(entry.name, st, target_dir)
    except BaseException:
        os.unlink(entry.name, dir_fd=target_dir)
        raise
    return entry, content


def _give_times(name: str, st: os.stat_result, target_dir: int) -> None:
    """Set a symlink's times; OSError if the target sets those of what it points to (sshfs)."""
    try:
        os.utime(
            name, ns=(st.st_atime_ns, st.st_mtime_ns), dir_fd=target_dir, follow_symlinks=False
        )
        kept_ns = os.lstat(name, dir_fd=target_dir).st_mtime_ns
    except FileNotFoundError:  # what it points to does not exist
        kept_ns = None
    if kept_ns is None or not is_kept_time(kept_ns, st.st_mtime_ns):
        raise OSError(errno.ENOTSUP, f"{TARGET_CANNOT}{LINK_TIMES}")


def leads_out(directory: str, content: str) -> bool:
    """Whether a symlink in ``directory`` leads out of the data set, judging by names only."""
    if ".." not in content and not content.startswith("/"):
        return False
    path = os.path.normpath(f"{directory}/{content}" if directory else content)
    return content.startswith("/") or path == ".." or path.startswith("../")


def check_unchanged(entry: Entry, st: os.stat_result) -> None:
    """Raise ``Changed`` if the source is no longer the file that was planned.

    The inode number is ignored: some FUSE file systems return a new one each time.
    """
    if st.st_mtime_ns != entry.mtime_ns or st.st_size != entry.size or st.st_mode != entry.mode:
        raise transfer.Changed


def reason_below(error: OSError, directory: str, name: str, source: DirCache) -> str:
    """Return why an entry could not be copied: ``GONE`` if it was deleted."""
    if error.errno == errno.ENOENT and not is_unholdable(error):
        try:
            os.lstat(name, dir_fd=source.fd(directory))
        except FileNotFoundError:
            return GONE
        except OSError:
            pass  # report the original error then
    return reason_of(error)


def current(entry: Entry, source_dir: int) -> Entry:
    """Return the entry as it is now, for a second try."""
    return entry_of(entry.name, os.lstat(entry.name, dir_fd=source_dir))
