"""Whether files are kept compressed: then the disks rightly deliver less than is read."""

from __future__ import annotations

import os
from collections.abc import Iterable

from hostprep.host import fiemap

# Of these no program is told which files are. btrfs, f2fs, bcachefs and ntfs3 mark the extents.
_UNTOLD = frozenset({"zfs", "squashfs", "erofs"})


def kept_compressed(fstype: str, paths: Iterable[str]) -> bool:
    """Return whether some of the files are compressed, or may be on a file system of ``fstype``."""
    return fstype in _UNTOLD or any(_encoded(path) for path in paths)


def _encoded(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # gone, or not ours to read
    try:
        extents = fiemap.extents(fd, sync=False)
    except OSError:
        return False
    finally:
        os.close(fd)
    return any(extent.flags & fiemap.ENCODED for extent in extents or ())
