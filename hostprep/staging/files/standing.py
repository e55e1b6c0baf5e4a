"""Whether lstat shows a published directory, and its source, to be just as they were staged.

The fast path for the many files that have not changed. About the few others of a directory it only
says what is known of them; there ``plans.diff`` decides entry by entry, and so it does for all of a
directory in which much has changed. This runs once for each file of a data set, so it uses fields
of plain tuples: see ``model.Entry`` and ``model.Recorded`` for their order.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from itertools import chain
from stat import S_IFDIR, S_IFLNK, S_IFREG
from typing import Any, NamedTuple

from hostprep.staging.kept_times import is_kept_time
from hostprep.staging.model import Recorded
from hostprep.staging.record import digest
from hostprep.staging.record.lines import Picked, check_kinds
from hostprep.staging.tree import Plain, entry_of
from hostprep.system.kept import parse_kept
from hostprep.system.trees import DIRECTORY_FLAGS, DirCache, rewind

_BITS = {"f": S_IFREG, "l": S_IFLNK}
_TYPE = 0o170000
# If more of a directory has changed, all of it is compared entry by entry. What is known of changed
# entries is kept until their turn, in some 400 bytes each.
_MOST_CHANGED_SHARE, _MOST_CHANGED = 8, 8192
# What is recorded of an entry that lstat can show: (mode, uid, gid), size and time. The whole of
# its record would take 200 bytes more, for every file of a huge directory at once.
_Wanted = tuple[tuple[int, int, int], int, int]


def stands(
    directory: str,
    packed: Iterable[bytes],
    singles: Sequence[Plain],
    lines: Iterable[bytes],
    part: tuple[int, int],
    target: DirCache,
    *,
    verified: bool,
) -> tuple[Any, ...] | None:
    """Return what is known of a directory in which little has changed; None for any other.

    ``packed`` and ``singles`` are the source's files and symlinks, ``lines`` the manifest's. If all
    must be ``verified``, a file that was copied without a hash counts as changed. ``part`` (number,
    of how many) is the part of a large directory to look at, by names; (0, 1) is all of it.

    Returns (files, bytes, digest sum, whether some are without a hash, names of the target's
    subdirectories, records of directories, the directory's own entry, those of ``lines`` that do
    not consist of unchanged files alone: the number of the line, and the line without others, which
    may be empty; and what has changed). The last is None or, of the names that are not as recorded,
    (the source's entries, records, the target's entries); nothing else counts them.
    """
    recorded = _recorded_soundly(directory, lines, part, verified=verified)
    if recorded is None:
        return None
    changed = _not_as_in_source(recorded.known, packed, singles, part)
    if changed is None:
        return None
    there = _in_target(directory, recorded.known, part, target, changed)
    if there is None:
        return None
    apart = _apart(directory, lines, changed, recorded)
    if apart is None:
        return None
    differing = None
    if changed:
        recorded = recorded.without(apart.items, digest.terms_below(directory))
        sources = chain(singles, chain.from_iterable(map(marshal.loads, packed)))
        differing = [entry for entry in sources if entry[0] in changed], apart.items, there.changed
    return (
        recorded.files,
        recorded.size_bytes,
        digest.packed(recorded.total),
        recorded.unhashed > 0,
        there.subdirectories,
        recorded.folders,
        there.own,
        apart.mixed,
        differing,
    )


def lines_without(directory: str, lines: Iterable[bytes], names: Set[str]) -> list[bytes]:
    """Return a directory's lines without the records of ``names``."""
    picked = Picked(directory, names)
    return [left for line in lines if (left := picked.split(line)[1])]


class _Apart(NamedTuple):
    """What the lines have besides unchanged files: records of ``changed``, and see ``stands``."""

    items: list[Any]
    mixed: list[tuple[int, bytes]]


def _apart(
    directory: str, lines: Iterable[bytes], changed: Set[str], recorded: _Recorded
) -> _Apart | None:
    """Take the records of what has changed, and of directories, out of the lines.

    None if one is damaged, or a name has several.
    """
    folders = {item[0] for item in recorded.folders}
    if not (changed or folders):
        return _Apart([], [])
    picked = Picked(directory, folders | changed)
    apart = _Apart([], [])
    with suppress(ValueError, LookupError, TypeError):
        for place, line in enumerate(lines):
            if not changed and place not in recorded.mixed:
                continue
            items, left = picked.split(line)
            apart.items.extend([item for item in items if item[0] in changed])
            if left is not line:
                apart.mixed.append((place, left))
        check_kinds([Recorded(*item) for item in apart.items])
        if len({item[0] for item in apart.items}) == len(apart.items):
            return apart
    return None


def _most_changed(known: int) -> int:
    return min(known, max(1, known // _MOST_CHANGED_SHARE), _MOST_CHANGED)


class _Recorded(NamedTuple):
    """What the manifest has of a part of a directory.

    ``known`` are its files and symlinks, by name, which are so many ``files``; ``total`` is the sum
    of their digest terms, without those of ``unhashed``. ``folders`` are the records of directories
    and ``mixed`` the numbers of the lines that have them; only the first part has these.
    """

    known: dict[str, _Wanted]
    files: int
    size_bytes: int
    total: int
    unhashed: int
    folders: list[Any]
    mixed: set[int]

    def without(self, items: Iterable[Any], term_of: Callable[[str, str, str], int]) -> _Recorded:
        """Return this without the records ``items``; ``known`` stays as it is."""
        files, size_bytes, total, unhashed = self[1:5]
        for name, kind, size, _, _, _, _, content, *_ in items:
            if kind == "d":
                continue
            files -= 1
            size_bytes -= size
            if content is None:
                unhashed -= 1
            else:
                total -= term_of(kind, name, content)
        return self._replace(files=files, size_bytes=size_bytes, total=total, unhashed=unhashed)


def _recorded_soundly(
    directory: str, lines: Iterable[bytes], part: tuple[int, int], *, verified: bool
) -> _Recorded | None:
    """Return what ``_recorded`` does, and None for a damaged line, too."""
    with suppress(ValueError, LookupError, TypeError):
        return _recorded(directory, lines, part, verified=verified)
    return None


def _recorded(
    directory: str, lines: Iterable[bytes], part: tuple[int, int], *, verified: bool
) -> _Recorded | None:
    """Return what ``lines`` say of a part of a directory; None if ``stands`` cannot judge it."""
    known: dict[str, _Wanted] = {}
    attributes: dict[tuple[int, int, int], tuple[int, int, int]] = {}  # few, stored once
    folders = []
    mixed = set()
    count = size_bytes = total = unhashed = 0
    number, parts = part
    term_of = digest.terms_below(directory)
    for place, line in enumerate(lines):
        items = parse_kept(line)[1]
        files = [item for item in items if item[1] != "d"]
        if len(files) < len(items):
            folders += [item for item in items if item[1] == "d"]
            mixed.add(place)
        for name, kind, size, mtime_ns, mode, uid, gid, content, *group in files:
            # All processes that look at parts were forked from one, so they hash names alike.
            if parts > 1 and hash(name) % parts != number:
                continue
            if group and kind == "f":
                return None  # hard links have to be judged together
            if content is not None:
                total += term_of(kind, name, content)
            elif verified:
                return None
            else:
                unhashed += 1
            found = _BITS[kind] | mode, uid, gid
            known[name] = attributes.setdefault(found, found), size, mtime_ns
            size_bytes += size
            count += 1
    if len(known) != count or any(item[0] in known for item in folders):
        return None  # recorded more than once: an update was cut short, or ended
    if number:
        folders, mixed = [], set()
    return _Recorded(known, count, size_bytes, total, unhashed, folders, mixed)


def _not_as_in_source(
    known: dict[str, _Wanted],
    packed: Iterable[bytes],
    singles: Sequence[Plain],
    part: tuple[int, int],
) -> set[str] | None:
    """Return the names of files and symlinks that the source does not have as recorded.

    None if these are too many, or if it has hard links, which have to be judged together.
    """
    count = len(known)
    number, parts = part
    changed: set[str] = set()
    for entry in chain(singles, chain.from_iterable(map(marshal.loads, packed))):
        if parts > 1 and hash(entry[0]) % parts != number:
            continue
        if entry[7] > 1 and entry[1] & _TYPE == S_IFREG:
            return None
        if known.get(entry[0]) == ((entry[1], entry[4], entry[5]), entry[2], entry[3]):
            count -= 1
        else:
            changed.add(entry[0])
            if len(changed) > _most_changed(len(known)):
                return None
    if count > len(changed & known.keys()):  # some are gone
        there = {
            entry[0] for entry in chain(singles, chain.from_iterable(map(marshal.loads, packed)))
        }
        changed |= known.keys() - there
    return changed if len(changed) <= _most_changed(len(known)) else None


class _There(NamedTuple):
    """A directory on the target; ``changed`` are entries in it that are not as recorded."""

    own: Plain
    subdirectories: list[str]
    changed: list[Plain]


def _in_target(
    directory: str,
    known: dict[str, _Wanted],
    part: tuple[int, int],
    target: DirCache,
    changed: set[str],
) -> _There | None:
    """Return what is in a target directory; add the names of what has changed to ``changed``.

    None if these are too many, or if it has hard links, which have to be judged together.
    """
    subdirectories = []
    differing: list[Plain] = []
    count = len(known.keys() - changed)
    most = _most_changed(len(known))
    number, parts = part
    try:
        own: Plain = (*entry_of("", os.fstat(target.fd(directory))),)
        with _listing(directory, part, target) as listing:
            for found in listing:
                name = found.name
                if parts > 1 and hash(name) % parts != number:
                    continue
                status = found.stat(follow_symlinks=False)
                kind = status.st_mode & _TYPE
                wanted = known.get(name)
                as_in_source = wanted is not None and not (changed and name in changed)
                count -= as_in_source
                if kind == S_IFDIR:
                    subdirectories.append(name)
                    if not as_in_source and name not in changed:
                        continue
                elif kind == S_IFREG and status.st_nlink > 1:
                    return None
                elif as_in_source and _is_as(wanted, kind, status):
                    continue
                changed.add(name)
                differing.append((*entry_of(name, status),))
                if len(changed) > most:
                    return None
        if count:  # some are gone
            with _listing(directory, part, target) as listing:
                missing = known.keys() - changed - {found.name for found in listing}
            changed |= missing
            if len(missing) != count or len(changed) > most:
                return None
    except OSError:
        return None
    return _There(own, subdirectories, differing)


def _is_as(wanted: _Wanted | None, kind: int, status: os.stat_result) -> bool:
    """Return whether a target's file or symlink is as recorded."""
    if wanted is None:
        return False
    (mode, *_), size, mtime_ns = wanted
    if kind != mode & _TYPE or (kind == S_IFREG and status.st_size != size):
        return False
    return status.st_mtime_ns == mtime_ns or is_kept_time(status.st_mtime_ns, mtime_ns)


class Anew:
    """What a function yields, from its beginning each time: too much to be kept meanwhile."""

    def __init__(self, read: Callable[[], Iterable[bytes]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._read())


@contextmanager
def _listing(
    directory: str, part: tuple[int, int], target: DirCache
) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List a target directory from its beginning.

    If several processes look at parts of it, the descriptor of the root may be inherited by all of
    them and share its position in the listing, so each opens the directory anew.
    """
    descriptor = target.fd(directory)
    if part[1] == 1:
        rewind(descriptor)
        with os.scandir(descriptor) as listing:
            yield listing
        return
    descriptor = os.open(".", DIRECTORY_FLAGS, dir_fd=descriptor)
    try:
        with os.scandir(descriptor) as listing:
            yield listing
    finally:
        os.close(descriptor)
