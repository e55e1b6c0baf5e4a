"""Whether files are stored compressed: then the disks rightly deliver less than is read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from hostprep.host import fiemap
from hostprep.system.descriptors import closing_fd

# These tell no program which files are. btrfs, f2fs, bcachefs and ntfs3 mark the extents.
_UNTOLD = frozenset({"zfs", "squashfs", "erofs"})


def kept_compressed(fstype: str, paths: Iterable[str], seconds: float) -> bool:
    """Return whether some of the files are compressed, or may be on a file system of ``fstype``.

    Files are checked for at most ``seconds``, at least one: each check opens the file.
    """
    if fstype in _UNTOLD:
        return True
    deadline = time.monotonic() + seconds
    for path in paths:
        if _encoded(path):
            return True
        if time.monotonic() > deadline:
            break
    return False


def _encoded(path: str) -> bool:
    try:
        with closing_fd(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
            extents = fiemap.extents(fd, sync=False)
    except OSError:
        return False  # gone, or not ours to read
    return any(extent.flags & fiemap.ENCODED for extent in extents or ())
