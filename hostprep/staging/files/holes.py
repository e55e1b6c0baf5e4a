"""Holes of sparse files: where they are, and whether there are any.

On ext4, XFS, Btrfs and tmpfs a file with fewer blocks than its size needs has holes. File systems
that compress (ZFS, EROFS, and shares of them) count the blocks of the compressed form, and some
FUSE file systems count none: such a file has no holes, and its copy takes its full size.
"""

from __future__ import annotations

import errno
import os

from hostprep.errors import HostprepError
from hostprep.host.mounts import mount_of, read_mounts
from hostprep.staging.files.small import SMALL_BYTES
from hostprep.staging.tree import Plain
from hostprep.system.trees import FILE_FLAGS

# Beyond this number of stretches the rest counts as data, unless the blocks show that it is less.
_MOST_STRETCHES = 1024
# File systems on which a file's blocks are exactly those of its data as it is read.
_PLAIN_BLOCKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs")


def next_data(descriptor: int, position: int, end: int) -> tuple[int, int]:
    """Return the next stretch of data in [position, end) of a sparse file, clipped to it.

    Raises OSError as lseek(2) does, and also if its answers make no progress, because the caller
    would never end.
    """
    try:
        start = os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole to the end of the file
            return end, end
        raise
    if start >= end:
        return end, end
    hole = os.lseek(descriptor, start, os.SEEK_HOLE)
    # A FUSE program may answer anything.
    if not position <= start <= hole or hole == position:
        raise OSError(errno.EIO, "its file system does not say where its data is")
    return start, min(end, hole)


def with_data_blocks(directory_fd: int, item: Plain, *, from_server: bool) -> Plain:
    """Return a file's entry with the blocks that its data takes, if it shows fewer than its size.

    The file itself is asked, except a small one that comes ``from_server``: a hole in it is not
    worth doubling its copy's requests. A file that cannot be asked counts as having no holes.
    """
    name, size = item[0], item[2]
    data_bytes = size
    block_bytes = 512 * item[6]
    if size > SMALL_BYTES or not from_server:
        try:
            data_bytes = _data_bytes(directory_fd, name, size, block_bytes)
        except OSError:
            pass  # then it cannot be copied either, and copying it reports why
    return (*item[:6], -(-data_bytes // 512), *item[7:])


def _data_bytes(directory_fd: int, name: str, size: int, block_bytes: int) -> int:
    descriptor = os.open(name, FILE_FLAGS, dir_fd=directory_fd)
    try:
        position = data_bytes = 0
        for _ in range(_MOST_STRETCHES):
            start, position = next_data(descriptor, position, size)
            data_bytes += position - start
            if position >= size:
                return data_bytes
        most = block_bytes if _has_plain_blocks(descriptor) else size
        return min(most, data_bytes + size - position)
    finally:
        os.close(descriptor)


def _has_plain_blocks(descriptor: int) -> bool:
    try:
        mount = mount_of(descriptor, read_mounts())
    except HostprepError:  # the mounts cannot be read
        return False
    return mount is not None and mount.fstype in _PLAIN_BLOCKS
