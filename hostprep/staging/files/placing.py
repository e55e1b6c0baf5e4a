"""Where files are on their disk, as numbers to sort by."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable
from stat import S_ISREG

from hostprep.host.fiemap import Untold, first_physical
from hostprep.staging.tree import Plain
from hostprep.system.trees import FILE_FLAGS, DirCache

# Files with a place on the disk come after those without, which are read with the inodes.
_PLACED = 1 << 63


def place_by_inode(entries: Iterable[Plain]) -> array[int]:
    """Return the inode number of each entry."""
    return array("Q", (entry[8] & (_PLACED - 1) for entry in entries))


def place_by_extent(
    cache: DirCache, directory: str, entries: Iterable[Plain], untold: set[int]
) -> array[int]:
    """Return for each entry of a directory where its first extent is.

    For entries without one (empty, or small enough to be stored in the inode), return the inode
    number. Devices whose file systems do not report extents are added to ``untold``; nothing more
    is opened on these.
    """
    places = array("Q")
    for entry in entries:
        place = None
        if S_ISREG(entry[1]) and entry[2] and entry[9] not in untold:
            try:
                place = _first_extent(cache, directory, entry[0])
            except Untold:
                untold.add(entry[9])
        places.append(entry[8] & (_PLACED - 1) if place is None else place | _PLACED)
    return places


def _first_extent(source: DirCache, directory: str, name: str) -> int | None:
    try:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=source.fd(directory))
    except OSError:  # of the file, or of a directory that is gone since the scan
        return None  # the copy will meet the error again and report it
    try:
        return first_physical(descriptor)
    finally:
        os.close(descriptor)
