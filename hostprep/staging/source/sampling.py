"""A quick sample of how a source answers: from memory or a device, how fast, how parallel."""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from hostprep.dataclass import dataclass
from hostprep.staging.files.holes import next_data
from hostprep.staging.model import Entry
from hostprep.staging.source.scan import Scan
from hostprep.system.bounded import QuestionFailed, ask_in_child
from hostprep.system.forking import NoProcess
from hostprep.system.trees import FILE_FLAGS, DirCache

_FILES = 24
# On a disk that claims to have an arm: enough files to show whether all are cached, but only a few
# that are not, because each of those costs a seek.
_ARM_FILES, _ARM_MISSES = 64, 5
_SECONDS = 0.25
_SIDE_BY_SIDE, _MOST_SIDE_BY_SIDE = 8, 24
_SLOW_SECONDS = 0.003
# Above this it was not memory, on file systems that do not tell what is cached.
_LATE_SECONDS = 0.001
_WARM_SHARE = 0.9
SAMPLED_BYTES = 128 * 1024
_PAGE_BYTES = 4096
_FEW_BYTES = _PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Sample:
    """How a source answered.

    ``cached_share`` is the share of sampled files that were in the page cache, by their first,
    middle and last page, None if the file system does not tell. ``seconds`` is the median time of
    opening a file and reading ``SAMPLED_BYTES`` of it, and ``open_seconds`` that of opening alone;
    both are of files that were not cached, if there were any; None if nothing could be read.
    ``parallel_gain`` is how many times faster several files came in parallel than one after the
    other, None if that was not tried. ``attribute_bytes`` is the mean room that the ``user.*``
    attributes of a file take on a tmpfs.
    """

    files: int
    cached_share: float | None
    seconds: float | None
    parallel_gain: float | None = None
    open_seconds: float | None = None
    attribute_bytes: float = 0

    @property
    def is_warm(self) -> bool:
        """Whether all reads, with few exceptions, are answered from memory."""
        if self.cached_share is not None:
            return self.cached_share > _WARM_SHARE
        return self.seconds is not None and self.seconds < 100e-6

    @property
    def is_all_cached(self) -> bool:
        """Whether nothing was found that is not in memory."""
        return self.is_warm if self.cached_share is None else self.cached_share == 1


class Answer(NamedTuple):
    """How a file answered: whether it was cached, None if unknown, and how fast."""

    cached: bool | None
    open_seconds: float
    seconds: float
    attribute_bytes: int = 0

    @property
    def missed(self) -> bool:
        """Whether it did not come from memory."""
        return self.seconds >= _LATE_SECONDS if self.cached is None else not self.cached


def take_sample_apart(
    source_fd: int, scan: Scan, *, arm: bool = False, on_wait: Callable[[float], None] | None = None
) -> Sample:
    """Take a sample in a child process, for a source that may cease to answer, such as a server.

    A process that waits for such an answer cannot be interrupted; ``on_wait`` is told every second
    how many have passed.
    """
    try:
        return Sample(
            **ask_in_child(
                lambda: asdict(take_sample(source_fd, scan, arm=arm)),
                patience_seconds=math.inf,
                on_wait=on_wait,
                holding=source_fd,
            )
        )
    except NoProcess:  # a limit: the copy may manage without a process, too
        return take_sample(source_fd, scan, arm=arm)
    except QuestionFailed:  # whatever ended the child, the copy will meet it again and report it
        return Sample(0, None, None)


def take_sample(source_fd: int, scan: Scan, *, arm: bool) -> Sample:
    """Open and read a few files here and there, for about a quarter of a second at most.

    ``arm``: the kernel says that there is an arm; then a few reads are enough, because each costs a
    seek. A source that answers slowly is also asked for several files at once.
    """
    # Different files each time: an earlier run has brought those that it sampled into memory.
    phase = time.monotonic() % 1
    count, most = (_ARM_FILES, _ARM_MISSES) if arm else (_FILES, _FILES)
    if not arm:  # of few files, leave half for parallel reading
        count = min(count, max(_SIDE_BY_SIDE, scan.totals.files // 2))
    chosen = _choose(scan, count, phase)
    answers: list[Answer] = []
    deadline = time.monotonic() + _SECONDS
    with DirCache(source_fd) as cache:
        for item in reversed(chosen):
            answer = _read(cache, *item)
            if answer is not None:
                answers.append(answer)
            enough = sum(each.missed for each in answers) >= most
            if enough or time.monotonic() >= deadline:
                break
    sample = sum_up(answers)
    if arm or sample.is_warm or sample.seconds is None or sample.seconds <= _SLOW_SECONDS:
        return sample
    # Enough files that sufficiently many among them are not cached.
    cold_share = sum(each.missed for each in answers) / len(answers)
    count = min(math.ceil(_SIDE_BY_SIDE / cold_share), _MOST_SIDE_BY_SIDE)
    others = [item for item in _choose(scan, 4 * count, phase) if item not in chosen]
    files = others[:: max(1, len(others) // count)][:count]
    return replace(sample, parallel_gain=_parallel_gain(source_fd, files, sample.seconds))


def sum_up(answers: Sequence[Answer]) -> Sample:
    """Summarize the answers; pure.

    The files that are not cached show how fast the device is, however few they are: if more than
    half of all are cached, the median over all would be that of memory.
    """
    if not answers:
        return Sample(0, None, None)
    told = [each.cached for each in answers if each.cached is not None]
    share = sum(told) / len(told) if told else None
    missed = [each for each in answers if each.missed]
    if share is None and len(missed) <= len(answers) * (1 - _WARM_SHARE):
        missed = []  # unknown, and a few may be slow for another reason
    by = missed or answers
    return Sample(
        len(answers),
        share,
        _median([each.seconds for each in by]),
        open_seconds=_median([each.open_seconds for each in by]),
        attribute_bytes=sum(each.attribute_bytes for each in answers) / len(answers),
    )


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _choose(scan: Scan, count: int, phase: float) -> list[tuple[str, str]]:
    """Return (directory, name) of at most ``count`` files, evenly spaced among all.

    ``phase`` in [0, 1) selects different ones: it shifts the picks by this share of their distance.
    A pick without content is replaced by a neighbour; if no pick has any, the first files are used.
    """
    count = min(count, scan.totals.files)
    wanted = iter([int((number + phase) / count * scan.totals.files) for number in range(count)])
    chosen: dict[tuple[str, str], None] = {}
    place, seen = next(wanted, None), 0
    for directory, files, entries in _parts(scan):
        names: list[str] | None = None
        while place is not None and place < seen + files:
            if names is None:
                names = _with_content(entries())
            if names:
                chosen[directory, names[(place - seen) * len(names) // files]] = None
            place = next(wanted, None)
        seen += files
    if not chosen and scan.totals.bytes:  # for instance very many symlinks and a few files
        first = ((path, name) for path, _, get in _parts(scan) for name in _with_content(get()))
        return list(islice(first, count))
    return list(chosen)


def _with_content(entries: Sequence[Entry]) -> list[str]:
    return [entry.name for entry in entries if entry.size and stat.S_ISREG(entry.mode)]


def _parts(scan: Scan) -> Iterator[tuple[str, int, Callable[[], Sequence[Entry]]]]:
    """Yield (directory, how many, function that gives the entries), so that few are unpacked."""
    for listing in scan.listings:
        for batch in listing.batches:
            yield listing.directory, batch.files, batch.entries
        yield listing.directory, len(listing.singles), partial(list, listing.singles)


def _read(
    cache: DirCache, directory: str, name: str, size_bytes: int = SAMPLED_BYTES
) -> Answer | None:
    """Read a part of a file that is not cached, or else its beginning; None if that fails."""
    started = time.monotonic()
    try:
        descriptor = os.open(name, FILE_FLAGS, dir_fd=cache.fd(directory))
    except OSError:
        return None  # the copy will meet the error again and report it
    opened = time.monotonic() - started
    try:
        try:
            cached, offset = _is_cached(descriptor)
            os.preadv(descriptor, [bytearray(size_bytes)], offset)
            seconds = time.monotonic() - started
            return Answer(cached, opened, seconds, _attribute_bytes(descriptor))
        finally:
            os.close(descriptor)  # this fails if the server is gone by now
    except OSError:
        return None


def _attribute_bytes(descriptor: int) -> int:
    """Return the room of a file's ``user.*`` attributes on a tmpfs (simple_xattr_space)."""
    try:
        names = [name for name in os.listxattr(descriptor) if name.startswith("user.")]
        return sum(40 + len(name) + len(os.getxattr(descriptor, name)) for name in names)
    except OSError:
        return 0  # it has none, or the copy will meet the error again


def _is_cached(descriptor: int) -> tuple[bool | None, int]:
    """Return whether a file is in the page cache, None if unknown, and an offset that is not.

    By its first, middle and last page: if something has only looked into a file, the first page is
    cached and the rest is not. After a page that is not there, no other is tested, because testing
    starts reading. Holes are not tested: nobody caches them, and no device is asked for them.
    """
    st = os.fstat(descriptor)
    last = max(0, st.st_size - 1)
    offsets = {0, last // 2 // _PAGE_BYTES * _PAGE_BYTES, last}
    if 0 < st.st_blocks * 512 < st.st_size:  # 0 blocks: a server that counts none
        offsets = {next_data(descriptor, offset, st.st_size)[0] for offset in offsets}
        offsets.discard(st.st_size)
    for offset in sorted(offsets):
        try:
            os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return False, offset
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return None, 0
            raise
    return True, 0


def _parallel_gain(
    source_fd: int, files: list[tuple[str, str]], median_seconds: float
) -> float | None:
    """Read other files in parallel and compare with the time that they take one after the other.

    Only a little of each: for an arm that takes as long, but not for a slow line, which one file
    fills as well as many, although it does carry several at once.
    """
    from concurrent.futures import ThreadPoolExecutor

    if len(files) < _SIDE_BY_SIDE:
        return None

    def read(item: tuple[str, str]) -> float | None:
        with DirCache(source_fd) as cache:
            answer = _read(cache, *item, _FEW_BYTES)
            if answer is None or answer.cached or answer.seconds < median_seconds / 2:
                return None  # from memory, here or on a server that does not tell
            return time.monotonic() - started

    started = time.monotonic()
    try:
        with ThreadPoolExecutor(len(files)) as pool:
            answered = [seconds for seconds in pool.map(read, files) if seconds is not None]
    except RuntimeError:  # a limit on processes, which also counts threads
        return None
    return gain_of(median_seconds, answered)


def gain_of(median_seconds: float, answered: list[float]) -> float | None:
    """Return how many times faster files came in parallel, by when each came; pure.

    None for fewer than 4. The last quarter is left out: of many files that are far away, one or two
    may be late for reasons of their own, and not because they wait for each other.
    """
    if len(answered) < _SIDE_BY_SIDE // 2:
        return None
    most = len(answered) * 3 // 4
    return most * median_seconds / sorted(answered)[most - 1]
