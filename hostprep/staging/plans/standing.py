"""Which directories are as they were staged, all but a little: asked of several processes."""

from __future__ import annotations

import marshal
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from time import monotonic
from typing import Any, NamedTuple

from hostprep.dataclass import dataclass
from hostprep.staging.files.standing import lines_without
from hostprep.staging.model import Entry, Recorded
from hostprep.staging.processes.job import Job, Large
from hostprep.staging.processes.pool import OnResult, Pool
from hostprep.staging.record import digest
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.source.scan import Listing, Scan
from hostprep.staging.tree import Plain, is_slow

# Fewer files are compared before worker processes would have started.
_LEAST_FILES = 2000
_TASK_FILES = 1000
_TASK_DIRECTORIES = 64
# The most parts into which a directory larger than one worker's share is split. For each part,
# everything known about the directory is read, which takes most of the time and memory.
_MOST_PARTS = 4


@dataclass(frozen=True, slots=True)
class Lookers:
    """How to look at a target: with ``processes``, and ``threads`` in each if it is slow."""

    processes: int = 0
    threads: int = 1
    gentle: bool = False


class Looked(NamedTuple):
    """What was seen of the parts of a directory where little changed, and its lines if at hand.

    Packed: for millions of directories that takes a fifth of the memory of objects.
    """

    parts: tuple[bytes, ...]
    lines: tuple[bytes, ...] | None = None


class Differing(NamedTuple):
    """What a directory has under the names that are not as recorded; empty if all are."""

    source: Sequence[Entry] = ()
    recorded: Sequence[Recorded] = ()
    published: Sequence[Entry] = ()


_NOTHING = Differing()


class Standing(NamedTuple):
    """A directory in which nothing has changed, in source or target, except what is ``differing``.

    ``lines`` are the manifest's lines of its files and symlinks. There are ``files`` of them with
    ``size_bytes``, and ``total`` is the sum of their digest terms, without those that have no hash,
    which make it ``unverified``. ``subdirectories`` are names on the target, ``directories`` the
    records of directories, and ``own`` is its own entry.
    """

    lines: Sequence[bytes]
    files: int
    size_bytes: int
    total: int
    unverified: bool
    subdirectories: Sequence[str]
    directories: tuple[Recorded, ...]
    own: Entry
    differing: Differing = _NOTHING


def find_standing(
    scan: Scan,
    manifest: ManifestIndex,
    published_fd: int,
    lookers: Lookers,
    *,
    verified: bool,
    on_files: Callable[[int], None],
) -> dict[str, Looked]:
    """Return the directories of ``scan`` in which lstat shows few changes, for ``as_standing``.

    ``on_files`` is told how many more files in such directories are unchanged. If there are few
    files, nothing is looked at. Directories that are not returned may be unchanged all the same.
    """
    if not lookers.processes or scan.totals.files < _LEAST_FILES:
        return {}
    few, large = _shares(scan, manifest, lookers.processes)
    job = Job(
        published_fd,
        published_fd,
        gentle=lookers.gentle,
        looks_only=True,
        large=[share.known for share in large],
    )
    with Pool(job, processes=lookers.processes, threads=lookers.threads) as pool:
        pool.readers = lookers.processes
        answers = _Answers(pool, on_files)
        pool.run(_tasks(few, large, manifest, answers, verified=verified))
    return answers.standing()


class _Share(NamedTuple):
    """A directory with so many ``files`` that it is looked at in ``parts``."""

    known: Large
    files: int
    parts: int


def _shares(
    scan: Scan, manifest: ManifestIndex, processes: int
) -> tuple[list[Listing], list[_Share]]:
    """Return which directories to look at as a whole, and which in parts."""
    few: list[Listing] = []
    large: list[_Share] = []
    for listing in scan.listings:
        files = listing.files
        share = math.ceil(files * processes / scan.totals.files)
        parts = min(share, _MOST_PARTS, files // _TASK_FILES)
        if parts > 1:
            lines = partial(manifest.lines, listing.directory)
            large.append(_Share((*_source_of(listing), lines), files, parts))
        else:
            few.append(listing)
    return few, large


def _source_of(listing: Listing) -> tuple[str, list[bytes], list[Plain]]:
    packed = [batch.packed for batch in listing.batches]
    return listing.directory, packed, [(*entry,) for entry in listing.singles]


def _tasks(
    few: Sequence[Listing],
    large: Sequence[_Share],
    manifest: ManifestIndex,
    answers: _Answers,
    *,
    verified: bool,
) -> Iterator[tuple[str, Any, OnResult]]:
    """Yield a task for each part of a ``large`` directory, and for some of the others together."""
    for number, (known, files, parts) in enumerate(large):
        for part in range(parts):
            on_result = partial(answers.take, [known], files // parts)
            yield "standing part", (verified, number, (part, parts)), on_result
    group: list[tuple[Any, ...]] = []
    files = 0
    for listing in few:
        group.append((*_source_of(listing), tuple(manifest.lines(listing.directory))))
        files += listing.files
        if files >= _TASK_FILES or len(group) >= _TASK_DIRECTORIES:
            yield "standing", (verified, group), partial(answers.take, group, files)
            group, files = [], 0
    if group:
        yield "standing", (verified, group), partial(answers.take, group, files)


class _Answers:
    """What the workers have seen so far."""

    def __init__(self, pool: Pool, on_files: Callable[[int], None]) -> None:
        self._pool = pool
        self._on_files = on_files
        self._found: dict[str, Looked] = {}
        self._changed: set[str] = set()
        self._first: float | None = None  # when the first answer came
        self._seen = 0  # files, since then

    def take(
        self,
        asked: Sequence[tuple[Any, ...]],
        files: int,
        results: list[tuple[int, bytes, list[tuple[int, bytes]]] | None],
    ) -> None:
        """Take a worker's answer about the directories that it was asked for."""
        self._on_files(sum(result[0] for result in results if result is not None))
        if self._first is None:
            self._first = monotonic()
        else:
            self._seen += files
            if is_slow(monotonic() - self._first, self._seen):
                self._pool.readers = None  # all threads: it can answer many at once
        for known, result in zip(asked, results, strict=True):
            directory, lines = known[0], known[3]
            if result is None:
                self._changed.add(directory)
            elif callable(lines):  # it is one of several parts
                before = self._found.get(directory, Looked(()))
                self._found[directory] = Looked((*before.parts, result[1]))
            else:
                self._found[directory] = Looked((result[1],), _replaced(lines, result[2]))

    def standing(self) -> dict[str, Looked]:
        """Return the directories of which all parts are unchanged, once all were looked at."""
        for directory in self._changed:
            self._found.pop(directory, None)
        return self._found


def as_standing(directory: str, looked: Looked, manifest: ManifestIndex) -> Standing:
    """Return what is known of a directory in which little has changed."""
    first, *others = map(marshal.loads, looked.parts)
    files, size_bytes, hashed, unverified, below, folders, own, mixed, _ = first
    total = digest.unpacked(hashed)
    for more in others:
        files += more[0]
        size_bytes += more[1]
        total += digest.unpacked(more[2])
        unverified |= more[3]
        below += more[4]
        folders += more[5]
        mixed += more[7]
    lines = tuple(manifest.lines(directory)) if looked.lines is None else looked.lines
    differing = _differing([each[8] for each in (first, *others) if each[8] is not None])
    if others and any(differing):  # no part has seen what the lines have of the others
        apart = {each[0] for each in chain(folders, *differing)}
        lines = tuple(lines_without(directory, lines, apart))
    else:
        lines = _replaced(lines, mixed)
    return Standing(
        lines,
        files,
        size_bytes,
        total,
        unverified,
        below,
        tuple([Recorded(*item) for item in folders]),
        Entry._make(own),
        differing,
    )


def _replaced(lines: tuple[bytes, ...], others: list[tuple[int, bytes]]) -> tuple[bytes, ...]:
    """Return the lines with those at some places replaced, or left out if that is empty."""
    if not others:
        return lines
    by_place = dict(others)
    kept = [by_place.get(place, line) for place, line in enumerate(lines)]
    return tuple([line for line in kept if line])


def _differing(parts: Sequence[tuple[Any, ...]]) -> Differing:
    if not parts:
        return _NOTHING
    source, recorded, published = (
        [item for part in parts for item in part[side]] for side in range(3)
    )
    if len(parts) > 1:
        source.sort(key=itemgetter(Entry._fields.index("ino")))  # as it was listed
    return Differing(
        [*map(Entry._make, source)],
        [Recorded(*item) for item in recorded],
        [*map(Entry._make, published)],
    )
