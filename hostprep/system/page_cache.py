"""The page cache: whether a file is in it, getting it out, and what share of reads it answers.

By mincore(2) and posix_fadvise(2), only ever for single files: emptying the whole machine's caches
would slow everybody on it.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

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
# A page takes some 0.2 us to be asked for: a GiB of them 60 ms.
_PIECES, _PIECE_BYTES = 256, 4 << 20


def open_untouched(path: str, flags: int, at: int | None = None) -> int:
    """Open a file so that neither reading nor mapping it changes its access time, if that may be.

    ``at`` is a descriptor of the folder that the path begins at.
    """
    try:
        return os.open(path, flags | os.O_NOATIME, dir_fd=at)
    except PermissionError:
        return os.open(path, flags, dir_fd=at)  # only the owner may


def resident_pages(fd: int) -> tuple[int, int] | None:
    """Return how many of the file's pages are in memory, and how many it has.

    Of a huge file both are of a sample: a sparse one may have a hundred million pages.
    None where it cannot be told: to those who may not write a file, the kernel since 5.2 says that
    all of it is in memory.
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
    """Yield where to look at a file, and how far: all of it, or pieces at equal distances."""
    if size_bytes <= _PIECES * _PIECE_BYTES:
        yield 0, size_bytes
        return
    for piece in range(_PIECES):
        yield size_bytes * piece // _PIECES // mmap.PAGESIZE * mmap.PAGESIZE, _PIECE_BYTES


def resident_share(paths: Iterable[str], *, at: int | None = None) -> float | None:
    """Return the share of the files' pages that is in memory, None where it cannot be told.

    It is the mean over the files: a huge one says no more of the others than a small one does.
    ``at`` is a descriptor of the folder that the paths begin at.
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
    """Take a file's clean pages out of memory, its dirty ones after writing them out.

    ``written_out``: none is dirty. To ask for it again has the disk empty its own cache each time.
    ``at`` is a descriptor of the folder that the path begins at.
    """
    # Gone meanwhile, or unreadable: the pass over the files will count it. Or a file system without
    # such advice: the residency that is sampled later tells.
    with suppress(OSError), closing_fd(open_untouched(path, NAMED_FILE_FLAGS, at)) as fd:
        if not written_out:
            with suppress(OSError):  # an image (squashfs, EROFS, ISO 9660) has nothing to write
                os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def write_out(path: str) -> None:
    """Write out all of the file system that ``path`` is on, which is one wait for many files."""
    with suppress(OSError), closing_fd(os.open(path, NAMED_FILE_FLAGS)) as fd:
        _libc.syncfs(fd)  # where it fails, the residency that is sampled later tells


def lru_hit_rate(share: float) -> float:
    """Return the hit rate of plain LRU where ``share`` of a data set fits, shuffled every epoch.

    ``x + (1 - x) ln(1 - x)``: a file read again after a random share of the others is still there
    if those were few enough. A pinned subset would give ``x`` (DS-Analyzer's assumption). Linux is
    between the two.
    """
    if share >= 1:
        return 1.0
    if share <= 0:
        return 0.0
    return share + (1 - share) * math.log1p(-share)
