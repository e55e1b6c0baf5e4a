"""Reads a source tree: lists every directory and lstats every entry, in several processes.

The entries stay packed as the workers sent them, some 80 bytes each, so that a tree of millions of
files fits in memory; they are unpacked one directory at a time when they are needed.
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
from hostprep.staging.model import Entry, Totals, space_on_target
from hostprep.staging.processes.descriptors import share_descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.pool import Pool
from hostprep.staging.processes.worker import Worker
from hostprep.staging.reasons import Skipped, describe_special
from hostprep.staging.tree import Plain, entry_of, is_slow
from hostprep.system.trees import join

# If there are fewer than both, the scan is done before worker processes would have started.
_INLINE_DIRECTORIES = 16
_INLINE_ENTRIES = 1000
_MOST_DIRECTORIES_A_TASK = 64
# How many names of a large directory a worker looks up at a time, if memory answers; and if it does
# not, or that is not known yet.
_NAMES_A_TASK = 512
_NAMES_A_SLOW_TASK = 32
# BTRFS_EMPTY_SUBVOL_DIR_OBJECTID; on other file systems, directories with this number have 2 links.
_GAP_INODE = 2
_GAP = "what is in a subvolume of its own, which the Btrfs snapshot does not hold"
# The longest path that Linux opens (PATH_MAX), in bytes, which are no fewer than the characters
# counted here. Deeper paths can be made, and each path contains all the names above it: a few
# thousand nested folders without any file would take all the memory.
_LONGEST_PATH = 4095
_TOO_DEEP = (
    f"its path is longer than {_LONGEST_PATH:,} characters, which no program opens by one name"
)
# A wait of this long in total is not just due to a busy processor.
_LEAST_WAIT_SECONDS = 0.1


class Listing(NamedTuple):
    """One directory: its batches, and separately what is copied or linked one by one."""

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
    """A source tree as found. ``directories`` has each with its own entry; the root is ``""``."""

    directories: dict[str, Entry] = field(default_factory=dict)
    listings: list[Listing] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    totals: Totals = field(default_factory=Totals)

    @property
    def holds_nothing(self) -> bool:
        """Whether it is completely empty: probably it is a mount point, and not mounted."""
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

    ``meanwhile`` is advanced while workers scan, see ``Pool.run``. As long as memory answers, only
    one of a process's ``threads`` works, because more would only wait for each other. A source that
    is not ``from_server`` is ``served`` if a part of it is, which may cease to answer.
    A directory that cannot be read is added to ``skipped`` and ``unreadable``; no error is raised.
    """
    encrypts = may_hold_locked(source_fd)
    job = Job(source_fd, from_server=from_server or served, encrypts=encrypts, gentle=gentle)
    found = _Found(from_server=from_server)
    found.scan.directories[""] = entry_of("", os.fstat(source_fd))
    # Never a server here: while it does not answer, this process could not be interrupted.
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
    """Scan what does not need workers; return whether it answers slowly."""
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
    """Gives a pool's workers what is to be looked at, and takes their results.

    If these are slow to come, all ``threads`` of the pool are put to work.
    """

    def __init__(self, pool: Pool, found: _Found, threads: int) -> None:
        self._pool = pool
        self._found = found
        self._threads = threads
        self._first: tuple[float, int] | None = None  # time of the first answers, entries seen
        self._names_a_task = _NAMES_A_SLOW_TASK
        self._tasks = 0  # number of tasks for large directories
        self._look_seconds, self._looks = 0.0, 0

    def submit(self) -> None:
        """Submit tasks for everything that is pending."""
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
        # Judged by all lookups so far: one that waited for a busy processor is not a slow source.
        self._names_a_task = _NAMES_A_TASK
        if is_slow(self._look_seconds, self._looks):
            self._names_a_task = _NAMES_A_SLOW_TASK
            if self._look_seconds > _LEAST_WAIT_SECONDS:
                self._pool.readers = None
        self.submit()


class _Found:
    """What was found so far, and what is yet to be looked at.

    The latter are the ``pending`` directories, and names in ``large`` ones. ``seen`` counts the
    names that were listed, and ``entries`` those that were looked at.
    """

    def __init__(self, *, from_server: bool) -> None:
        self.scan = Scan()
        self._from_server = from_server
        self.pending = deque([""])
        self.large: deque[_Large] = deque()
        self.seen = 0
        self.entries = 0  # looked at, and part of the totals

    def all(self) -> Scan:
        """Return the scan, once there is nothing left to look at."""
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
        """Take what a worker found for some names, and return how many entries that are."""
        count = self._look_at(there)
        folder.take(number, there)
        if folder.is_complete:
            self.pending.extend(self._add(folder.directory, folder.there()))
        return count

    def _look_at(self, there: tuple[Any, ...]) -> int:
        """Count what was looked at, and return how many entries that are, with special ones."""
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
            # A server may number its directories in any way.
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
    """A directory whose entries several workers look at, some ``names`` each at a time."""

    def __init__(self, directory: str, first: tuple[Any, ...], names: list[str]) -> None:
        self.directory = directory
        names.reverse()  # given out from the end, which frees them
        self._names = names
        self._parts: list[tuple[Any, ...] | None] = [first]
        self._out = 0  # parts that were given out but not taken back

    @property
    def left(self) -> bool:
        """Whether there are names that have not been given out."""
        return bool(self._names)

    @property
    def is_complete(self) -> bool:
        """Whether everything has been looked at."""
        return not self._names and not self._out

    def give(self, most: int) -> tuple[int, list[str]]:
        """Return the next names, and the number to ``take`` their result with."""
        names = self._names[: -most - 1 : -1]
        del self._names[-most:]
        self._parts.append(None)
        self._out += 1
        return len(self._parts) - 1, names

    def take(self, number: int, there: tuple[Any, ...]) -> None:
        """Take what was found for the names with that number."""
        self._parts[number] = there
        self._out -= 1

    def there(self) -> tuple[Any, ...]:
        """Return what was found at first and for all names, in their order."""
        parts = [part for part in self._parts if part is not None]
        kinds = (list(chain.from_iterable(part[kind] for part in parts)) for kind in range(4))
        return *kinds, next((part[4] for part in parts if part[4] is not None), None)


def _is_snapshots_gap(entry: Entry) -> bool:
    """Whether it is the placeholder that a Btrfs snapshot has for a subvolume of the original.

    Its time is always the present, so no copy would ever be up to date.
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
