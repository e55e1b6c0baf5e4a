"""The bytes of a file: read, hashed, written and read back, range by range.

``copying`` adds the rest of an entry.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, mmap

import xxhash

from hostprep.staging.files.holes import next_data
from hostprep.staging.files.metadata import CopyStyle
from hostprep.staging.files.zeros import add_zeros, hasher_after
from hostprep.staging.model import RANGE_BYTES, Entry, Verify
from hostprep.staging.reasons import CHANGED_TWICE, READ_BACK
from hostprep.system.limits import address_space_left

# How much to write at once: a huge page, or the kernel would first fill the page with zeros. How
# much to read at once: little enough to stay in the processor's cache between read and hash.
BUFFER_BYTES = 2 * 1024 * 1024
_READ_BYTES = 512 * 1024
# For one hint the kernel reads little more than this, however much it requests.
_HINT_BYTES = 1024 * 1024
_PIECES_AHEAD = 4
# With a limit on the address space, map a range only if this many of its size would still fit.
_LEAST_LEFT = 16


class Changed(Exception):
    """The source file is not what it was when the copy began."""

    twice = CHANGED_TWICE


class WrongSize(Changed):
    """The source file has more or less content than its size says, in two looks alike."""

    twice = "has more or less content than its size says (some FUSE file systems report no sizes)"


class Differs(Exception):
    """What was read back from the target is not what was written."""

    twice = f"{READ_BACK} differently from what was written, twice"


def new_buffer() -> memoryview:
    """Return a reusable buffer of ``BUFFER_BYTES`` for one thread.

    It only takes memory as far as it is used: threads that scan, or copy small files, use none.
    """
    return memoryview(mmap(-1, BUFFER_BYTES, MAP_PRIVATE | MAP_ANONYMOUS))


def copy_content(
    entry: Entry, source: int, target: int, style: CopyStyle, buffer: memoryview
) -> str | None:
    """Copy all of a file and return the hex hash of its content, None without verification.

    Raises ``Changed``, ``Differs`` or OSError.
    """
    digests = []
    sparse = entry.is_sparse
    if not sparse:
        # Set the final size first: only then may the kernel use huge pages (huge=within_size). Not
        # for sparse files, whose small islands would each take a huge page.
        os.ftruncate(target, entry.size)
    for offset in range(0, entry.size, RANGE_BYTES):
        length = min(RANGE_BYTES, entry.size - offset)
        copy = _copy_sparse_range if sparse else copy_range
        digests.append(copy(source, target, offset, length, style, buffer))
    if sparse:
        os.ftruncate(target, entry.size)
        if style.verify is Verify.READBACK:
            for index, offset in enumerate(range(0, entry.size, RANGE_BYTES)):
                length = min(RANGE_BYTES, entry.size - offset)
                if hash_range(target, offset, length, buffer, sparse=True) != digests[index]:
                    raise Differs
                style.counters[0] += 1  # to show that work goes on
    return None if style.verify is Verify.NONE else content_of(digests)


def check_ends(source: int, size: int) -> None:
    """Raise ``WrongSize`` if an open file continues beyond its ``size`` in bytes."""
    if os.pread(source, 1, size):
        raise WrongSize


def content_of(digests: list[bytes]) -> str:
    """Return the hex content hash from the digests of a file's ranges (see ``digest``)."""
    if not digests:
        return xxhash.xxh3_128_hexdigest(b"")
    return digests[0].hex() if len(digests) == 1 else xxhash.xxh3_128_hexdigest(b"".join(digests))


def copy_range(
    source: int,
    target: int,
    offset: int,
    length: int,
    style: CopyStyle,
    buffer: memoryview,
    *,
    shared: bool = False,
) -> bytes:
    """Copy one range of a file without holes and return the digest of its bytes.

    It is read back here, directly from the memory of the target, each piece while the processor's
    cache still has what was written. If the file is ``shared``, others copy ranges of it too, and
    writers of one file wait for each other; so if the target's memory comes in huge pages, the
    source is read straight into it.
    """
    hasher = None if style.verify is Verify.NONE else xxhash.xxh3_128()
    again = xxhash.xxh3_128() if style.verify is Verify.READBACK else None
    pieces = _pieces(offset, length)
    if style.look_ahead:
        pieces = _asked_for(source, pieces)
    straight = shared and style.in_ram and os.fstat(target).st_blksize >= BUFFER_BYTES
    mapping: AbstractContextManager[memoryview | None] = nullcontext()
    if straight or again is not None:
        mapping = _mapped(target, offset, length, writable=straight)
    with mapping as pages:
        if straight and pages is not None and (whole := length - length % BUFFER_BYTES):
            # Writing to a mapping without allocated memory would kill this process by SIGBUS.
            os.posix_fallocate(target, offset, whole)
        for start, size in pieces:
            if pages is None:
                _copy_piece(source, target, start, buffer[:size], hasher, style)
                continue
            with pages[start - offset : start - offset + size] as there:
                # The rest at the end has small pages, each of which would cause a page fault.
                if straight and size == BUFFER_BYTES:
                    _read_piece(source, start, there, hasher, style)
                else:
                    _copy_piece(source, target, start, buffer[:size], hasher, style)
                if again is not None:
                    again.update(there)
    if hasher is None:
        return b""
    found = hasher.digest()
    if again is not None:
        back = hash_range(target, offset, length, buffer) if pages is None else again.digest()
        if back != found:
            raise Differs
    return found


def _pieces(offset: int, length: int) -> Iterator[tuple[int, int]]:
    end = offset + length
    for start in range(offset, end, BUFFER_BYTES):
        yield start, min(BUFFER_BYTES, end - start)


def _asked_for(source: int, pieces: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the pieces, and make the kernel read the following ones meanwhile."""
    asked: deque[tuple[int, int]] = deque()
    for start, size in pieces:
        for step in range(start, start + size, _HINT_BYTES):
            os.posix_fadvise(source, step, _HINT_BYTES, os.POSIX_FADV_WILLNEED)
        asked.append((start, size))
        if len(asked) > _PIECES_AHEAD:
            yield asked.popleft()
    yield from asked


def _copy_piece(
    source: int,
    target: int,
    offset: int,
    piece: memoryview,
    hasher: xxhash.xxh3_128 | None,
    style: CopyStyle,
) -> None:
    _read_piece(source, offset, piece, hasher, style)
    _write_fully(target, piece, offset)


def _read_piece(
    source: int,
    offset: int,
    piece: memoryview,
    hasher: xxhash.xxh3_128 | None,
    style: CopyStyle,
) -> None:
    for start in range(0, len(piece), _READ_BYTES):
        # Release the part on an error too: its traceback would keep the whole range mapped.
        with piece[start : start + _READ_BYTES] as part:
            _read_fully(source, part, offset + start)
            if hasher is not None:
                hasher.update(part)
    style.counters[0] += 1
    style.counters[1] += len(piece)


@contextmanager
def _mapped(
    descriptor: int, offset: int, length: int, *, writable: bool
) -> Iterator[memoryview | None]:
    """Map a range of a file that nobody else can shorten: reading past its end is a SIGBUS.

    None if there is little address space (``ulimit -v``), which other threads need too.
    """
    pages = None
    left = address_space_left()
    with suppress(OSError):
        if left is None or left > _LEAST_LEFT * length:
            access = PROT_READ | PROT_WRITE if writable else PROT_READ
            pages = mmap(descriptor, length, MAP_SHARED, access, offset=offset)
    if pages is None:
        yield None
        return
    with pages, memoryview(pages) as view:
        yield view


def _copy_sparse_range(
    source: int, target: int, offset: int, length: int, style: CopyStyle, buffer: memoryview
) -> bytes:
    """Copy the data of one range, and hash it with its holes counted as zeros.

    It is not read back here: beyond the last island the target has no size yet.
    """
    hasher, hashed = None, style.verify is not Verify.NONE
    position, end = offset, offset + length
    while position < end:
        data_start, data_end = next_data(source, position, end)
        if hashed:
            hasher = _with_hole(hasher, data_start - position)
        for start, size in _pieces(data_start, data_end - data_start):
            _copy_piece(source, target, start, buffer[:size], hasher, style)
        if data_start < data_end:
            # XFS allocates ahead of what is written, and would keep that once the file is longer.
            os.ftruncate(target, data_end)
        position = data_end
    return b"" if hasher is None else hasher.digest()


def hash_range(
    descriptor: int, offset: int, length: int, buffer: memoryview, *, sparse: bool = False
) -> bytes:
    """Return the digest of a range of an open file; raise ``Changed`` if it ends early.

    Holes of a sparse file are not read: that would fill the page cache with zeros.
    """
    hasher = None
    position, end = offset, offset + length
    while position < end:
        start, data_end = next_data(descriptor, position, end) if sparse else (position, end)
        hasher = _with_hole(hasher, start - position)
        position = start
        while position < data_end:
            piece = buffer[: min(len(buffer), data_end - position)]
            _read_fully(descriptor, piece, position)
            hasher.update(piece)
            position += len(piece)
    return _with_hole(hasher, 0).digest()


def hash_file(descriptor: int, size: int, buffer: memoryview) -> str:
    """Return the hex content hash of an open file of ``size`` bytes."""
    st = os.fstat(descriptor)
    if st.st_size < size:
        raise Changed
    sparse = st.st_blocks * 512 < size
    return content_of(
        [
            hash_range(descriptor, offset, min(RANGE_BYTES, size - offset), buffer, sparse=sparse)
            for offset in range(0, size, RANGE_BYTES)
        ]
    )


def _read_fully(descriptor: int, into: memoryview, offset: int) -> None:
    done = os.preadv(descriptor, [into], offset)
    while done < len(into):
        count = os.preadv(descriptor, [into[done:]], offset + done)
        if count == 0:
            # Reading ended before the size that the file had.
            still = os.fstat(descriptor).st_size >= offset + len(into)
            raise WrongSize if still else Changed
        done += count


def _write_fully(descriptor: int, data: memoryview, offset: int) -> None:
    done = os.pwrite(descriptor, data, offset)
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)


def _with_hole(hasher: xxhash.xxh3_128 | None, count: int) -> xxhash.xxh3_128:
    """Add a hole of ``count`` bytes to the hasher of a range, or to a new one."""
    if hasher is None:
        return hasher_after(count)
    add_zeros(hasher, count)
    return hasher
