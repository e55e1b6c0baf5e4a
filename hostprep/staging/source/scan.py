"""Read a source tree: every directory listed and every entry lstat-ed, by several processes.

The entries stay packed as the workers sent them, some 80 bytes each, so that a tree of millions of
files fits in memory; they are unpacked one directory at a time where somebody has to look.
"""

from __future__ import annotations

import marshal
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple

from hostprep.dataclass import dataclass
from hostprep.host.fscrypt import may_hold_locked
from hostprep.staging.batches import Batch, Listed
from hostprep.staging.model import (
    Entry,
    Skipped,
    Totals,
    describe_special,
    space_on_target,
)
from hostprep.staging.processes.descriptors import share_descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.pool import Pool
from hostprep.staging.processes.worker import Worker
from hostprep.staging.tree import Plain, entry_of, is_slow
from hostprep.system.trees import join

# What is below both is scanned before worker processes have started.
_INLINE_DIRECTORIES = 16
_INLINE_ENTRIES = 1000
_MOST_DIRECTORIES_A_TASK = 64
# How many names of a large directory a worker looks up at a time: where memory answers, and where
# it does not, or that is not known yet.
_NAMES_A_TASK = 512
_NAMES_A_SLOW_TASK = 32
# BTRFS_EMPTY_SUBVOL_DIR_OBJECTID; directories of other file systems that have it have two names.
_GAP_INODE = 2
_GAP = "what is in a subvolume of its own, which the Btrfs snapshot does not hold"
# What Linux opens by one name (PATH_MAX), which is of bytes: no fewer than the characters that are
# counted here. Deeper paths can be made, and each has all the names above it in its own: a few
# thousand folders without a file would take all the memory.
_LONGEST_PATH = 4095
_TOO_DEEP = (
    f"its path is longer than {_LONGEST_PATH:,} characters, which no program opens by one name"
)
# Only what was waited for that long in all is no matter of a busy processor.
_LEAST_WAIT_SECONDS = 0.1


class Listing(NamedTuple):
    """One directory: its batches, and apart from them what is copied or linked one by one."""

    directory: str
    batches: tuple[Batch, ...]
    singles: tuple[Entry, ...]

    @property
    def files(self) -> int:
        """How many files and symlinks it has."""
        return sum([batch.files for batch in self.batches]) + len(self.singles)

    def entries(self) -> Iterator[Entry]:
        """Return all files and symlinks of the directory."""
        return map(Entry._make, self.plain())

    def plain(self) -> Iterator[Plain]:
        """Yield the same as plain tuples."""
        for batch in self.batches:
            yield from marshal.loads(batch.packed)
        for entry in self.singles:
            yield (*entry,)


@dataclass(slots=True)
class Scan:
    """A source tree as it was found. ``directories`` has each with its own entry, root ``""``."""

    directories: dict[str, Entry] = field(default_factory=dict)
    listings: list[Listing] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    totals: Totals = field(default_factory=Totals)

    @property
    def holds_nothing(self) -> bool:
        """Whether there is nothing in it at all: likely it is a mount point, and not mounted."""
        return not (self.totals.entries or len(self.directories) > 1 or self.skipped)


def scan_tree(
    source_fd: int,
    *,
    processes: int,
    threads: int = 1,
    from_server: bool = False,
    served: bool = False,
    gentle: bool = False,
    on_tick: Callable[[int], None] | None = None,
    meanwhile: Iterator[object] | None = None,
) -> Scan:
    """Scan the tree below ``source_fd``; ``on_tick`` is told how many entries were seen so far.

    ``meanwhile`` is drawn from while workers scan, see ``Pool.run``. Of the ``threads`` of a
    process one is at work as long as memory answers: more would only wait for each other there.
    A source that is not ``from_server`` is ``served`` where a part of it is, which may cease to
    answer.
    A directory that cannot be read is noted in ``skipped`` and ``unreadable``, not raised.
    """
    encrypts = may_hold_locked(source_fd)
    job = Job(source_fd, from_server=from_server or served, encrypts=encrypts, gentle=gentle)
    found = _Found(from_server=from_server)
    found.scan.directories[""] = entry_of("", os.fstat(source_fd))
    # Not of a server: while it does not answer, this process could not be interrupted.
    slow = not job.from_server and _scan_here(found, job)
    if found.pending or found.large:
        with Pool(job, processes=processes, threads=threads) as pool:
            pool.readers = None if slow else processes
            workers = _Workers(pool, found, processes * threads)
            workers.submit()
            pool.run(
                on_tick=lambda: on_tick(found.entries) if on_tick else None, meanwhile=meanwhile
            )
    return found.all()


def _scan_here(found: _Found, job: Job) -> bool:
    """Scan what there is no need of workers for; return whether it answers slowly."""
    slow = False
    local, started = Worker(job, None, share_descriptors(1)), monotonic()
    try:
        for done in range(_INLINE_DIRECTORIES):
            enough = done + len(found.pending) > _INLINE_DIRECTORIES or found.seen > _INLINE_ENTRIES
            if enough or slow or not found.pending:
                break
            found.take(local.do("scan", [found.pending.popleft()]))
            slow = is_slow(monotonic() - started, found.seen)
    finally:
        local.close()
    return slow


class _Workers:
    """Hands to a pool's workers what is to be looked at, and takes what they found.

    Where that is slow to come, all ``threads`` of the pool are put to work.
    """

    def __init__(self, pool: Pool, found: _Found, threads: int) -> None:
        self._pool = pool
        self._found = found
        self._threads = threads
        self._first: tuple[float, int] | None = None  # when they first answered, seen by then
        self._names_a_task = _NAMES_A_SLOW_TASK
        self._tasks = 0  # that look at a large directory
        self._look_seconds, self._looks = 0.0, 0

    def submit(self) -> None:
        """Have them look at what is pending."""
        pending, large = self._found.pending, self._found.large
        workers = max(1, self._pool.readers or self._threads)
        count = min(max(1, len(pending) // (workers * 4)), _MOST_DIRECTORIES_A_TASK)
        while pending:
            group = [pending.popleft() for _ in range(min(count, len(pending)))]
            self._pool.submit("scan", group, self._on_listed)
        while large and self._tasks < 2 * workers:
            self._tasks += 1
            number, names = large[0].give(self._names_a_task)
            on_result = partial(self._on_looked_up, large[0], number)
            self._pool.submit("look up", (large[0].directory, names), on_result)
            if not large[0].left:
                large.popleft()

    def _on_listed(self, results: list[Listed]) -> None:
        found = self._found
        found.take(results)
        now = monotonic()
        self._first = first = self._first or (now, found.seen)
        if is_slow(now - first[0], found.seen - first[1]):
            self._pool.readers = None
        self.submit()

    def _on_looked_up(
        self, folder: _Large, number: int, result: tuple[float, tuple[Any, ...]]
    ) -> None:
        seconds, there = result
        self._tasks -= 1
        self._look_seconds += seconds
        self._looks += self._found.take_part(folder, number, there)
        # Judged by all looks so far: one that waited for a busy processor is no slow source.
        self._names_a_task = _NAMES_A_TASK
        if is_slow(self._look_seconds, self._looks):
            self._names_a_task = _NAMES_A_SLOW_TASK
            if self._look_seconds > _LEAST_WAIT_SECONDS:
                self._pool.readers = None
        self.submit()


class _Found:
    """What was found so far, and what is to be looked at.

    That is directories ``pending`` and names in ``large`` ones. ``seen`` counts names listed and
    ``entries`` looked at.
    """

    def __init__(self, *, from_server: bool) -> None:
        self.scan = Scan()
        self._from_server = from_server
        self.pending = deque([""])
        self.large: deque[_Large] = deque()
        self.seen = 0
        self.entries = 0  # looked at, of those that the totals count

    def all(self) -> Scan:
        """Return the scan, once nothing is left to be looked at."""
        self.scan.totals = _totals(self.scan)
        return self.scan

    def take(self, results: list[Listed]) -> None:
        """Take what a worker found in directories."""
        for directory, there, names in results:
            self._look_at(there)
            self.seen += len(names)
            if names:
                self.large.append(_Large(directory, there, names))
            else:
                self.pending.extend(self._add(directory, there))

    def take_part(self, folder: _Large, number: int, there: tuple[Any, ...]) -> int:
        """Take what a worker found of some names, and return how many entries that are."""
        count = self._look_at(there)
        folder.take(number, there)
        if folder.is_complete:
            self.pending.extend(self._add(folder.directory, folder.there()))
        return count

    def _look_at(self, there: tuple[Any, ...]) -> int:
        """Count what was looked at, and return how many entries that are, special ones too."""
        subdirectories, specials, singles, batches, _ = there
        count = len(subdirectories) + len(specials) + len(singles)
        for batch in batches:
            count += batch[0]
        self.seen += count
        self.entries += count - len(specials)
        return count

    def _add(self, directory: str, there: tuple[Any, ...]) -> list[str]:
        """Add what workers found in a directory, and return the paths of its subdirectories."""
        scan = self.scan
        subdirectories, specials, singles, batches, error = there
        if error is not None:
            self._leave_out(directory, error)
            return []
        for name, mode in specials:
            scan.skipped.append(Skipped(join(directory, name), describe_special(mode)))
        found = []
        for item in subdirectories:
            entry = Entry._make(item)
            path = join(directory, entry.name)
            # A server numbers its directories as it likes.
            if not self._from_server and _is_snapshots_gap(entry):
                entry = entry._replace(mtime_ns=scan.directories[directory].mtime_ns)
                scan.skipped.append(Skipped(path, _GAP))
            scan.directories[path] = entry
            if len(path) > _LONGEST_PATH:
                self._leave_out(path, _TOO_DEEP)
            else:
                found.append(path)
        packed = tuple([Batch(directory, *batch) for batch in batches])
        alone = tuple([Entry._make(item) for item in singles])
        scan.listings.append(Listing(directory, packed, alone))
        return found

    def _leave_out(self, directory: str, reason: str) -> None:
        self.scan.skipped.append(Skipped(directory or ".", reason, failed=True))
        self.scan.unreadable.add(directory)


class _Large:
    """A directory at whose entries several workers look, each at some ``names`` at a time."""

    def __init__(self, directory: str, first: tuple[Any, ...], names: list[str]) -> None:
        self.directory = directory
        names.reverse()  # given out from the end, and kept no longer
        self._names = names
        self._parts: list[tuple[Any, ...] | None] = [first]
        self._out = 0  # of the parts, those that were given and not taken

    @property
    def left(self) -> bool:
        """Whether there are names that nobody has been given."""
        return bool(self._names)

    @property
    def is_complete(self) -> bool:
        """Whether all has been looked at."""
        return not self._names and not self._out

    def give(self, most: int) -> tuple[int, list[str]]:
        """Return the next names, and by which number to ``take`` what was found of them."""
        names = self._names[: -most - 1 : -1]
        del self._names[-most:]
        self._parts.append(None)
        self._out += 1
        return len(self._parts) - 1, names

    def take(self, number: int, there: tuple[Any, ...]) -> None:
        """Take what was found of the names with that number."""
        self._parts[number] = there
        self._out -= 1

    def there(self) -> tuple[Any, ...]:
        """Return what was found at first and of all names, in their order."""
        parts = [part for part in self._parts if part is not None]
        kinds = (list(chain.from_iterable(part[kind] for part in parts)) for kind in range(4))
        return *kinds, next((part[4] for part in parts if part[4] is not None), None)


def _is_snapshots_gap(entry: Entry) -> bool:
    """Whether it is what a snapshot of Btrfs shows in the place of a subvolume of the original.

    Its time is that of each look: no copy would ever be up to date.
    """
    return (entry.ino, entry.nlink, entry.size) == (_GAP_INODE, 1, 0)


def _totals(scan: Scan) -> Totals:
    files = size_bytes = space_bytes = hole_bytes = 0
    for _, batches, singles in scan.listings:
        for batch in batches:
            files += batch.files
            size_bytes += batch.size_bytes
            space_bytes += batch.space_bytes
            hole_bytes += batch.hole_bytes
        for entry in singles:
            files += 1
            size_bytes += entry.size
            space_bytes += space_on_target(entry)
            hole_bytes += entry.hole_bytes
    entries = files + len(scan.directories) - 1
    return Totals(files, size_bytes, space_bytes, entries, hole_bytes)
