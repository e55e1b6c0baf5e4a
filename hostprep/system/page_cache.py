"""The page cache: whether a file is in it, dropping it, and which share of reads it answers.

By mincore(2) and posix_fadvise(2), for single files; emptying the whole machine's caches slows
everybody on it.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hostprep.errors import HostprepError
from hostprep.system.descriptors import closing_fd
from hostprep.system.trees import NAMED_FILE_FLAGS

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
# A page takes some 0.2 us to look up: a GiB of them takes 60 ms.
_PIECES, _PIECE_BYTES = 256, 4 << 20


def open_untouched(path: str, flags: int, at: int | None = None) -> int:
    """Open a file so that reading or mapping it does not change its access time, if allowed.

    ``at`` is a descriptor of the folder that the path is relative to.
    """
    try:
        return os.open(path, flags | os.O_NOATIME, dir_fd=at)
    except PermissionError:
        return os.open(path, flags, dir_fd=at)  # only the owner may use it


def resident_pages(fd: int) -> tuple[int, int] | None:
    """Return how many of the file's pages are in memory, and how many it has.

    For a huge file both are of a sample: a sparse one may have a hundred million pages. None if it
    is unknown: to users who may not write a file, kernels since 5.2 report all of it as in memory.
    """
    info = os.fstat(fd)
    if info.st_size == 0:
        return 0, 0
    may_ask = os.geteuid() in (0, info.st_uid) or os.access(f"/proc/self/fd/{fd}", os.W_OK)
    if not may_ask:
        return None
    address = _libc.mmap(None, info.st_size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == _FAILED:
        return None
    try:
        resident = pages = 0
        for start, length in _pieces(info.st_size):
            vector = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
            if _libc.mincore(address + start, length, vector) != 0:
                return None
            resident += vector.raw[: len(vector)].count(1)
            pages += len(vector)
        return resident, pages
    finally:
        _libc.munmap(address, info.st_size)


def _pieces(size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield where to look at a file, and how far: all of it, or evenly spaced pieces."""
    if size_bytes <= _PIECES * _PIECE_BYTES:
        yield 0, size_bytes
        return
    for piece in range(_PIECES):
        yield size_bytes * piece // _PIECES // mmap.PAGESIZE * mmap.PAGESIZE, _PIECE_BYTES


def resident_share(paths: Iterable[str], *, at: int | None = None) -> float | None:
    """Return the share of the files' pages that is in memory, None if it is unknown.

    It is the mean over the files, so that a huge one counts no more than a small one. ``at`` is a
    descriptor of the folder that the paths are relative to.
    """
    shares: list[float] = []
    for path in paths:
        try:
            fd = open_untouched(path, NAMED_FILE_FLAGS, at)
        except OSError:
            continue
        try:
            pages = resident_pages(fd)
        finally:
            os.close(fd)
        if pages is None:
            return None
        if pages[1]:
            shares.append(pages[0] / pages[1])
    return sum(shares) / len(shares) if shares else None


def evict(path: str, *, written_out: bool = False, at: int | None = None) -> None:
    """Drop a file's clean pages from memory, its dirty ones after writing them out.

    ``written_out``: none is dirty. Syncing again would make the disk flush its own cache each time.
    ``at`` is a descriptor of the folder that the path is relative to.
    """
    # If the file is gone or unreadable, the pass over the files will count it. If the file system
    # ignores such advice, the residency that is sampled later shows it.
    with suppress(OSError), closing_fd(open_untouched(path, NAMED_FILE_FLAGS, at)) as fd:
        if not written_out:
            with suppress(OSError):  # an image (squashfs, EROFS, ISO 9660) has nothing to write
                os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def write_out(path: str) -> None:
    """Write out the whole file system of ``path``: a single wait for many files."""
    with suppress(OSError), closing_fd(os.open(path, NAMED_FILE_FLAGS)) as fd:
        _libc.syncfs(fd)  # if it fails, the residency that is sampled later shows it


def lru_hit_rate(share: float) -> float:
    """Return plain LRU's hit rate if ``share`` of a data set fits and it is shuffled every epoch.

    ``x + (1 - x) ln(1 - x)``: a file that is read again after a random share of the others is still
    there if those were few enough. A pinned subset would give ``x`` (DS-Analyzer's assumption).
    Linux is between the two.
    """
    if share >= 1:
        return 1.0
    if share <= 0:
        return 0.0
    return share + (1 - share) * math.log1p(-share)


def drop_caches() -> None:
    """Write dirty data out, then drop the machine's page cache, dentries and inodes; needs root."""
    os.sync()  # dirty pages would not be dropped
    try:
        _DROP_CACHES.write_text("3\n")
    except OSError as error:
        raise HostprepError(
            f"the machine's caches could not be dropped: {error.strerror}; nothing was measured.",
            "it needs root on the host itself; without it, files are taken out one by one",
        ) from None
