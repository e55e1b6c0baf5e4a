"""Who may read the names of entries on record: root's are for all users, with exceptions.

Any user may ask whether a data set is there and complete. But a folder may be closed to some users,
and so must be everything that shows its contents. Therefore files with names can be read by root
only while a run is at work or was interrupted, when nobody else needs them. After the run they are
for those who may list every non-empty folder: everybody, a group, or the user who owns the closed
folders. A user's own records are as the umask has them.
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
    """Who may read a file of root's: by its ``mode``, by its group if that matters, and one user.

    ``uid`` is a user who may also read it, by an ACL.
    """

    mode: int
    gid: int | None = None
    uid: int | None = None


ALL = Readers(0o644)
ROOT = Readers(0o600)
# The mode of a user's own files, before the umask.
_AS_EVER = Readers(0o666)
# Root needs no permission; owners that a container does not know have the id of nobody there.
_NO_USERS = (0, 65534)
LIST = 0o5
PASS = 0o1


def who_may(bits: int, mode: int, uid: int, gid: int) -> Readers:
    """Return who has the rights ``bits`` on a folder with this mode, user and group."""
    group = mode >> 3 & bits == bits
    if group and mode & bits == bits:
        return ALL
    owner = mode >> 6 & bits == bits and uid not in _NO_USERS
    return _closed(gid if group else None, uid if owner else None)


def who_may_here(bits: int, place: str | int) -> Readers:
    """Return the same for an existing folder, by its path or descriptor.

    With an ACL, only the owner counts, because others may have less than the mode says. Raises
    ``OSError`` if the folder does not exist.
    """
    status = os.stat(place)
    mode = status.st_mode & 0o700 if has_acl(place) else status.st_mode
    return who_may(bits, mode, status.st_uid, status.st_gid)


def common(some: Readers, others: Readers) -> Readers:
    """Return those who are in both."""
    if ALL in (some, others):
        return some if others == ALL else others
    return _closed(
        some.gid if some.gid == others.gid else None, some.uid if some.uid == others.uid else None
    )


def _closed(gid: int | None, uid: int | None) -> Readers:
    return Readers(0o600 if gid is None else 0o640, gid, uid)


def as_kept(record_folder: Path, wanted: Readers) -> Readers:
    """Return the readers of a file with names: ``wanted``, if the records are root's."""
    return wanted if are_roots(record_folder) else _AS_EVER


def are_roots(record_folder: Path) -> bool:
    """Whether the records around a folder are root's own, and not a user's by ``sudo``."""
    return os.geteuid() == 0 and os.stat(record_folder.parents[1]).st_uid == 0


def readers_of(path: Path) -> Readers:
    """Return who may read a file; only root if it does not exist."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ROOT
    mode = stat.S_IMODE(status.st_mode) & 0o666
    if mode == 0o640 and (known := _known_acl(path)):  # its group bits are the ACL's mask
        uid, group = known
        return _closed(status.st_gid if group else None, uid)
    return Readers(mode, status.st_gid if mode & 0o044 == 0o040 else None)


def _known_acl(path: Path) -> tuple[int, bool] | None:
    try:
        return reader_in(os.getxattr(path, ACCESS_ACL))
    except OSError:
        return None  # it has none


def let_read(path: Path, readers: Readers) -> None:
    """Make an existing file readable for other readers."""
    with closing_fd(os.open(path, FILE_FLAGS)) as descriptor:
        mode, gid, uid = readers
        os.fchmod(descriptor, mode if gid is None else ROOT.mode)
        with suppress(OSError):  # it had none, or cannot have any
            os.removexattr(descriptor, ACCESS_ACL)
        give_to(descriptor, mode, gid, uid)
