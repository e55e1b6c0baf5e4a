"""Where a file's bytes lie on its device: the FIEMAP ioctl (Documentation/filesystems/fiemap.rst).

It needs no privilege. File systems without it (NFS, tmpfs, FUSE) return EOPNOTSUPP or ENOTTY.
"""

from __future__ import annotations

import errno
import fcntl
import struct

from hostprep.dataclass import dataclass

_FS_IOC_FIEMAP = 0xC020660B
_HEADER = struct.Struct("=QQLLLL")  # start, length, flags, mapped, room for extents, reserved
_EXTENT = struct.Struct("=QQQQQLLLL")  # logical, physical, length, 2 reserved, flags, 3 reserved
_FLAG_SYNC = 0x1
_EVERYTHING = 0xFFFFFFFFFFFFFFFF
_BATCH = 256

LAST = 0x1
UNKNOWN = 0x2
DELALLOC = 0x4
ENCODED = 0x8
INLINE = 0x200
UNWRITTEN = 0x800
# With any of these the physical address is missing, or no disk head could move to it.
_NO_PLACE = UNKNOWN | DELALLOC | INLINE | 0x400  # 0x400: data packed into a tail

_UNTOLD = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)

_ONE_REQUEST = _HEADER.pack(0, _EVERYTHING, 0, 0, 1, 0) + bytes(_EXTENT.size)
_ONE_EXTENT = struct.Struct(f"={_HEADER.size + 8}xQ24xL")  # physical, flags of the first extent
_MAPPED = struct.Struct("=20xL")


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of a file's bytes: where it is in the file and on the device, in bytes."""

    logical: int
    physical: int
    length: int
    flags: int

    @property
    def unwritten(self) -> bool:
        """Return whether the run is only reserved: reading it gives zeros without the device."""
        return bool(self.flags & UNWRITTEN)


class Untold(Exception):
    """The file system does not say for any file where it lies."""


def first_physical(fd: int) -> int | None:
    """Return where on the device the file's first byte lies, None if there is no such place.

    Raises ``Untold`` if asking about other files of that file system is pointless.

    It takes one ioctl for one extent: a hundred thousand files take seconds. On btrfs the value is
    an address of the file system's own, which orders reads nevertheless.
    """
    buffer = bytearray(_ONE_REQUEST)
    try:
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, buffer)
    except OSError as error:
        if error.errno in _UNTOLD:
            raise Untold from error
        return None
    if not _MAPPED.unpack_from(buffer)[0]:
        return None
    physical, flags = _ONE_EXTENT.unpack_from(buffer)
    return None if flags & _NO_PLACE else int(physical)


def extents(fd: int, *, sync: bool = True) -> tuple[Extent, ...] | None:
    """Return all extents of the file, None if its file system does not say.

    ``sync`` first writes delayed data out, so that it has a place. Holes are not extents.
    """
    found: list[Extent] = []
    start = 0
    while True:
        header = _HEADER.pack(start, _EVERYTHING - start, _FLAG_SYNC if sync else 0, 0, _BATCH, 0)
        buffer = bytearray(header + bytes(_EXTENT.size * _BATCH))
        try:
            fcntl.ioctl(fd, _FS_IOC_FIEMAP, buffer)
        except OSError as error:
            if error.errno in _UNTOLD:
                return None
            raise
        mapped = _MAPPED.unpack_from(buffer)[0]
        for index in range(mapped):
            fields = _EXTENT.unpack_from(buffer, _HEADER.size + index * _EXTENT.size)
            found.append(Extent(fields[0], fields[1], fields[2], fields[5]))
        if mapped < _BATCH or found[-1].flags & LAST:
            return tuple(found)
        start = found[-1].logical + found[-1].length


def written_bytes(fd: int) -> int | None:
    """Return how many bytes of the file the device really holds, None if that is not known."""
    known = extents(fd)
    if known is None:
        return None
    return sum(extent.length for extent in known if not extent.unwritten)
