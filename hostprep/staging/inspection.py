"""Compares a staged data set, or its source, with the manifest, as far as the given time allows.

This plans and changes nothing: ``update`` decides what a run would do, this only counts what
differs. Directories are visited in random order, and a large one in parts from a random start, so
that runs that do not finish see different ones each time.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import field

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.staging.checking import check_published
from hostprep.staging.model import Entry, Recorded, kind_of
from hostprep.staging.observer import Silent
from hostprep.staging.publishing.published import open_published
from hostprep.staging.record.damage import DamagedManifest, has_lost
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.record.records import Record, manifest_of
from hostprep.staging.source.opening import open_source
from hostprep.staging.tree import entry_at
from hostprep.system.descriptors import closing_fd
from hostprep.system.own_directory import is_own
from hostprep.system.trees import DIRECTORY_FLAGS, DirCache, join, names_in

_MOST_NAMED = 3
_FILES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Inspected:
    """What a comparison by lstat found, in entries (files, links, directories).

    ``compared`` of the ``known`` entries on record were looked at; ``whole`` says whether that was
    all. ``changed``, ``missing`` and ``added`` are relative to the record; ``examples`` are some of
    each, as (one of these words, path).
    """

    known: int
    compared: int
    whole: bool
    changed: int
    missing: int
    added: int
    examples: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ReadThrough:
    """What reading the staged files found; ``wrong`` are paths with what is wrong with them.

    Files that were staged without a hash are left out. ``whole``: there was time for all of them.
    """

    files: int
    bytes: int
    whole: bool
    wrong: tuple[tuple[str, str], ...]


def inspect_target(record: Record, *, seconds: float) -> Inspected:
    """Compare the target with the manifest.

    Raises ``HostprepError`` or ``OSError`` if there is nothing, ``DamagedManifest`` if the manifest
    is incomplete.
    """
    with _opened_target(record) as descriptor:
        return _inspect(descriptor, record, Recorded.present_as, frozenset(), seconds)


def inspect_source(record: Record, *, seconds: float) -> Inspected:
    """Compare the source, as it is now, with the manifest; what could not be staged is left out.

    A folder only has to exist: its time changes with every temporary file in it.
    Raises as ``open_source`` does, ``OSError`` if it cannot be read further on, and
    ``DamagedManifest`` if the manifest is incomplete.
    """
    with open_source(record.source) as descriptor:
        skipped = frozenset(item.path for item in record.skipped)
        return _inspect(descriptor, record, _still, skipped, seconds)


def read_through(record: Record, *, seconds: float, processes: int) -> ReadThrough:
    """Read the staged files with ``processes`` and compare their hashes with the manifest's.

    After ``seconds`` no further file is begun. Raises as ``inspect_target`` does.
    """
    through, on_record = True, 0

    def pieces() -> Iterator[tuple[str, list[Recorded]]]:
        nonlocal through, on_record
        for directory in _shuffled(index.directories()):
            for known in index.parts(directory):
                records = list(known.values())
                on_record += len(records)
                for start in range(0, len(records), _FILES_AT_ONCE):
                    if time.monotonic() > deadline:
                        through = False
                        return
                    yield directory, records[start : start + _FILES_AT_ONCE]

    counter = _Counter()
    with _opened_target(record) as descriptor, closing(_manifest(record)) as index:
        deadline = time.monotonic() + seconds
        wrong = check_published(descriptor, pieces(), processes, counter)
    if through:
        _check_complete(record, on_record)
    return ReadThrough(counter.files, counter.bytes, through, tuple(wrong))


def _still(recorded: Recorded, entry: Entry) -> bool:
    return recorded.same_as(entry) or (recorded.kind == "d" and kind_of(entry.mode) == "d")


class _Counter(Silent):
    def __init__(self) -> None:
        self.files = self.bytes = 0

    def progress(self, files: int, size_bytes: int) -> None:
        self.files, self.bytes = files, size_bytes


def _inspect(
    root_fd: int,
    record: Record,
    stands: Callable[[Recorded, Entry], bool],
    left_out: frozenset[str],
    seconds: float,
) -> Inspected:
    with closing(_manifest(record)) as index, DirCache(root_fd) as cache:
        directories = _shuffled(index.directories())
        tally = _Tally(deadline=time.monotonic() + seconds)
        for directory in directories:
            descriptor: int | None = None
            with suppress(FileNotFoundError, NotADirectoryError):
                descriptor = cache.fd(directory)
            names: set[str] = set()
            for known in index.parts(directory, random.random()):
                tally.on_record += len(known)
                names.update(known)
                tally.compare(directory, descriptor, known, stands)
                if tally.late:
                    break
            if tally.late:
                break
            if descriptor is not None:
                tally.look_for_more(directory, descriptor, names, left_out)
    if not tally.late:
        _check_complete(record, tally.on_record)
    return Inspected(
        known=record.entries,
        compared=tally.compared,
        whole=not tally.late,
        changed=tally.changed,
        missing=tally.missing,
        added=tally.added,
        examples=tuple(tally.examples),
    )


@dataclass(slots=True)
class _Tally:
    """What was found so far; ``late`` once the time is up and something is left."""

    deadline: float
    on_record: int = 0
    compared: int = 0
    changed: int = 0
    missing: int = 0
    added: int = 0
    late: bool = False
    examples: list[tuple[str, str]] = field(default_factory=list)

    def compare(
        self,
        directory: str,
        descriptor: int | None,
        known: Mapping[str, Recorded],
        stands: Callable[[Recorded, Entry], bool],
    ) -> None:
        """Look at each of a directory's recorded entries until the time is up.

        Without a ``descriptor`` the directory is gone, with all that was in it.
        """
        for name, recorded in _from_anywhere(known):
            if self.compared % _FILES_AT_ONCE == 0 and self.compared and self.over():
                self.late = True
                return
            if descriptor is None:
                self.lacks(join(directory, name))
                continue
            self.compared += 1
            here = entry_at(name, descriptor)
            if here is None:
                self.lacks(join(directory, name))
            elif not stands(recorded, here):
                self.changed += 1
                self.note("changed", join(directory, name))

    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline

    def lacks(self, path: str) -> None:
        """Count an entry that is recorded but not there."""
        self.missing += 1
        self.note("missing", path)

    def note(self, what: str, path: str) -> None:
        """Keep the first few of each kind as examples."""
        if sum(kind == what for kind, _ in self.examples) < _MOST_NAMED:
            self.examples.append((what, path))

    def look_for_more(
        self,
        directory: str,
        descriptor: int,
        known: Set[str],
        left_out: frozenset[str],
    ) -> None:
        """Count what is there but not recorded.

        Except sockets, entries that could not be staged, and the files of a running probe.
        """
        for name in names_in(descriptor):
            path = join(directory, name)
            if name in known or path in left_out:
                continue
            here = entry_at(name, descriptor)
            if here is None:
                continue  # it was removed just now
            kind = kind_of(here.mode)
            if kind != "?" and not (kind == "d" and is_own(name)):
                self.added += 1
                self.note("added", path)


def _from_anywhere(known: Mapping[str, Recorded]) -> Iterator[tuple[str, Recorded]]:
    """Yield all of a directory, which may be large, from a different entry on each time."""
    items = list(known.items())
    start = random.randrange(len(items)) if items else 0
    yield from items[start:]
    yield from items[:start]


@contextmanager
def _opened_target(record: Record) -> Iterator[int]:
    parent, name = os.path.split(record.target)
    with closing_fd(os.open(parent, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)) as parent_fd:
        descriptor = open_published(parent_fd, name)
    if descriptor is None:
        raise HostprepError(f"{record.target} is not there")
    with closing_fd(descriptor):
        yield descriptor


def _manifest(record: Record) -> ManifestIndex:
    index = manifest_of(record)
    if not len(index):
        raise DamagedManifest(record, 0)
    return index


def _check_complete(record: Record, on_record: int) -> None:
    """Raise ``DamagedManifest`` if it has lost lines: the entries it lacks were not compared."""
    if has_lost(record, on_record):
        raise DamagedManifest(record, on_record)


def _shuffled(directories: Iterable[str]) -> list[str]:
    found = list(directories)
    random.shuffle(found)
    return found
