"""Whether lstat shows a published directory, and its source, to be just as they were staged.

The fast path for the many directories in which nothing has changed. It says nothing about any other
directory; there ``plans.diff`` decides entry by entry. This runs once for each file of a data set,
so it uses fields of plain tuples: see ``model.Entry`` and ``model.Recorded`` for their order.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from stat import S_IFDIR, S_IFLNK, S_IFREG
from typing import Any, NamedTuple

from hostprep.staging.kept_times import is_kept_time
from hostprep.staging.record import digest
from hostprep.staging.record.manifest import encode_record, join_line
from hostprep.staging.tree import Plain, entry_of
from hostprep.system.kept import parse_kept
from hostprep.system.trees import DIRECTORY_FLAGS, DirCache, rewind

_BITS = {"f": S_IFREG, "l": S_IFLNK}
_TYPE = 0o170000
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
    """Return what is known of a directory in which nothing has changed; None for any other.

    ``packed`` and ``singles`` are the source's files and symlinks, ``lines`` the manifest's. If all
    must be ``verified``, a file that was copied without a hash counts as changed. ``part`` (number,
    of how many) is the part of a large directory to look at, by names; (0, 1) is all of it.

    Returns (files, bytes, digest sum, whether some are without a hash, names of the target's
    subdirectories, records of directories, the directory's own entry, and those of ``lines`` that
    have directories: the number of the line, and the line without them, which may be empty).
    """
    recorded = None
    with suppress(ValueError, LookupError, TypeError):  # a damaged line
        recorded = _recorded(directory, lines, part, verified=verified)
    if recorded is None or not _as_in_source(recorded.known, packed, singles, part):
        return None
    there = _in_target(directory, recorded.known, part, target)
    if there is None:
        return None
    own, subdirectories = there
    return (
        len(recorded.known),
        recorded.size_bytes,
        recorded.hashed,
        recorded.unverified,
        subdirectories,
        recorded.folders,
        own,
        recorded.mixed,
    )


class _Recorded(NamedTuple):
    """What the manifest has of a directory; ``known`` are its files and symlinks, by name."""

    known: dict[str, _Wanted]
    size_bytes: int
    hashed: bytes
    unverified: bool
    folders: list[Any]
    mixed: list[tuple[int, bytes]]


def _recorded(
    directory: str, lines: Iterable[bytes], part: tuple[int, int], *, verified: bool
) -> _Recorded | None:
    """Return what ``lines`` say of a part of a directory; None if ``stands`` cannot judge it."""
    known: dict[str, _Wanted] = {}
    attributes: dict[tuple[int, int, int], tuple[int, int, int]] = {}  # few, stored once
    folders = []
    mixed = []
    count = size_bytes = total = 0
    unverified = False
    number, parts = part
    term_of = digest.terms_below(directory)
    for place, line in enumerate(lines):
        items = parse_kept(line)[1]
        files = [item for item in items if item[1] != "d"]
        if len(files) < len(items) and not number:  # only the first part reports directories
            folders += [item for item in items if item[1] == "d"]
            left = join_line(directory, [encode_record(*item) for item in files])
            mixed.append((place, left if files else b""))
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
                unverified = True
            found = _BITS[kind] | mode, uid, gid
            known[name] = attributes.setdefault(found, found), size, mtime_ns
            size_bytes += size
            count += 1
    if len(known) != count:
        return None  # recorded more than once: an update was cut short, or ended
    return _Recorded(known, size_bytes, digest.packed(total), unverified, folders, mixed)


def _as_in_source(
    known: dict[str, _Wanted],
    packed: Iterable[bytes],
    singles: Sequence[Plain],
    part: tuple[int, int],
) -> bool:
    """Return whether the source has just these files and symlinks, each of them as recorded."""
    count = len(known)
    number, parts = part
    for entry in chain(singles, chain.from_iterable(map(marshal.loads, packed))):
        if parts > 1 and hash(entry[0]) % parts != number:
            continue
        if known.get(entry[0]) != ((entry[1], entry[4], entry[5]), entry[2], entry[3]):
            return False
        if entry[7] > 1 and entry[1] & _TYPE == S_IFREG:
            return False  # hard links have to be judged together
        count -= 1
    return not count


def _in_target(
    directory: str, known: dict[str, _Wanted], part: tuple[int, int], target: DirCache
) -> tuple[Plain, list[str]] | None:
    """Return a target directory's own entry and its subdirectories; None if it has changed."""
    subdirectories = []
    count = len(known)
    number, parts = part
    try:
        own: Plain = (*entry_of("", os.fstat(target.fd(directory))),)
        with _listing(directory, part, target) as listing:
            for found in listing:
                if parts > 1 and hash(found.name) % parts != number:
                    continue
                status = found.stat(follow_symlinks=False)
                kind = status.st_mode & _TYPE
                if kind == S_IFDIR:
                    subdirectories.append(found.name)
                    continue
                wanted = known.get(found.name)
                if wanted is None:
                    return None
                (mode, *_), size, mtime_ns = wanted
                if kind != mode & _TYPE:
                    return None
                if kind == S_IFREG and (status.st_size != size or status.st_nlink > 1):
                    return None
                if status.st_mtime_ns != mtime_ns and not is_kept_time(
                    status.st_mtime_ns, mtime_ns
                ):
                    return None
                count -= 1
    except OSError:
        return None
    return None if count else (own, subdirectories)


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
