"""The file that fio reads: written with budgets of its own, and checked to be really there.

fio's own layout knows no budget, and a file that it could not finish has its full size and no data,
whose reading costs nothing (axboe/fio#1473).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host import fiemap
from hostprep.units import MIB

_CHUNK_BYTES = 4 * MIB
SMALLEST_BYTES = 16 * MIB
# How many times longer the smallest file that is of use may take.
_PATIENCE = 3
_DIRECT_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Layout:
    """A file to read: its true length, whether it has holes, and why it ended where it did."""

    path: str
    size_bytes: int
    holes: bool
    stopped_by: str


def write_file(
    path: Path, size_bytes: int, seconds: float, tell: Callable[[int], None] = lambda _: None
) -> Layout:
    """Write up to ``size_bytes`` of data that cannot be compressed, for at most ``seconds``.

    The least that is of use may take thrice as long: without it there is nothing to read. The file
    ends where the writing ended: there is no unwritten tail. ``tell`` hears the bytes written so
    far. OSError where not even ``SMALLEST_BYTES`` could be written.
    """
    begun = time.monotonic()
    written, stopped_by = 0, "size"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        direct = _set_direct(fd, on=True)
        with mmap.mmap(-1, _CHUNK_BYTES) as chunk:  # a mapping is aligned, as direct I/O wants it
            chunk[:] = os.urandom(_CHUNK_BYTES)
            while written < size_bytes:
                allowed = seconds if written >= SMALLEST_BYTES else _PATIENCE * seconds
                if time.monotonic() >= begun + allowed:
                    stopped_by = "time"
                    break
                _stamp(chunk, written)
                want = min(_CHUNK_BYTES, (size_bytes - written) // 4096 * 4096)
                if not want:
                    break
                try:
                    with memoryview(chunk)[:want] as view:
                        done = os.write(fd, view)
                except OSError as error:
                    if direct and error.errno in _DIRECT_REFUSED:
                        direct = not _set_direct(fd, on=False)
                        continue
                    if error.errno not in _FULL or written < SMALLEST_BYTES:
                        raise
                    stopped_by = "space"
                    break
                written += done
                if not direct:
                    os.fdatasync(fd)  # else a slow disk would owe seconds of it at the end
                tell(written)
        written = written // 4096 * 4096
        os.ftruncate(fd, written)
        os.fsync(fd)
    finally:
        os.close(fd)
    return Layout(str(path), written, has_holes(path, written), stopped_by)


def has_holes(path: str | Path, size_bytes: int) -> bool:
    """Return whether a part of the file is a hole or reserved without data, as far as is told."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        held = fiemap.written_bytes(fd)
    finally:
        os.close(fd)
    return held is not None and held < size_bytes


def reads_directly(path: str) -> bool:
    """Return whether the file can be read past the page cache, by doing it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, 4096) as page:
            return os.preadv(fd, [page], 0) > 0
    except OSError:
        return False
    finally:
        os.close(fd)


def _stamp(chunk: mmap.mmap, offset: int) -> None:
    """Make every block of the chunk differ from all others, for file systems that deduplicate."""
    for block in range(0, _CHUNK_BYTES, 4096):
        chunk[block : block + 8] = (offset + block).to_bytes(8, "little")


def _set_direct(fd: int, *, on: bool) -> bool:
    """Switch direct I/O of an open file; return whether it is as wished."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
    except OSError:
        return False
    return True
