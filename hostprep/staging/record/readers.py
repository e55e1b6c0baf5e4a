"""Who may read the names of entries that are on record: root's are for all users, but for these.

Any user asks whether a data set is there and whole. But a folder may be closed to some, and what
tells of what is in it must be closed to them too. So the files with names are root's alone while a
run is at work or was cut short, when nobody else needs them, and from its end on they are for those
who may list every folder with something in it: all, a group, or the user who owns what is closed.
A user's own records are as the umask has them.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hostprep.system.accounts import has_acl
from hostprep.system.acls import ACCESS_ACL, reader_in
from hostprep.system.descriptors import closing_fd
from hostprep.system.own_files import give_to
from hostprep.system.trees import FILE_FLAGS


class Readers(NamedTuple):
    """Who may read a file of root's: its ``mode``, its group where that matters, and a user.

    ``uid`` is one who may read it beside those, by an ACL.
    """

    mode: int
    gid: int | None = None
    uid: int | None = None


ALL = Readers(0o644)
ROOT = Readers(0o600)
# How a user's own files are made; the umask takes from it.
_AS_EVER = Readers(0o666)
# Root needs no leave, and an owner whom a container does not know has the id of nobody there.
_NO_USERS = (0, 65534)
LIST = 0o5
PASS = 0o1


def who_may(bits: int, mode: int, uid: int, gid: int) -> Readers:
    """Return who may do what ``bits`` say with a folder of a user and a group."""
    group = mode >> 3 & bits == bits
    if group and mode & bits == bits:
        return ALL
    owner = mode >> 6 & bits == bits and uid not in _NO_USERS
    return _closed(gid if group else None, uid if owner else None)


def who_may_here(bits: int, place: str | int) -> Readers:
    """Return the same of a folder that is there, by its path or open.

    An ACL may say less than its mode, but for the owner, who alone counts then. Raises ``OSError``
    where it is not.
    """
    status = os.stat(place)
    mode = status.st_mode & 0o700 if has_acl(place) else status.st_mode
    return who_may(bits, mode, status.st_uid, status.st_gid)


def common(some: Readers, others: Readers) -> Readers:
    """Return who is among both."""
    if ALL in (some, others):
        return some if others == ALL else others
    return _closed(
        some.gid if some.gid == others.gid else None, some.uid if some.uid == others.uid else None
    )


def _closed(gid: int | None, uid: int | None) -> Readers:
    return Readers(0o600 if gid is None else 0o640, gid, uid)


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
    if mode == 0o640 and (known := _known_acl(path)):  # of which the mask is the group's bits
        uid, group = known
        return _closed(status.st_gid if group else None, uid)
    return Readers(mode, status.st_gid if mode & 0o044 == 0o040 else None)


def _known_acl(path: Path) -> tuple[int, bool] | None:
    try:
        return reader_in(os.getxattr(path, ACCESS_ACL))
    except OSError:
        return None  # it has none


def let_read(path: Path, readers: Readers) -> None:
    """Give a file that is there to other readers."""
    with closing_fd(os.open(path, FILE_FLAGS)) as descriptor:
        mode, gid, uid = readers
        os.fchmod(descriptor, mode if gid is None else ROOT.mode)
        with suppress(OSError):  # there was none, or there can be none
            os.removexattr(descriptor, ACCESS_ACL)
        give_to(descriptor, mode, gid, uid)
