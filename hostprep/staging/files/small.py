"""The quick way for ordinary small files, symlinks and directories: most of a large data set.

One read, one look whether the file is still what was scanned, one write, one read back, with no
more of Python between the system calls than that takes: at 15 us a file a call of a helper counts.
Whatever is out of the ordinary raises and leaves nothing behind; ``copying`` and ``directories``
then do it with all care.
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
# Up to this size malloc keeps the memory of a bytes object for the next one.
SMALL_BYTES = 256 * 1024
# Attributes that are held at once, of up to 64 KiB each.
_MOST_NAMES = 16
# An attribute of an enum costs as much as a system call here.
_NONE, _READBACK = Verify.NONE, Verify.READBACK
_REGULAR = S_IFREG  # and neither setuid, setgid nor sticky, which chown would clear


class Unusual(Exception):
    """The file wants more care than is taken here."""


def copy_small(
    item: Plain, source_dir: int, target_dir: int, style: CopyStyle, opened: int | None = None
) -> str | None:
    """Copy one file and return the hex hash of its content, None without verification.

    ``opened`` is a descriptor of it from ahead of its turn, closed here. Raises ``Unusual`` or
    OSError for everything that is not as in most files.
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
        data = os.read(source, size + 1)  # one more: a size that is too small shows by it
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

    Whether the target gives links times of their own is looked at with the first of them.
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
    """Give an open directory its mode, owner and times; raises as ``copy_small`` does.

    The target is one that this run made, in memory and in a tree of ours: it has our owner and no
    attributes, and keeps the mode that it is given, but for setgid.
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
    """Return the ``user.*`` attributes of a file; before a read ``Unusual`` where it has an ACL.

    That has a say in the mode, and wants more care. So do many attributes: a file may have some
    thousands of 64 KiB, which are too much to be held at once.
    """
    if ACCESS_ACL in names or len(names) > _MOST_NAMES:
        raise Unusual
    if mode_over_nfs(source, names, mode) != mode:
        raise Unusual
    return [(name, os.getxattr(source, name)) for name in names if is_carried(name)]


def _give(xattrs: list[tuple[str, bytes]], target: int, style: CopyStyle) -> None:
    """Give a copy its attributes; count it where the target is known to hold none."""
    if not style.target_xattrs:
        style.lost_xattrs += 1
        return
    for name, value in xattrs:
        os.setxattr(target, name, value)
