"""Who may read the names of entries that are on record: root's are for all users, but for these.

Any user asks whether a data set is there and whole. But a folder may be closed to some, and what
tells of what is in it must be closed to them too. So the files with names are root's alone while a
run is at work or was cut short, when nobody else needs them, and from its end on they are for those
who may list every folder with something in it. A user's own records are as the umask has them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from hostprep.system.accounts import has_acl
from hostprep.system.own_files import give_to_group


class Readers(NamedTuple):
    """Who may read a file of root's: its ``mode``, and its group where that matters."""

    mode: int
    gid: int | None = None


ALL = Readers(0o644)
ROOT = Readers(0o600)
# Of a user's own files; the umask takes from it.
_AS_EVER = Readers(0o666)
LIST = 0o5
PASS = 0o1


def who_may(bits: int, mode: int, gid: int) -> Readers:
    """Return who may do what ``bits`` say with a folder; its owner alone counts as nobody.

    Where an ACL says more than its mode, ask for nobody.
    """
    group = mode >> 3 & bits == bits
    if group and mode & bits == bits:
        return ALL
    return Readers(0o640, gid) if group else ROOT


def who_may_here(bits: int, place: str | int) -> Readers:
    """Return the same of a folder that is there, by its path or open, with its ACL.

    Raises ``OSError`` where it is not.
    """
    status = os.stat(place)
    return ROOT if has_acl(place) else who_may(bits, status.st_mode, status.st_gid)


def common(some: Readers, others: Readers) -> Readers:
    """Return who is among both."""
    if ALL in (some, others):
        return some if others == ALL else others
    return some if some == others else ROOT


def as_kept(record_folder: Path, wanted: Readers) -> Readers:
    """Return how a file with names is made: for ``wanted``, where the records are root's."""
    return wanted if are_roots(record_folder) else _AS_EVER


def are_roots(record_folder: Path) -> bool:
    """Whether the records that a folder is of are root's own, and not a user's by ``sudo``."""
    return os.geteuid() == 0 and os.stat(record_folder.parents[1]).st_uid == 0


def readers_of(path: Path) -> Readers:
    """Return who may read a file; nobody but root, where it is not there."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ROOT
    mode = stat.S_IMODE(status.st_mode) & 0o666
    return Readers(mode, status.st_gid if mode & 0o044 == 0o040 else None)


def let_read(path: Path, readers: Readers) -> None:
    """Give a file that is there to other readers."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, readers.mode if readers.gid is None else ROOT.mode)
        if readers.gid is not None:
            give_to_group(descriptor, readers.gid, readers.mode)
    finally:
        os.close(descriptor)
