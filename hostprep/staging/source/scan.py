"""Read a source tree: every directory listed and every entry lstat-ed, by several processes.

The entries stay packed as the workers sent them, some 80 bytes each, so that a tree of millions of
files fits in memory; they are unpacked one directory at a time where somebody has to look.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import field
from time import monotonic
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.staging.batches import Batch
from hostprep.staging.model import (
    Entry,
    Skipped,
    Totals,
    describe_special,
    space_on_target,
)
from hostprep.staging.processes.pool import Pool
from hostprep.staging.processes.worker import Job, Worker
from hostprep.staging.tree import entry_of, join

# What is below both is scanned before worker processes have started.
_INLINE_DIRECTORIES = 16
_INLINE_ENTRIES = 1000
# Memory has answered for an entry in 3 us, and something else has where it took so much longer.
_SLOW_SECONDS = 20e-6
_GRACE_SECONDS = 5e-3
_MOST_DIRECTORIES_A_TASK = 64


@dataclass(frozen=True, slots=True)
class Listing:
    """One directory: its batches, and apart from them what is copied or linked one by one."""

    directory: str
    batches: tuple[Batch, ...]
    singles: tuple[Entry, ...]

    def entries(self) -> Iterator[Entry]:
        """Yield all files and symlinks of the directory."""
        for batch in self.batches:
            yield from batch.entries()
        yield from self.singles


@dataclass(slots=True)
class Scan:
    """A source tree as it was found. ``directories`` has each with its own entry, root ``""``."""

    directories: dict[str, Entry] = field(default_factory=dict)
    listings: list[Listing] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    totals: Totals = field(default_factory=Totals)


def scan_tree(
    source_fd: int,
    *,
    processes: int,
    threads: int = 1,
    by_inode: bool = False,
    gentle: bool = False,
    on_tick: Callable[[int], None] | None = None,
    meanwhile: Iterator[object] | None = None,
) -> Scan:
    """Scan the tree below ``source_fd``; ``on_tick`` is told how many entries were seen so far.

    ``meanwhile`` is drawn from while workers scan, see ``Pool.run``. Of the ``threads`` of a
    process one is at work as long as memory answers: more would only wait for each other there.
    A directory that cannot be read is noted in ``skipped`` and ``unreadable``, not raised.
    """
    scan = Scan()
    job = Job(source_fd, by_inode=by_inode, gentle=gentle)
    scan.directories[""] = entry_of("", os.fstat(source_fd))
    pending = deque([""])

    def take(results: list[tuple[Any, ...]]) -> None:
        for result in results:
            pending.extend(_add(scan, result))

    local, started = Worker(job, None), monotonic()
    slow = False
    try:
        for _ in range(_INLINE_DIRECTORIES):
            if not pending or scan.totals.entries > _INLINE_ENTRIES or slow:
                break
            take(local.do("scan", [pending.popleft()]))
            slow = is_slow(monotonic() - started, scan.totals.entries)
    finally:
        local.close()
    if not pending:
        return scan

    with Pool(job, processes=processes, threads=threads) as pool:
        pool.readers = None if slow else processes
        first: tuple[float, int] | None = None  # when the first answer came, entries by then

        def submit() -> None:
            while pending:
                workers = max(1, pool.readers or processes * threads)
                count = min(max(1, len(pending) // (workers * 4)), _MOST_DIRECTORIES_A_TASK)
                group = [pending.popleft() for _ in range(min(count, len(pending)))]
                pool.submit("scan", group, go_on)

        def go_on(results: list[tuple[Any, ...]]) -> None:
            nonlocal first
            take(results)
            now, entries = monotonic(), scan.totals.entries
            first = first or (now, entries)
            if is_slow(now - first[0], entries - first[1]):
                pool.readers = None
            submit()

        submit()
        pool.run(
            on_tick=lambda: on_tick(scan.totals.entries) if on_tick else None, meanwhile=meanwhile
        )
    return scan


def is_slow(seconds: float, entries: int) -> bool:
    """Return whether it is not memory that answered for so many entries."""
    return seconds > _GRACE_SECONDS + entries * _SLOW_SECONDS


def _add(scan: Scan, result: tuple[Any, ...]) -> list[str]:
    """Add what a worker found in one directory, and return the paths of its subdirectories."""
    directory, subdirectories, specials, singles, batches, error = result
    if error is not None:
        scan.skipped.append(Skipped(directory or ".", error, failed=True))
        scan.unreadable.add(directory)
        return []
    for name, mode in specials:
        scan.skipped.append(Skipped(join(directory, name), describe_special(mode)))
    found = []
    for item in subdirectories:
        entry = Entry._make(item)
        path = join(directory, entry.name)
        scan.directories[path] = entry
        found.append(path)
    listing = Listing(
        directory,
        tuple(Batch(directory, *batch) for batch in batches),
        tuple(Entry._make(item) for item in singles),
    )
    scan.listings.append(listing)
    files = sum(batch.files for batch in listing.batches) + len(listing.singles)
    scan.totals += Totals(
        files=files,
        bytes=sum(batch.size_bytes for batch in listing.batches)
        + sum(entry.size for entry in listing.singles),
        space_bytes=sum(batch.space_bytes for batch in listing.batches)
        + sum(space_on_target(entry) for entry in listing.singles),
        entries=files + len(found),
    )
    return found
