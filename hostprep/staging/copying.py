"""Copy one entry of any kind and size, and verify it on the open descriptor.

Nothing here prints, logs or retries; ``worker`` does. Most files go the quick way of ``small``.
"""

from __future__ import annotations

import errno
import os
import stat
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import xxhash

from hostprep.staging.metadata import SOURCE_FLAGS, CopyStyle, copy_metadata
from hostprep.staging.model import RANGE_BYTES, Entry, Verify
from hostprep.staging.small import TARGET_FLAGS
from hostprep.staging.tree import entry_of

# Reads and writes of this size keep the data in the processor's cache between the read, the hash
# and the write, and are large enough that the calls do not matter.
BUFFER_BYTES = 1024 * 1024
_PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS

_RANGE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


# An entry as it was copied, and the hex hash of a file or the target of a symlink.
Copy = tuple[Entry, str | None]


class Changed(Exception):
    """The source file is not what it was when the copy began."""

    twice = "changed while it was copied, twice"


class Differs(Exception):
    """What was read back from the target is not what was written."""

    twice = "read back differently from what was written, twice"


class Buffers:
    """Two reusable buffers for one thread: what is read and what is read back.

    They take memory only as far as they are used: threads that scan and small files need none.
    """

    def __init__(self) -> None:
        self.data = memoryview(mmap(-1, BUFFER_BYTES, _PRIVATE))
        self.back = memoryview(mmap(-1, BUFFER_BYTES, _PRIVATE))


def open_source(name: str, dir_fd: int, style: CopyStyle) -> int:
    """Open a source file for reading, without touching its access time where that is allowed.

    O_NONBLOCK keeps a fifo that took the file's place from hanging us.
    """
    try:
        return os.open(name, style.source_flags, dir_fd=dir_fd)
    except PermissionError:
        # Not the owner's; or really not readable, which the next line finds out.
        descriptor = os.open(name, SOURCE_FLAGS, dir_fd=dir_fd)
        style.source_flags = SOURCE_FLAGS
        return descriptor


def copy_file(
    entry: Entry,
    source_dir: int,
    target_dir: int,
    style: CopyStyle,
    buffers: Buffers,
    opened: int | None = None,
) -> Copy:
    """Copy a regular file of up to ``RANGE_BYTES``, or a sparse one of any size.

    Returns the entry as it was copied and the hex hash of its content (None without verification).
    ``opened`` is a descriptor of the source from ahead of its turn, closed here. Raises
    ``Changed``, ``Differs`` or OSError; what was written of the target is removed then.
    """
    name, size = entry.name, entry.size
    source = open_source(name, source_dir, style) if opened is None else opened
    try:
        target = _create(entry, target_dir)
        try:
            if size <= BUFFER_BYTES and entry.blocks * 512 >= size:
                content = _copy_small(size, source, target, style.verify, buffers)
            else:
                content = _copy_large(entry, source, target, style.verify, buffers)
            st = os.fstat(source)
            check_unchanged(entry, st)
            if style.drop_behind:
                os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
            copy_metadata(st, source, target, style)
        except BaseException:
            os.unlink(name, dir_fd=target_dir)
            raise
        finally:
            os.close(target)
    finally:
        os.close(source)
    return entry, content


def copy_again(
    entry: Entry, source_dir: int, target_dir: int, style: CopyStyle, buffers: Buffers
) -> Copy:
    """Copy an entry a second time, as it is by now; raises as ``copy_file`` does."""
    now = current(entry, source_dir)
    if stat.S_IFMT(now.mode) != stat.S_IFMT(entry.mode):
        raise Changed
    if stat.S_ISLNK(now.mode):
        return copy_symlink(now, source_dir, target_dir, style)
    return copy_file(now, source_dir, target_dir, style, buffers)


def _create(entry: Entry, target_dir: int) -> int:
    # The workers' umask is 0, so that the mode arrives here and needs no call of its own. Bits
    # that chown would clear, and modes without access, are set at the end.
    mode = entry.mode & 0o777
    try:
        return os.open(entry.name, TARGET_FLAGS, mode, dir_fd=target_dir)
    except FileExistsError:
        # Left by an interrupted run, or by the first of two tries.
        os.unlink(entry.name, dir_fd=target_dir)
        return os.open(entry.name, TARGET_FLAGS, mode, dir_fd=target_dir)


def _copy_small(
    size: int, source: int, target: int, verify: Verify, buffers: Buffers
) -> str | None:
    """Copy a file that fits the buffer: one read, one write, one read back."""
    data = buffers.data[:size]
    _read_fully(source, data, 0)
    _write_fully(target, data, 0)
    if verify is Verify.NONE:
        return None
    digest = xxhash.xxh3_128_digest(data)
    if verify is Verify.READBACK:
        back = buffers.back[:size]
        _read_fully(target, back, 0)
        if xxhash.xxh3_128_digest(back) != digest:
            raise Differs
    return digest.hex()


def _copy_large(
    entry: Entry, source: int, target: int, verify: Verify, buffers: Buffers
) -> str | None:
    digests = []
    if not entry.is_sparse:
        # The final size first: only then may the kernel use huge pages (huge=within_size). Not for
        # sparse files, whose small islands would each take a huge page.
        os.ftruncate(target, entry.size)
    for offset in range(0, entry.size, RANGE_BYTES):
        length = min(RANGE_BYTES, entry.size - offset)
        digest = copy_range(source, target, offset, length, verify, buffers, sparse=entry.is_sparse)
        digests.append(digest)
    if entry.is_sparse:
        os.ftruncate(target, entry.size)
        if verify is Verify.READBACK:
            for index, offset in enumerate(range(0, entry.size, RANGE_BYTES)):
                length = min(RANGE_BYTES, entry.size - offset)
                found = hash_range(target, offset, length, buffers.back, sparse=True)
                if found != digests[index]:
                    raise Differs
    return None if verify is Verify.NONE else content_of(digests)


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
    verify: Verify,
    buffers: Buffers,
    *,
    sparse: bool = False,
) -> bytes:
    """Copy one range and return the digest of its bytes, holes counted as zeros.

    A dense range is read back here, each piece while the processor's cache still has what was
    written; of a sparse one the caller does it once the size is set.
    """
    hasher = None if verify is Verify.NONE else xxhash.xxh3_128()
    again = xxhash.xxh3_128() if verify is Verify.READBACK and not sparse else None
    end = offset + length
    position = offset
    while position < end:
        data_start, data_end = _next_data(source, position, end) if sparse else (position, end)
        if hasher is not None:
            _hash_zeros(hasher, data_start - position)
        position = data_start
        while position < data_end:
            piece = buffers.data[: min(BUFFER_BYTES, data_end - position)]
            _read_fully(source, piece, position)
            if hasher is not None:
                hasher.update(piece)
            _write_fully(target, piece, position)
            if again is not None:
                back = buffers.back[: len(piece)]
                _read_fully(target, back, position)
                again.update(back)
            position += len(piece)
        if sparse and data_start < data_end:
            # XFS allocates ahead of what is written, and would keep it once the file is longer.
            os.ftruncate(target, position)
    if hasher is None:
        return b""
    digest = hasher.digest()
    if again is not None and again.digest() != digest:
        raise Differs
    return digest


def hash_range(
    descriptor: int, offset: int, length: int, buffer: memoryview, *, sparse: bool = False
) -> bytes:
    """Return the digest of a range of an open file; ``Changed`` where it ends early.

    Of a sparse one the holes are not read, which would fill the page cache with zeros.
    """
    hasher = xxhash.xxh3_128()
    position, end = offset, offset + length
    while position < end:
        start, data_end = _next_data(descriptor, position, end) if sparse else (position, end)
        _hash_zeros(hasher, start - position)
        position = start
        while position < data_end:
            piece = buffer[: min(len(buffer), data_end - position)]
            _read_fully(descriptor, piece, position)
            hasher.update(piece)
            position += len(piece)
    return hasher.digest()


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


def copy_symlink(entry: Entry, source_dir: int, target_dir: int, style: CopyStyle) -> Copy:
    """Copy a symlink as a symlink and return its entry and what it points to."""
    content = os.readlink(entry.name, dir_fd=source_dir)
    try:
        os.symlink(content, entry.name, dir_fd=target_dir)
    except FileExistsError:
        os.unlink(entry.name, dir_fd=target_dir)
        os.symlink(content, entry.name, dir_fd=target_dir)
    st = os.lstat(entry.name, dir_fd=source_dir)
    check_unchanged(entry, st)
    if style.may_chown and (st.st_uid, st.st_gid) != (style.own_uid, style.own_gid):
        os.chown(entry.name, st.st_uid, st.st_gid, dir_fd=target_dir, follow_symlinks=False)
    times = (st.st_atime_ns, st.st_mtime_ns)
    os.utime(entry.name, ns=times, dir_fd=target_dir, follow_symlinks=False)
    return entry, content


def open_range_target(entry: Entry, target_dir: int) -> int:
    """Open the target of a file that is copied in ranges, its final size set.

    Several workers do this for the same file in any order; the mode stays private until the end.
    """
    target = os.open(entry.name, _RANGE_FLAGS, 0o600, dir_fd=target_dir)
    st = os.fstat(target)
    if not stat.S_ISREG(st.st_mode):
        os.close(target)
        raise OSError(errno.EEXIST, "something that is no file is in the way", entry.name)
    os.ftruncate(target, entry.size)
    return target


def check_unchanged(entry: Entry, st: os.stat_result) -> None:
    """Raise ``Changed`` where the source is no longer the file that was planned.

    The inode number is left out: some FUSE file systems give a file a new one at each look.
    """
    if st.st_mtime_ns != entry.mtime_ns or st.st_size != entry.size or st.st_mode != entry.mode:
        raise Changed


def current(entry: Entry, source_dir: int) -> Entry:
    """Return the entry as it is now, for a second try."""
    return entry_of(entry.name, os.lstat(entry.name, dir_fd=source_dir))


def _read_fully(descriptor: int, into: memoryview, offset: int) -> None:
    done = os.preadv(descriptor, [into], offset)
    while done < len(into):
        count = os.preadv(descriptor, [into[done:]], offset + done)
        if count == 0:
            raise Changed  # the file ended before the size that it had
        done += count


def _write_fully(descriptor: int, data: memoryview, offset: int) -> None:
    done = os.pwrite(descriptor, data, offset)
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)


def _next_data(source: int, position: int, end: int) -> tuple[int, int]:
    """Return the next stretch of data in [position, end) of a sparse file, clipped to it."""
    try:
        start = os.lseek(source, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole to the end of the file
            return end, end
        raise
    if start >= end:
        return end, end
    return start, min(end, os.lseek(source, start, os.SEEK_HOLE))


_ZEROS = bytes(BUFFER_BYTES)


def _hash_zeros(hasher: xxhash.xxh3_128, count: int) -> None:
    while count > 0:
        step = min(count, BUFFER_BYTES)
        hasher.update(_ZEROS if step == BUFFER_BYTES else _ZEROS[:step])
        count -= step
