"""Reads whole files as a loader does: opened, read to the end and closed, by one or more processes.

fio cannot do this: with a time limit, its ``openfiles`` can stay on the first file and report more
than any disk can do (axboe/fio#941).
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe
from multiprocessing.connection import wait as wait_for

from hostprep.errors import HostprepError
from hostprep.probing.model import SLOWEST_BYTES_PER_S
from hostprep.probing.pass_rates import Pass, Told, lasting, together
from hostprep.system import page_cache
from hostprep.system.bounded import leave
from hostprep.system.descriptors import closing_fd
from hostprep.system.forking import NoProcess, fork_for
from hostprep.system.parent import die_with_parent
from hostprep.system.trees import NAMED_FILE_FLAGS
from hostprep.units import MIB

BUFFER_BYTES = MIB
# What has replaced a file since it was found must not lead elsewhere, nor block a reader.
_OPEN = NAMED_FILE_FLAGS | os.O_NOFOLLOW
# Errors by which a disk, or a file system's own checksums, report lost data.
_FAULTS = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EREMOTEIO})
_START_DELAY_SECONDS = 0.05
_PATIENCE_SECONDS = 5.0


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

    ``at`` is a descriptor of the folder that the names are relative to. A file that is not finished
    in time is none of the ``names``. Readers that are done before ``at_least_seconds`` begin again
    until then, and evict each file from memory first: this shows whether the rate lasts, without a
    pause in which a limit would forget what it has let through. With 0 that is not checked: memory
    has no such limit. ``tell`` is called now and then. Raises ``HostprepError`` if a reader hangs,
    dies, or cannot be started.
    """
    shares = [names[number::readers] for number in range(readers)]
    # Each of them waits for as much as a buffer at the end.
    patience = seconds + _PATIENCE_SECONDS + readers * BUFFER_BYTES / SLOWEST_BYTES_PER_S
    # Forked here, so that a start costs milliseconds and all begin at the same moment:
    # ``ask_in_child`` would wait for one before it starts the next.
    begin = time.monotonic() + _START_DELAY_SECONDS
    children: dict[Connection, tuple[int, int]] = {}
    results: dict[int, Told] = {}
    try:
        for number, share in enumerate(shares):
            try:
                ours, theirs = Pipe(duplex=False)
            except OSError as error:
                raise NoProcess(error) from None
            until = begin + seconds, begin + at_least_seconds
            with theirs:
                child = fork_for(partial(_reader, theirs, share, at, begin, *until))
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
            leave(child)
    told = [results[number] for number in range(readers)]
    done = together(shares, told)
    return lasting(done, told) if at_least_seconds else done


def _reader(
    pipe: Connection,
    names: Sequence[str],
    at: int | None,
    begin: float,
    end: float,
    again_until: float,
) -> None:
    """In a child: read as in ``_read``, then send the result."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all: the parent ends us
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # and so does the end of the terminal
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pipe.send(_read(names, at, begin, end, again_until))


def _read(
    names: Sequence[str], at: int | None, begin: float, end: float, again_until: float
) -> Told:
    """Read from ``begin`` until ``end`` or the end of the names; again until ``again_until``.

    These are times of the monotonic clock.
    """
    seconds, ends, sizes, indices = array("d"), array("d"), array("q"), array("L")
    unreadable = empty = 0
    fault: str | None = None
    aside = 0.0  # time that is not reading
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
    return Told(seconds, ends, sizes, indices, first, cut, through, unreadable, empty, fault)


def _read_whole(name: str, at: int | None, buffer: memoryview, end: float) -> tuple[int, int]:
    """Return how much was read, and the file's size; if less, time was over before its end."""
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
    """Return an error text if half or more of the files cannot be read; None if most can.

    They are tried for at most ``seconds``.
    """
    deadline = time.monotonic() + seconds
    tried, refused, words = 0, 0, ""
    for name in names:
        if time.monotonic() > deadline:
            break
        tried += 1
        try:
            with closing_fd(page_cache.open_untouched(name, _OPEN)) as fd:
                os.read(fd, 1)
        except OSError as error:
            refused += 1
            words = error.strerror or str(error)
    if not refused or 2 * refused < tried:
        return None
    return f"{refused} of {tried} files that were tried cannot be read ({words})"
