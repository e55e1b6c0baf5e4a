"""A directory's metadata, set once all work in the directory is done."""

from __future__ import annotations

import errno
import os
import stat

from hostprep.staging.files.fatal import raise_if_of_all
from hostprep.staging.files.holding import OWNER, holding
from hostprep.staging.files.metadata import CopyStyle, copy_xattrs, count_setgid, drop_xattrs
from hostprep.staging.model import Entry
from hostprep.staging.tree import staged_mode
from hostprep.system.descriptors import named
from hostprep.system.trees import DirCache, writable

# What the top directory is called, whose path is empty.
_ROOT = "the data set"


def finish_directory(
    path: str,
    entry: Entry,
    source: DirCache,
    tree: DirCache,
    style: CopyStyle,
    inode: int | None = None,
) -> int | None:
    """Set a directory's mode, owner, ACL, attributes and times; make the directory if missing.

    Returns the mode that the target turned the given one into, None if it kept it. Raises OSError,
    also if the directory should have the ``inode`` and has another: a user who owns the directories
    around both could at any moment move somebody's closed directory to the place of ours.
    """
    on_target = named(path or _ROOT)
    with on_target:
        target = writable(tree.fd(path))
    if inode is not None and os.fstat(target).st_ino != inode:
        raise OSError(errno.ESTALE, exchanged(path))
    mode = entry.mode & 0o7777
    with on_target:
        drop_xattrs(target)  # left by an earlier run; the source may not have them any more
    lost_before = style.lost_xattrs
    try:
        mode = copy_xattrs(source.fd(path), target, mode, style)
        atime_ns = os.fstat(source.fd(path)).st_atime_ns
    except OSError as error:
        raise_if_of_all(error, source)  # the mode without the ACL may let in too many
        if error.errno != errno.ENODATA and _answers(source, path):
            # Then the target failed, and more would be lost than is reported.
            if error.filename == target:
                error.filename = path or _ROOT
            raise
        atime_ns = entry.mtime_ns  # gone, closed to us, or failing since the scan
    with on_target:
        with holding(OWNER):
            if style.may_chown:
                os.fchown(target, entry.uid, entry.gid)
            os.fchmod(target, staged_mode(mode))
        os.utime(target, ns=(atime_ns, entry.mtime_ns))
    if style.may_chown and mode & stat.S_ISGID:
        count_setgid(target, style, counted=style.lost_xattrs > lost_before)
    made = stat.S_IMODE(os.fstat(target).st_mode)
    return None if made == staged_mode(entry.mode & 0o7777) else made


def exchanged(path: str) -> str:
    """Return the message if another directory is in the place of one of ours."""
    where = f"{path or _ROOT} on the target"
    return f"{where} was meanwhile replaced by another folder, which stays as it is"


def _answers(source: DirCache, path: str) -> bool:
    try:
        os.listxattr(source.fd(path))
    except OSError:
        return False
    return True
