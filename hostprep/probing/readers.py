"""Whole files as a loader reads them: opened, read to the end and closed, by one or more processes.

fio cannot do this: its ``openfiles`` with a time limit can stay on the first file and report what
no disk can (axboe/fio#941).
"""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import signal
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, sqrt
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.probing.model import SLOWEST_BYTES_PER_S, Latency
from hostprep.system import page_cache
from hostprep.system.forking import NoProcess
from hostprep.system.parent import die_with_parent
from hostprep.units import MIB

BUFFER_BYTES = MIB
# What took a file's place since it was found may not lead elsewhere, nor keep a reader waiting.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# By which a disk, or a file system's own check sums, say that data is lost.
_FAULTS = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EREMOTEIO})
_START_DELAY_SECONDS = 0.05
_PATIENCE_SECONDS = 5.0
# A limit that was not asked of for a while lets the first through at once: Linux's own what it
# allows in a tenth of a second. What comes after this share of a pass is without that.
_EARLY_SHARE = 1 / 3
# A rate lasts where what comes later is no slower than this share of it, or by mere chance: by the
# standard deviation of a count, at most.
_LASTS_FROM = 0.9


@dataclass(frozen=True, slots=True)
class Pass:
    """What all readers did: seconds and bytes of every file, and their rates added up.

    ``names`` are the files that were read, in the order of ``seconds`` and ``sizes``. The rates are
    those of the time when all readers were at work. ``empty`` files are no part of anything: to
    open one is no reading, and many would make any storage look fast. A large file that the time
    did not suffice for is in the rates, by the share that was read, and in ``cut_bytes``.

    ``again_bytes`` are of files that were read once more. ``early_files_per_s`` is None where the
    rate lasted; else it is what the files came at first, the rates are what they came at later, and
    ``later_seconds`` what each of these took. ``fault`` is what failing storage said of a file.
    """

    names: tuple[str, ...]
    seconds: array[float]
    sizes: array[int]
    files_per_s: float
    bytes_per_s: float
    wall_seconds: float
    unreadable: int
    empty: int
    again_bytes: int = 0
    cut_bytes: int = 0
    early_files_per_s: float | None = None
    later_seconds: Sequence[float] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class _Told:
    """What one reader did with its share of the names; a file has the same place in four lists.

    ``ends`` are counted from the common beginning, without what is no reading; ``indices`` are
    places in the share. The ``first`` so many were read for the first time. ``cut`` is a file that
    the time did not suffice for: when, how many bytes, which share of it. ``through``: it came to
    the end of its names before the time was over, and read none again.
    """

    seconds: array[float]
    ends: array[float]
    sizes: array[int]
    indices: array[int]
    first: int
    cut: tuple[float, int, float] | None
    through: bool
    unreadable: int
    empty: int
    fault: str | None


def read_whole_files(
    names: Sequence[str],
    readers: int,
    seconds: float,
    tell: Callable[[], None] = lambda: None,
    *,
    at: int | None = None,
    at_least_seconds: float = 0.0,
) -> Pass:
    """Read ``names`` once, in their order, by ``readers`` processes for at most ``seconds``.

    ``at`` is a descriptor of the folder that they begin at. A file that is not finished in time
    is none of the ``names``. Readers that are through before ``at_least_seconds`` begin anew until
    then, and take each file out of memory before: it tells whether the rate lasts, without a pause
    in which a limit would forget what it has let through. With 0 nobody asks whether it does:
    memory has no such limit. ``tell`` is called now and then. Raises ``HostprepError`` where a
    reader hangs, dies, or cannot be started.
    """
    shares = [names[number::readers] for number in range(readers)]
    # Each of them waits for as much as a buffer at the end.
    patience = seconds + _PATIENCE_SECONDS + readers * BUFFER_BYTES / SLOWEST_BYTES_PER_S
    # Forked, so that a start costs milliseconds; the children do nothing but read.
    context = multiprocessing.get_context("fork")
    begin = time.monotonic() + _START_DELAY_SECONDS
    children: dict[Connection, tuple[int, Any]] = {}
    results: dict[int, _Told] = {}
    try:
        for number, share in enumerate(shares):
            try:
                ours, theirs = context.Pipe(duplex=False)
                with theirs:
                    child = context.Process(
                        target=_reader,
                        args=(theirs, share, at, begin, begin + seconds, begin + at_least_seconds),
                        daemon=True,
                    )
                    child.start()
            except OSError as error:
                raise NoProcess(error) from None
            children[ours] = number, child
        pending = set(children)
        while pending:
            if time.monotonic() > begin + patience:
                raise HostprepError(
                    f"a file was not read within {patience:.0f} s; "
                    "the storage hangs. Nothing was changed.",
                    "dmesg may say which disk or server does not answer",
                )
            for pipe in wait_for(list(pending), timeout=0.25):
                assert isinstance(pipe, Connection)
                try:
                    results[children[pipe][0]] = pipe.recv()
                except EOFError:
                    raise HostprepError("a reader of files died before it was done.") from None
                pending.discard(pipe)
            tell()
    finally:
        for pipe, (_, child) in children.items():
            pipe.close()
            child.terminate()
            child.join(1)
    told = [results[number] for number in range(readers)]
    done = _together(shares, told)
    return _lasting(done, told) if at_least_seconds else done


def _together(shares: list[Sequence[str]], results: list[_Told]) -> Pass:
    names: list[str] = []
    seconds, sizes = array("d"), array("q")
    files_per_s = bytes_per_s = wall = 0.0
    again_bytes = cut_bytes = 0
    # From the first reader's end on, the others have the machine to themselves.
    together = min(
        (one.ends[one.first - 1] for one in results if one.through and one.first), default=inf
    )
    for share, one in zip(shares, results, strict=True):
        names += [share[index] for index in one.indices[: one.first]]
        seconds += one.seconds[: one.first]
        sizes += one.sizes[: one.first]
        again_bytes += sum(one.sizes[one.first :])
        whole = bisect_right(one.ends[: one.first], together)
        read, took = sum(one.sizes[:whole]), one.ends[whole - 1] if whole else 0.0
        count = float(whole)
        if one.cut and one.cut[0] <= together:
            took, size, share_read = one.cut
            count, read, cut_bytes = count + share_read, read + size, cut_bytes + size
        if took:
            files_per_s += count / took
            bytes_per_s += read / took
            wall = max(wall, took)
    unreadable = sum(one.unreadable for one in results)
    empty = sum(one.empty for one in results)
    return Pass(
        tuple(names), seconds, sizes, files_per_s, bytes_per_s, wall, unreadable, empty,
        again_bytes, cut_bytes, fault=next(filter(None, (one.fault for one in results)), None),
    )  # fmt: skip


def _lasting(done: Pass, results: list[_Told]) -> Pass:
    """Return the pass with the rates that last, where it began by faster ones.

    They are taken from one file's end to another's: a limit has them come in bunches. And they must
    be the lower by files as well as by bytes, for files are of different sizes.
    """
    ended = [one.ends[-1] for one in results if one.ends]
    begin, end = _EARLY_SHARE * max(ended, default=0.0), min(ended, default=0.0)
    later = sorted(
        each
        for one in results
        for each in zip(one.ends, one.sizes, one.seconds, strict=True)
        if begin < each[0] <= end
    )
    took = later[-1][0] - later[0][0] if later else 0.0
    if took <= 0:
        return done
    count, expected = len(later) - 1, done.files_per_s * took
    size_bytes = sum(size for _, size, _ in later[1:])
    if (
        count >= _LASTS_FROM * expected
        or size_bytes >= _LASTS_FROM * done.bytes_per_s * took
        or expected - count <= sqrt(expected)
    ):
        return done
    return replace(
        done,
        files_per_s=count / took,
        bytes_per_s=size_bytes / took,
        early_files_per_s=done.files_per_s,
        later_seconds=array("d", (seconds for _, _, seconds in later)),
    )


def _reader(
    pipe: Connection,
    names: Sequence[str],
    at: int | None,
    begin: float,
    end: float,
    again_until: float,
) -> None:
    """In a child: read until the names or the time are over, then tell."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all: the parent ends us
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # and so does the end of the terminal
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    seconds, ends, sizes, indices = array("d"), array("d"), array("q"), array("L")
    unreadable = empty = 0
    fault: str | None = None
    aside = 0.0  # what is no part of reading
    cut: tuple[float, int, float] | None = None
    first: int | None = None  # how many were read when all had been
    through = True
    buffer = memoryview(bytearray(BUFFER_BYTES))
    time.sleep(max(0.0, begin - time.monotonic()))
    for index in itertools.count():
        started = time.monotonic()
        if index == len(names):
            first = len(ends)
        if first is not None:
            if not first or started >= again_until:
                break
            through = False
        name = names[index % len(names)]
        if first is not None:
            page_cache.evict(name, written_out=True, at=at)
            aside -= started
            started = time.monotonic()
            aside += started
        if started >= end:
            through = False
            break
        try:
            size, whole = _read_whole(name, at, buffer, end)
        except OSError as error:
            unreadable += first is None
            fault = error.strerror if error.errno in _FAULTS else fault
            continue
        now = time.monotonic()
        if size < whole:
            through = False
            if first is None:
                cut = now - begin - aside, size, size / whole
            break
        if not size:
            empty += first is None
            continue
        seconds.append(now - started)
        ends.append(now - begin - aside)
        sizes.append(size)
        indices.append(index)
    first = len(ends) if first is None else first
    pipe.send(_Told(seconds, ends, sizes, indices, first, cut, through, unreadable, empty, fault))


def _read_whole(name: str, at: int | None, buffer: memoryview, end: float) -> tuple[int, int]:
    """Return how much was read, and the file's size, of which the time was over before if less."""
    fd = page_cache.open_untouched(name, _OPEN, at)
    try:
        size = 0
        while got := os.readv(fd, [buffer]):
            size += got
            if size > BUFFER_BYTES and time.monotonic() > end:
                return size, max(size, os.fstat(fd).st_size)
        return size, size
    finally:
        os.close(fd)


def refusal(names: Sequence[str], seconds: float) -> str | None:
    """Return what to say of files of which half or more cannot be read; None where most can.

    They are tried for at most ``seconds``.
    """
    deadline = time.monotonic() + seconds
    tried, refused, words = 0, 0, ""
    for name in names:
        if time.monotonic() > deadline:
            break
        tried += 1
        try:
            fd = page_cache.open_untouched(name, _OPEN)
            try:
                os.read(fd, 1)
            finally:
                os.close(fd)
        except OSError as error:
            refused += 1
            words = error.strerror or str(error)
    if not refused or 2 * refused < tried:
        return None
    return f"{refused} of {tried} files that were tried cannot be read ({words})"


def percentiles(seconds: Sequence[float]) -> Latency:
    """Return the percentiles of at least one time, by the nearest rank."""
    ordered = sorted(seconds)
    p50, p95, p99 = (
        ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.95, 0.99)
    )
    return Latency(p50, p95, p99)


def line_through(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Return seconds per file and per byte: least squares, the slope never below zero.

    Where all files have the same size, everything is per file.
    """
    count = len(sizes)
    mean_size, mean_seconds = sum(sizes) / count, sum(seconds) / count
    spread = sum((size - mean_size) ** 2 for size in sizes)
    together = sum(
        (size - mean_size) * (time_ - mean_seconds)
        for size, time_ in zip(sizes, seconds, strict=True)
    )
    slope = max(0.0, together / spread) if spread > 0 else 0.0
    slope = min(slope, mean_seconds / mean_size) if mean_size > 0 else 0.0
    return mean_seconds - slope * mean_size, slope
