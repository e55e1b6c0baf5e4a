"""The fast path for ordinary small files, symlinks and directories: most of a large data set.

One read, one check that the file is still what was scanned, one write, one read back, and hardly
any Python between the system calls: at 15 us per file even the call of a helper matters. Anything
out of the ordinary raises and leaves nothing behind; ``copying`` and ``directories`` then handle it
with full care.
"""

from __future__ import annotations

import os
from stat import S_IFREG, S_ISGID

import xxhash

from hostprep.staging.files.metadata import CopyStyle, is_carried
from hostprep.staging.kept_times import is_kept_time
from hostprep.staging.model import Entry, Verify
from hostprep.staging.tree import Plain
from hostprep.system.acls import ACCESS_ACL
from hostprep.system.nfs4_acls import may_hide_more, mode_over_nfs

TARGET_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Up to this size malloc reuses the memory of a bytes object for the next one.
SMALL_BYTES = 256 * 1024
# The most attributes to hold at once, of up to 64 KiB each.
_MOST_NAMES = 16
# Looking up an attribute of an enum would cost as much as a system call here.
_NONE, _READBACK = Verify.NONE, Verify.READBACK
_REGULAR = S_IFREG  # without setuid, setgid and sticky, which chown would clear


class Unusual(Exception):
    """The file needs more care than is taken here."""


def copy_small(
    item: Plain, source_dir: int, target_dir: int, style: CopyStyle, opened: int | None = None
) -> str | None:
    """Copy one file and return the hex hash of its content, None without verification.

    ``opened`` is a descriptor that was opened ahead; it is closed here. Raises ``Unusual`` or
    OSError for anything out of the ordinary.
    """
    name, mode, size, mtime_ns, _, _, blocks, _, _, device = item
    if size > SMALL_BYTES or mode & ~0o777 != _REGULAR or blocks * 512 < size:
        if opened is not None:
            os.close(opened)
        raise Unusual
    source = os.open(name, style.source_flags, dir_fd=source_dir) if opened is None else opened
    try:
        names = None if device in style.without_xattrs else os.listxattr(source)
        xattrs = _values(source, names, mode) if names else None
        data = os.read(source, size + 1)  # one more byte, to notice a size that is too small
        st = os.fstat(source)
        if style.drop_behind:
            os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(source)
    if len(data) != size or st.st_mtime_ns != mtime_ns or st.st_size != size or st.st_mode != mode:
        raise Unusual
    target = os.open(name, TARGET_FLAGS, mode & 0o777, dir_fd=target_dir)
    try:
        if os.write(target, data) != size:
            raise Unusual
        if style.verify is _READBACK and os.pread(target, size, 0) != data:
            raise Unusual
        if style.may_chown and (st.st_uid != style.own_uid or st.st_gid != style.own_gid):
            os.fchown(target, st.st_uid, st.st_gid)
        if xattrs:
            _give(xattrs, target, style)
        os.utime(target, ns=(st.st_atime_ns, mtime_ns))
    except BaseException:
        os.unlink(name, dir_fd=target_dir)
        raise
    finally:
        os.close(target)
    return None if style.verify is _NONE else xxhash.xxh3_128_hexdigest(data)


def copy_link(item: Plain, source_dir: int, target_dir: int, style: CopyStyle) -> str:
    """Copy one symlink and return what it points to; raises as ``copy_small`` does.

    The first link shows whether the target gives links times of their own.
    """
    name, mode, size, mtime_ns = item[:4]
    content = os.readlink(name, dir_fd=source_dir)
    st = os.lstat(name, dir_fd=source_dir)
    if st.st_mtime_ns != mtime_ns or st.st_size != size or st.st_mode != mode:
        raise Unusual
    os.symlink(content, name, dir_fd=target_dir)
    try:
        if style.may_chown and (st.st_uid != style.own_uid or st.st_gid != style.own_gid):
            os.chown(name, st.st_uid, st.st_gid, dir_fd=target_dir, follow_symlinks=False)
        times = (st.st_atime_ns, mtime_ns)
        os.utime(name, ns=times, dir_fd=target_dir, follow_symlinks=False)
        if not style.dates_links:
            kept_ns = os.lstat(name, dir_fd=target_dir).st_mtime_ns
            if not is_kept_time(kept_ns, mtime_ns):
                raise Unusual
            style.dates_links = True
    except BaseException:
        os.unlink(name, dir_fd=target_dir)
        raise
    return content


def finish_new(source: int, target: int, entry: Entry, style: CopyStyle) -> None:
    """Set an open directory's mode, owner and times; raises as ``copy_small`` does.

    The target was made by this run, in memory and in a tree of ours: it has our owner and no
    attributes, and keeps the mode that it is given, except setgid.
    """
    names = os.listxattr(source)
    closed = may_hide_more(names, entry.mode)
    if entry.mode & S_ISGID or closed or any(map(is_carried, names)):
        raise Unusual
    atime_ns = os.fstat(source).st_atime_ns
    if style.may_chown and (entry.uid != style.own_uid or entry.gid != style.own_gid):
        os.fchown(target, entry.uid, entry.gid)
    os.fchmod(target, entry.mode & 0o7777)
    os.utime(target, ns=(atime_ns, entry.mtime_ns))


def _values(source: int, names: list[str], mode: int) -> list[tuple[str, bytes]]:
    """Return a file's ``user.*`` attributes; raise ``Unusual`` if it has an ACL.

    An ACL affects the mode, and needs more care. So do many attributes: a file may have thousands
    of 64 KiB each, too much to hold at once.
    """
    if ACCESS_ACL in names or len(names) > _MOST_NAMES:
        raise Unusual
    if mode_over_nfs(source, names, mode) != mode:
        raise Unusual
    return [(name, os.getxattr(source, name)) for name in names if is_carried(name)]


def _give(xattrs: list[tuple[str, bytes]], target: int, style: CopyStyle) -> None:
    """Set a copy's attributes; only count it if the target is known to hold none."""
    if not style.target_xattrs:
        style.lost_xattrs += 1
        return
    for name, value in xattrs:
        os.setxattr(target, name, value)
