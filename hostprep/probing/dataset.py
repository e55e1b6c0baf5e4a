"""The data set under a path: counts its files within a time limit, and keeps a sample of them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator

from hostprep.dataclass import dataclass
from hostprep.probing.model import DataSet

_SAMPLE_FILES = 200_000
_TELL_SECONDS = 1.0
_BLOCK_BYTES = 4096
# Sizes are read for this long even if time is short: they tell by which rate shards are judged.
_LEAST_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Found:
    """``sample`` are paths drawn evenly from all ``files`` that were counted, in random order.

    ``links`` counts symbolic links that were left out, ``mounts`` folders in which something else
    is mounted, ``closed`` folders that could not be listed.
    """

    files: int
    complete: bool
    sample: tuple[str, ...]
    links: int = 0
    mounts: int = 0
    closed: int = 0


def scan(
    path: str,
    seconds: float,
    *,
    mount_points: Iterable[str] = (),
    tell: Callable[[int], None] = lambda _: None,
) -> Found:
    """Count the regular files below ``path`` for at most ``seconds``.

    ``tell`` is given the count so far each second, so that a waiting user sees progress. Hidden
    names, symbolic links and other mounts are left out. Sizes are not read: that would bring every
    inode into memory and make the cold pass warmer than a first epoch is.
    """
    chance = random.Random()
    sample: list[str] = []
    count, complete = 0, True
    told = time.monotonic()
    deadline = told + seconds
    left = _LeftOut()
    for name in _walk(path, frozenset(mount_points), left):
        if name is None:
            now = time.monotonic()
            if now > deadline:
                complete = False
                break
            if now >= told + _TELL_SECONDS:
                told = now
                tell(count)
            continue
        count += 1
        if len(sample) < _SAMPLE_FILES:
            sample.append(name)
        elif (place := chance.randrange(count)) < _SAMPLE_FILES:
            sample[place] = name
    chance.shuffle(sample)
    return Found(count, complete, tuple(sample), left.links, left.mounts, left.closed)


@dataclass(slots=True)
class _LeftOut:
    links: int = 0
    mounts: int = 0
    closed: int = 0


def _walk(top: str, mount_points: frozenset[str], left: _LeftOut) -> Iterator[str | None]:
    """Yield the files, and None now and then so that the caller may check the time."""
    folders = [top]
    steps = 0
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except FileNotFoundError:
            continue  # gone meanwhile
        except OSError:
            left.closed += 1  # not ours to read
            continue
        yield None
        with entries:
            for entry in _readable(entries, left):
                steps += 1
                # Few steps: if a listing does not give the type of an entry, each costs a request.
                if steps % 32 == 0:
                    yield None
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.path in mount_points:
                        left.mounts += 1
                    else:
                        folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path
                elif entry.is_symlink():
                    left.links += 1


def _readable(entries: Iterator[os.DirEntry[str]], left: _LeftOut) -> Iterator[os.DirEntry[str]]:
    """Yield what can be listed: a folder may open and then refuse to be read, as some in /proc."""
    try:
        yield from entries
    except OSError:
        left.closed += 1


def measure_size(found: Found, seconds: float, *, tells_holes: bool = False) -> DataSet:
    """Return the data set with its size, if all sizes could be read within ``seconds``.

    Files that have disappeared since they were counted do not count. ``tells_holes``: the file
    system allocates blocks for all of a file's data, and for no hole.
    """
    left_out = found.links, found.mounts, found.closed
    unknown = DataSet(found.files, found.complete, None, *left_out)
    if not found.complete or found.files > len(found.sample):
        return unknown
    deadline = time.monotonic() + max(seconds, _LEAST_SECONDS)
    total = holes = gone = 0
    # Folder by folder: what lies together is looked up together.
    for path in sorted(found.sample):
        if time.monotonic() > deadline:
            return unknown
        try:
            status = os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            gone += 1
            continue
        except OSError:
            return unknown
        total += status.st_size
        hole = status.st_size - 512 * status.st_blocks
        if tells_holes and hole >= _BLOCK_BYTES:  # less than this may be stored in the inode
            holes += hole
    return DataSet(found.files - gone, True, total, *left_out, hole_bytes=holes)


def largest(found: Found, seconds: float, *, at_least_bytes: int) -> str | None:
    """Return the sample's file with the most data, of those that can be checked within ``seconds``.

    Holes contain no data, and reading them costs nothing.
    """
    deadline = time.monotonic() + seconds
    best: tuple[int, str] | None = None
    for path in found.sample:
        if time.monotonic() > deadline:
            break
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            continue
        held = min(status.st_size, 512 * status.st_blocks)
        if status.st_size >= at_least_bytes and (best is None or held > best[0]):
            best = held, path
    return best[1] if best else None
