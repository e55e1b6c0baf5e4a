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
from hostprep.probing.pass_rates import Cut, Pass, Told, lasting, together
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
    reader = _Reader(at, begin, end)
    time.sleep(max(0.0, begin - time.monotonic()))
    through = all(reader.read(index, name) for index, name in enumerate(names))
    first, cut = len(reader.ends), reader.cut
    unreadable, empty = reader.unreadable, reader.empty
    again = itertools.cycle(enumerate(names)) if through and first else ()
    for index, name in again:
        if time.monotonic() >= again_until:
            break
        through = False
        if not reader.read_again(index, name):
            break
    return Told(
        reader.seconds, reader.ends, reader.sizes, reader.indices, first, cut, through,
        unreadable, empty, reader.fault,
    )  # fmt: skip


class _Reader:
    """Reads files one by one, and notes when each was read and what could not be."""

    def __init__(self, at: int | None, begin: float, end: float) -> None:
        self._at, self._begin, self._end = at, begin, end
        self._aside = 0.0  # time since the beginning that is not reading
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self.seconds, self.ends = array("d"), array("d")
        self.sizes, self.indices = array("q"), array("L")
        self.unreadable = self.empty = 0
        self.cut: Cut | None = None
        self.fault: str | None = None

    def read(self, index: int, name: str) -> bool:
        """Read a file, unless time is over; return whether time sufficed."""
        started = time.monotonic()
        if started >= self._end:
            return False
        try:
            size, whole = _read_whole(name, self._at, self._buffer, self._end)
        except OSError as error:
            self.unreadable += 1
            self.fault = error.strerror if error.errno in _FAULTS else self.fault
            return True
        now = time.monotonic()
        ended = now - self._begin - self._aside
        if size < whole:
            self.cut = Cut(ended, size, size / whole)
            return False
        if not size:
            self.empty += 1
            return True
        self.seconds.append(now - started)
        self.ends.append(ended)
        self.sizes.append(size)
        self.indices.append(index)
        return True

    def read_again(self, index: int, name: str) -> bool:
        """Evict a file from memory, and read it as ``read`` does."""
        began = time.monotonic()
        page_cache.evict(name, written_out=True, at=self._at)
        self._aside += time.monotonic() - began
        return self.read(index, name)


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
