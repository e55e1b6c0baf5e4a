"""The file that fio reads: written with budgets of its own, and checked to be really there.

fio's own layout knows no budget, and a file that it could not finish has its full size and no data,
whose reading costs nothing (axboe/fio#1473).
"""

from __future__ import annotations

import errno
import fcntl
import math
import mmap
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host import fiemap
from hostprep.system.descriptors import closed_on_error, closing_fd
from hostprep.system.page_cache import open_untouched
from hostprep.system.trees import FILE_FLAGS, NEW_FILE_FLAGS
from hostprep.units import KIB, MIB

_CHUNK_BYTES = 4 * MIB
# A write cannot be broken off: a piece is no larger than what the time suffices for.
_FIRST_BYTES, _LEAST_BYTES = MIB, 64 * KIB
SMALLEST_BYTES = 16 * MIB
# How many times longer the smallest file that is of use may take.
_PATIENCE = 3
_DIRECT_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Layout:
    """A file to read: its true length, and whether it has holes.

    ``fd`` has it open for reading, and is the caller's to close. ``path`` is for people: another
    file may be there by now.
    """

    fd: int
    path: str
    size_bytes: int
    holes: bool

    @property
    def opened(self) -> str:
        """Return a path of the very file that is open, also for programs that we start."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"


def write_file(
    path: Path,
    size_bytes: int,
    seconds: float,
    tell: Callable[[int], None] = lambda _: None,
    *,
    at: int | None = None,
    at_most_seconds: float = math.inf,
) -> Layout:
    """Write up to ``size_bytes`` of data that cannot be compressed, for at most ``seconds``.

    ``at`` is a descriptor of its folder, by which it is made, whatever else may lie at ``path``.
    The least that is of use may take thrice as long, but not over ``at_most_seconds``: without it
    there is nothing to read. The file ends where the writing ended: there is no unwritten tail.
    ``tell`` hears the bytes written so far. OSError where not even ``SMALLEST_BYTES`` had room.
    """
    begun = time.monotonic()
    written = 0
    name = path if at is None else path.name
    with closing_fd(os.open(name, NEW_FILE_FLAGS, 0o600, dir_fd=at)) as fd:
        direct = _set_direct(fd, on=True)
        with mmap.mmap(-1, _CHUNK_BYTES) as chunk:  # a mapping is aligned, as direct I/O wants it
            chunk[:] = os.urandom(_CHUNK_BYTES)
            while written < size_bytes:
                allowed = seconds if written >= SMALLEST_BYTES else _PATIENCE * seconds
                left = begun + min(allowed, at_most_seconds) - (now := time.monotonic())
                if left <= 0:
                    break
                piece = _piece(written, now - begun, left)
                want = min(piece, (size_bytes - written) // 4096 * 4096)
                if not want:
                    break
                _stamp(chunk, written)
                try:
                    with memoryview(chunk)[:want] as view:
                        done = os.write(fd, view)
                except OSError as error:
                    if direct and error.errno in _DIRECT_REFUSED:
                        direct = not _set_direct(fd, on=False)
                        continue
                    if error.errno not in _FULL or written < SMALLEST_BYTES:
                        raise
                    break
                written += done
                if not direct:
                    os.fdatasync(fd)  # else a slow disk would owe seconds of it at the end
                tell(written)
        written = written // 4096 * 4096
        os.ftruncate(fd, written)
        os.fsync(fd)
    # Opened anew: some FUSE store a file only once nobody has it open for writing.
    fd = os.open(name, FILE_FLAGS, dir_fd=at)
    return _layout(fd, str(path), written)


def _piece(written: int, seconds: float, left: float) -> int:
    """Return how much to write next, by what was written so far in how many seconds."""
    if not written:
        return _FIRST_BYTES
    suffices = int(written / max(seconds, 1e-6) * left) // 4096 * 4096
    return min(_CHUNK_BYTES, max(_LEAST_BYTES, suffices))


def open_existing(path: str, multiple_bytes: int) -> Layout:
    """Open a file that is here, to read it up to a multiple of so many bytes.

    OSError where it cannot be read, or where something else, such as a FIFO, is there by now.
    """
    fd = os.open(path, FILE_FLAGS)
    with closed_on_error(fd):
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
    return _layout(fd, path, status.st_size // multiple_bytes * multiple_bytes)


def _layout(fd: int, path: str, size_bytes: int) -> Layout:
    with closed_on_error(fd):
        return Layout(fd, path, size_bytes, has_holes(fd, size_bytes))


def has_holes(fd: int, size_bytes: int) -> bool:
    """Return whether a part of the file is a hole or reserved without data, as far as is told."""
    held = fiemap.written_bytes(fd)
    return held is not None and held < size_bytes


def reads_directly(path: str) -> bool:
    """Return whether the file can be read past the page cache, by doing it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT
    try:
        with closing_fd(open_untouched(path, flags)) as fd, mmap.mmap(-1, 4096) as page:
            return os.preadv(fd, [page], 0) > 0
    except OSError:
        return False


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
