"""What a directory has beside its entries, set once the work in it is done."""

from __future__ import annotations

import errno
import os
import stat

from hostprep.staging.files.holding import OWNER, holding
from hostprep.staging.files.metadata import CopyStyle, copy_xattrs, count_setgid, drop_xattrs
from hostprep.staging.model import Entry
from hostprep.staging.tree import staged_mode
from hostprep.system.trees import DirCache, writable


def finish_directory(
    path: str,
    entry: Entry,
    source: DirCache,
    tree: DirCache,
    style: CopyStyle,
    inode: int | None = None,
) -> int | None:
    """Give a directory its mode, owner, ACL, attributes and times; it is made where it is missing.

    Returns the mode that the target made of its own, None where that is the one it was given.
    Raises OSError, also where it is to be of the ``inode``, is another, and would be opened.
    """
    target = writable(tree.fd(path))
    _check_is_it(target, path, entry, inode)
    mode = entry.mode & 0o7777
    drop_xattrs(target)  # of an earlier run, which the source may not have any more
    lost_before = style.lost_xattrs
    try:
        mode = copy_xattrs(source.fd(path), target, mode, style)
        atime_ns = os.fstat(source.fd(path)).st_atime_ns
    except OSError as error:
        if error.errno != errno.ENODATA and _answers(source, path):
            raise  # then it was the target, of which more would be lost than is told
        atime_ns = entry.mtime_ns  # gone, closed to us or failing since the scan
    with holding(OWNER):
        if style.may_chown:
            os.fchown(target, entry.uid, entry.gid)
        os.fchmod(target, staged_mode(mode))
    os.utime(target, ns=(atime_ns, entry.mtime_ns))
    if style.may_chown and mode & stat.S_ISGID:
        count_setgid(target, style, counted=style.lost_xattrs > lost_before)
    made = stat.S_IMODE(os.fstat(target).st_mode)
    return None if made == staged_mode(entry.mode & 0o7777) else made


def _check_is_it(target: int, path: str, entry: Entry, inode: int | None) -> None:
    """Raise OSError where somebody's closed directory was moved to the place of one of ours.

    Who owns what is around both can do so at any moment.
    """
    if inode is None:
        return
    found = os.fstat(target)
    if found.st_ino != inode and opens(entry, found.st_mode, found.st_uid, found.st_gid):
        named = path or "the data set"
        raise OSError(
            errno.ESTALE,
            f"{named} on the target was exchanged meanwhile, for a directory that is closed to"
            " others and stays so",
        )


def opens(wanted: Entry, mode: int, uid: int, gid: int) -> bool:
    """Whether others get into a directory of that mode and owner once it is as ``wanted``."""
    given = wanted.mode
    if wanted.uid not in (0, uid):
        given |= wanted.mode >> 6
    if wanted.gid not in (0, gid):
        given |= wanted.mode >> 3
    return bool(given & ~mode & 0o055)


def _answers(source: DirCache, path: str) -> bool:
    try:
        os.listxattr(source.fd(path))
    except OSError:
        return False
    return True
