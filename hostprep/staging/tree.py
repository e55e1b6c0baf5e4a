"""The contents of a data set's directory, read by descriptor; ``system.trees`` opens it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from operator import itemgetter
from time import monotonic

from hostprep.staging.model import Entry
from hostprep.system.trees import DirCache, join, opened_anew, rewind

# Memory answers for an entry in 3 us; something that takes this much longer is not memory.
_SLOW_SECONDS = 20e-6
_GRACE_SECONDS = 5e-3
_MOST_AGAIN = 1000


def staged_mode(mode: int) -> int:
    """Return the mode for a copied directory whose source has ``mode``.

    Ordinary users keep access to their own directories; otherwise they could not look at, update or
    remove the contents.
    """
    return mode if os.geteuid() == 0 else mode | 0o500


# The fields of an ``Entry`` in the form sent between processes.
Plain = tuple[str, int, int, int, int, int, int, int, int, int]
_INODE = itemgetter(8)


def says_absent(error: OSError) -> bool:
    """Whether something does not exist, or is closed to a user who is not root."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return os.geteuid() != 0
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def entries_in(descriptor: int) -> Iterator[Plain]:
    """Yield the entries of a directory as plain tuples in the order of ``Entry``.

    An entry that vanishes between the listing and its lstat is left out.
    """
    with opened_anew(descriptor) as own, os.scandir(own) as listing:
        yield from _look_at(listing)


def list_if_few(descriptor: int, most: int, *, from_server: bool) -> tuple[list[Plain], list[str]]:
    """Return a directory's entries, or only the names if there are more than ``most``.

    Both are in the order of inodes, which mostly is that of the disk, while ext4 lists names in the
    order of their hashes. Sorting costs 0.2 us per entry and lets a single reader sweep over a
    directory once, even if nobody knows that the disk has an arm. A listing ``from_server`` may
    bring the entries' attributes along (READDIRPLUS of NFS and FUSE), which the kernel requests
    only as long as they are looked up in between. So they are looked up as they come, however many
    there are, until a lookup takes long; the rest is returned as names.
    """
    rewind(descriptor)
    with os.scandir(descriptor) as listing:
        items: Iterator[os.DirEntry[str]] = _each_once(listing) if from_server else listing
        entries = _look_while_prompt(items) if from_server else []
        rest = sorted(items, key=os.DirEntry.inode)
    if len(entries) + len(rest) <= most:
        entries.extend(_look_at(rest))
        rest = []
    if from_server:
        entries.sort(key=_INODE)
    return entries, [item.name for item in rest]


def look_up(descriptor: int, names: Iterable[str]) -> list[Plain]:
    """Return a directory's entries with these ``names``, as ``entries_in`` yields them."""
    entries = []
    for name in names:
        try:
            entries.append(_plain(name, os.lstat(name, dir_fd=descriptor)))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _of_entry(name, error) from None
    return entries


def is_slow(seconds: float, entries: int) -> bool:
    """Return whether something slower than memory answered for this many entries."""
    return seconds > _GRACE_SECONDS + entries * _SLOW_SECONDS


def _each_once(items: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    """Yield what a server lists, without names that it repeats.

    NFS may repeat names if the directory changes meanwhile; each would count twice in the digest.
    If the whole listing comes again and again, as from servers that lose their place, raise
    OSError.
    """
    told: set[str] = set()
    again = 0
    for item in items:
        if item.name not in told:
            told.add(item.name)
            yield item
        elif (again := again + 1) > _MOST_AGAIN + 2 * len(told):
            raise OSError(errno.ELOOP, "its listing begins anew again and again")


def _look_while_prompt(items: Iterator[os.DirEntry[str]]) -> list[Plain]:
    """Return the entries of ``items`` up to the one at which lookups became slow."""
    entries: list[Plain] = []
    seconds = 0.0  # of the lookups only: reading on in the listing does not count
    for item in items:
        started = monotonic()
        entries.extend(_look_at([item]))
        seconds += monotonic() - started
        if is_slow(seconds, len(entries)):
            break
    return entries


def _look_at(items: Iterable[os.DirEntry[str]]) -> Iterator[Plain]:
    for item in items:
        try:
            entry = _plain(item.name, item.stat(follow_symlinks=False))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _of_entry(item.name, error) from None
        yield entry


def _of_entry(name: str, error: OSError) -> OSError:
    """Turn a directory's error into one that names the entry it is about."""
    if error.errno == errno.EACCES and os.geteuid() != 0:  # the directory is closed to us
        return error
    return OSError(error.errno, f"{name!r} in it: {error.strerror}")


def entry_of(name: str, st: os.stat_result) -> Entry:
    """Return the entry that an ``os.stat_result`` describes."""
    return Entry._make(_plain(name, st))


def entry_at(name: str, directory_fd: int) -> Entry | None:
    """Return the entry of a name in an open directory, None if there is none. Raises OSError."""
    try:
        return entry_of(name, os.stat(name, dir_fd=directory_fd, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _plain(name: str, st: os.stat_result) -> Plain:
    return (
        name,
        st.st_mode,
        st.st_size,
        st.st_mtime_ns,
        st.st_uid,
        st.st_gid,
        st.st_blocks,
        st.st_nlink,
        st.st_ino,
        st.st_dev,
    )


def walk(root_fd: int, *, ours: bool = False) -> Iterator[tuple[str, Iterator[Plain]]]:
    """Yield each directory below ``root_fd`` with its entries, parents before children.

    Entries are looked up as they are drawn, and the next directory comes after them. In a tree that
    is ``ours`` alone, directories that are closed to their owner are opened. Raises OSError, with
    the directory's path as its filename, if one cannot be read.
    """
    pending = [""]

    def entries(directory: str) -> Iterator[Plain]:
        try:
            for entry in entries_in(cache.fd(directory)):
                if stat.S_ISDIR(entry[1]):
                    pending.append(join(directory, entry[0]))
                yield entry
        except OSError as error:
            raise OSError(error.errno, error.strerror, directory) from None

    with DirCache(root_fd, create=ours) as cache:
        while pending:
            directory = pending.pop()
            found = entries(directory)
            yield directory, found
            for _ in found:  # a caller that stops early may still want the subdirectories
                pass
