"""The file that fio reads: written within budgets, and checked to have all its data.

fio's own layout has no time limit, and an unfinished file has its full size but no data, so that
reading it costs nothing (axboe/fio#1473).
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
# A write cannot be interrupted: a piece is no larger than the remaining time allows.
_FIRST_BYTES, _LEAST_BYTES = MIB, 64 * KIB
SMALLEST_BYTES = 16 * MIB
# How many times as long the smallest useful file may take.
_PATIENCE = 3
_DIRECT_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Layout:
    """A file to read: its true length, and whether it has holes.

    ``fd`` is open for reading, and the caller has to close it. ``path`` is for people: another file
    may be there by now.
    """

    fd: int
    path: str
    size_bytes: int
    holes: bool

    @property
    def opened(self) -> str:
        """Return a path of the very file that is open, also valid for programs that we start."""
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
    """Write up to ``size_bytes`` of incompressible data, for at most ``seconds``.

    ``at`` is a descriptor of its folder, through which it is made, whatever else may be at
    ``path``. The smallest useful file may take three times as long, but not more than
    ``at_most_seconds``: without it there is nothing to read. The file ends where the writing ended:
    there is no unwritten tail. ``tell`` gets the bytes written so far. Raises OSError if there was
    not even room for ``SMALLEST_BYTES``.
    """
    begun = time.monotonic()
    written = 0
    name = path if at is None else path.name
    with closing_fd(os.open(name, NEW_FILE_FLAGS, 0o600, dir_fd=at)) as fd:
        direct = _set_direct(fd, on=True)
        with mmap.mmap(-1, _CHUNK_BYTES) as chunk:  # a mapping is aligned, as direct I/O requires
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
                    os.fdatasync(fd)  # else a slow disk would need seconds for it at the end
                tell(written)
        written = written // 4096 * 4096
        os.ftruncate(fd, written)
        os.fsync(fd)
    # Reopened: some FUSE file systems store a file only once nobody has it open for writing.
    fd = os.open(name, FILE_FLAGS, dir_fd=at)
    return _layout(fd, str(path), written)


def _piece(written: int, seconds: float, left: float) -> int:
    """Return how much to write next, by the bytes written so far and their seconds."""
    if not written:
        return _FIRST_BYTES
    suffices = int(written / max(seconds, 1e-6) * left) // 4096 * 4096
    return min(_CHUNK_BYTES, max(_LEAST_BYTES, suffices))


def open_existing(path: str, multiple_bytes: int) -> Layout:
    """Open an existing file, to read it up to a multiple of ``multiple_bytes``.

    Raises OSError if it cannot be read, or if something else, such as a FIFO, is there by now.
    """
    fd = os.open(path, FILE_FLAGS)
    with closed_on_error(fd):
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
    return _layout(fd, path, status.st_size // multiple_bytes * multiple_bytes)


def _layout(fd: int, path: str, size_bytes: int) -> Layout:
    with closed_on_error(fd):
        return Layout(fd, path, size_bytes, has_holes(fd, size_bytes))


def has_holes(fd: int, size_bytes: int) -> bool:
    """Return whether part of the file is a hole or reserved without data, if the kernel says."""
    held = fiemap.written_bytes(fd)
    return held is not None and held < size_bytes


def reads_directly(path: str) -> bool:
    """Return whether the file can be read bypassing the page cache, by trying it."""
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
    """Switch direct I/O for an open file; return whether it is as requested."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
    except OSError:
        return False
    return True
