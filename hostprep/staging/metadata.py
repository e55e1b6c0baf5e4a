"""What a file has beside its content: owner, mode, ``user.*`` attributes and times."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from hostprep.staging.model import RANGE_BYTES, Verify

SOURCE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

_NO_XATTRS = (errno.EOPNOTSUPP, errno.EPERM, errno.EACCES)


@dataclass(slots=True)
class CopyStyle:
    """How one worker copies; it learns what its source and target do not allow.

    ``look_ahead`` has the kernel read ahead of what is copied. ``drop_behind`` drops what was read
    from the page cache, for a source with so much data that the cache would take the RAM that the
    tmpfs needs.
    """

    verify: Verify
    own_uid: int
    own_gid: int
    may_chown: bool
    look_ahead: bool = False
    drop_behind: bool = False
    source_flags: int = SOURCE_FLAGS | os.O_NOATIME
    source_xattrs: bool = True
    target_xattrs: bool = True
    lost_xattrs: int = 0


def copy_metadata(st: os.stat_result, source: int, target: int, style: CopyStyle) -> None:
    """Give an open target the owner, mode, ``user.*`` attributes and times of its source."""
    if style.source_xattrs:
        copy_xattrs(source, target, style)
    chowned = style.may_chown and (st.st_uid, st.st_gid) != (style.own_uid, style.own_gid)
    if chowned:
        os.fchown(target, st.st_uid, st.st_gid)
    mode = stat.S_IMODE(st.st_mode)
    if mode > 0o777 or st.st_size > RANGE_BYTES:
        # chown clears these bits, so they come after it; ranges were written under mode 0600.
        os.fchmod(target, mode)
    os.utime(target, ns=(st.st_atime_ns, st.st_mtime_ns))


def copy_xattrs(source: int, target: int, style: CopyStyle) -> None:
    """Copy the ``user.*`` attributes, counting files whose attributes the target cannot hold."""
    try:
        names = os.listxattr(source)
    except OSError as error:
        if error.errno not in _NO_XATTRS:
            raise
        style.source_xattrs = False
        return
    wanted = [name for name in names if name.startswith("user.")]
    if not wanted:
        return
    if style.target_xattrs:
        try:
            for name in wanted:
                os.setxattr(target, name, os.getxattr(source, name))
            return
        except OSError as error:
            if error.errno not in (*_NO_XATTRS, errno.ENOSPC, errno.E2BIG):
                raise
            style.target_xattrs = error.errno != errno.EOPNOTSUPP
    style.lost_xattrs += 1
