"""A file's metadata: owner, mode, ACL, ``user.*`` attributes and times."""

from __future__ import annotations

import errno
import os
import stat
from array import array
from dataclasses import field

from hostprep.dataclass import dataclass
from hostprep.staging.files.holding import OWNER, holding, is_full
from hostprep.staging.model import RANGE_BYTES, Verify
from hostprep.system.acls import ACCESS_ACL, without_acl
from hostprep.system.nfs4_acls import mode_over_nfs
from hostprep.system.trees import FILE_FLAGS

_RUNS_AS = stat.S_ISUID | stat.S_ISGID
_NO_XATTRS = (errno.EOPNOTSUPP, errno.EPERM, errno.EACCES)
_NO_ROOM = (errno.ENOSPC, errno.E2BIG)


@dataclass(slots=True)
class CopyStyle:
    """How one worker copies; it learns what its source and target do not allow.

    ``look_ahead`` makes the kernel read ahead of what is copied. ``drop_behind`` drops what was
    read from the page cache, for a source with so much data that the cache would take the RAM that
    the tmpfs needs. The target is ``in_ram`` if there is no disk behind it. ``counters`` are those
    of ``processes.effort``, or unused ones. ``without_xattrs`` are the devices of the source whose
    file systems have no extended attributes: a data set may have files from several.
    ``dates_links``:
    the target has been seen to keep the times set on links.
    """

    verify: Verify
    own_uid: int
    own_gid: int
    may_chown: bool
    look_ahead: bool = False
    drop_behind: bool = False
    in_ram: bool = False
    source_flags: int = FILE_FLAGS | os.O_NOATIME
    without_xattrs: set[int] = field(default_factory=set)
    target_xattrs: bool = True
    lost_xattrs: int = 0
    dates_links: bool = False
    counters: memoryview = field(default_factory=lambda: memoryview(array("Q", (0, 0))))


def is_carried(name: str) -> bool:
    """Whether copies get an extended attribute of this name too."""
    return name.startswith("user.") or name == ACCESS_ACL


def copy_metadata(st: os.stat_result, source: int, target: int, style: CopyStyle) -> None:
    """Give an open target the owner, mode, ACL, ``user.*`` attributes and times of its source."""
    mode = stat.S_IMODE(st.st_mode)
    if not style.may_chown:  # otherwise a program of somebody else would run as this user
        mode &= ~(stat.S_ISUID if st.st_uid != style.own_uid else 0)
        mode &= ~(stat.S_ISGID if st.st_gid != style.own_gid else 0)
    elif mode & _RUNS_AS and os.fstatvfs(source).f_flag & os.ST_NOSUID:
        mode &= ~_RUNS_AS  # the source's mount ignores these bits, but the copy's may not
    lost_before = style.lost_xattrs
    narrowed = copy_xattrs(source, target, mode, style)
    chowned = style.may_chown and (st.st_uid, st.st_gid) != (style.own_uid, style.own_gid)
    if chowned:
        with holding(OWNER):
            os.fchown(target, st.st_uid, st.st_gid)
    if mode > 0o777 or narrowed != mode or st.st_size > RANGE_BYTES:
        # chown clears these bits, so set them after it; ranges were written under mode 0600.
        with holding(OWNER):
            os.fchmod(target, narrowed)
        if style.may_chown and narrowed & stat.S_ISGID:
            count_setgid(target, style, counted=style.lost_xattrs > lost_before)
    os.utime(target, ns=(st.st_atime_ns, st.st_mtime_ns))


def count_setgid(target: int, style: CopyStyle, *, counted: bool) -> None:
    """Count an open target whose setgid bit the kernel dropped, unless it is already ``counted``.

    The kernel does so silently for root without CAP_FSETID if the group is not its own.
    """
    style.lost_xattrs += not (counted or os.fstat(target).st_mode & stat.S_ISGID)


def copy_xattrs(source: int, target: int, mode: int, style: CopyStyle) -> int:
    """Copy the ``user.*`` attributes and the access ACL; return the mode for the target.

    That is ``mode``, unless the target cannot hold the ACL: then the mode's group bits, which are
    the ACL's mask, would give the group more than the ACL does. The same goes for an ACL of an NFS
    4 server. Files that lose something in the copy are counted.
    """
    try:
        names = os.listxattr(source)
    except OSError as error:
        if error.errno not in _NO_XATTRS:
            raise
        if error.errno == errno.EOPNOTSUPP:
            style.without_xattrs.add(os.fstat(source).st_dev)
        return mode
    lost = False
    if user := [name for name in names if name.startswith("user.")]:
        refusal = errno.EOPNOTSUPP
        if style.target_xattrs and (refusal := _hand_over(user, source, target)):
            if refusal == errno.EACCES:
                refusal = _hand_over_to_read_only(user, source, target)
            style.target_xattrs = refusal != errno.EOPNOTSUPP
        lost = refusal != 0
    # EINVAL: an id in the ACL has no mapping in this user namespace.
    if ACCESS_ACL in names and _hand_over([ACCESS_ACL], source, target, errno.EINVAL):
        lost, mode = True, without_acl(mode, os.getxattr(source, ACCESS_ACL))
    elif (narrowed := mode_over_nfs(source, names, mode)) != mode:
        lost, mode = True, narrowed
    style.lost_xattrs += lost
    return mode


def drop_xattrs(target: int) -> None:
    """Remove the access ACL and the ``user.*`` attributes that an open target may have."""
    try:
        for name in filter(is_carried, os.listxattr(target)):
            os.removexattr(target, name)
    except OSError as error:
        if error.errno not in (*_NO_XATTRS, errno.ENODATA):
            raise


def _hand_over_to_read_only(names: list[str], source: int, target: int) -> int:
    """Copy ``user.*`` attributes to a file that the (ordinary) user may not write.

    The kernel requires write permission of everybody but root, however the target was opened.
    """
    mode = stat.S_IMODE(os.fstat(target).st_mode)
    os.fchmod(target, mode | stat.S_IWUSR)
    try:
        return _hand_over(names, source, target)
    finally:
        os.fchmod(target, mode)


def _hand_over(names: list[str], source: int, target: int, *more: int) -> int:
    """Copy attributes; return 0, or the error that means that the target cannot hold them."""
    try:
        for name in names:
            os.setxattr(target, name, os.getxattr(source, name))
    except OSError as error:
        if error.errno not in (*_NO_XATTRS, *_NO_ROOM, *more):
            raise
        if error.errno == errno.ENOSPC and is_full(target):
            raise  # a full disk could hold them once there is room
        return error.errno
    return 0
