"""Files of our own: written as a whole, for those who should read them.

``files`` replaces those of the system, which others write to as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hostprep.system.acls import ACCESS_ACL, for_reader
from hostprep.system.flushing import flush_directory

_UNWRITTEN = re.compile(r"\..+\.[0-9a-f]{8}")


def write_atomically(
    path: Path,
    parts: Iterable[bytes],
    *,
    durable: bool,
    mode: int = 0o666,
    gid: int | None = None,
    uid: int | None = None,
) -> None:
    """Write a file of our own so that a reader, or a killed run, sees the old or the new one.

    It has ``mode``, less the umask, before it has any content; rights for the group ``gid`` or the
    user ``uid`` are added only when everything is written.

    ``durable`` waits for the disk. A description of a tmpfs need not survive a power cut, because
    its data does not either; not waiting saves many milliseconds on a busy disk, but a reader has
    to treat an empty file, which a power cut may leave, as none.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, mode if gid is None and uid is None else 0o600)

    try:
        with open(temporary, "xb", buffering=1024 * 1024, opener=create) as file:
            for part in parts:
                file.write(part)
            file.flush()
            if gid is not None or uid is not None:
                give_to(file.fileno(), mode, gid, uid)
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            flush_directory(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # the error of a full disk has none
        raise


def give_to(descriptor: int, mode: int, gid: int | None, uid: int | None) -> None:
    """Give rights on an open file, so far only its owner's, to a group by ``mode``, and to a user.

    The user gets an ACL and not the file, which the user could then change. If that is impossible,
    as in a container that does not know the group, or without ACLs, the file stays as it is.
    """
    group = False
    if gid is not None:
        with suppress(OSError):
            os.fchown(descriptor, -1, gid)
            group = True
            os.fchmod(descriptor, mode)
    if uid is not None:
        with suppress(OSError):
            os.setxattr(descriptor, ACCESS_ACL, for_reader(uid, group=group))


def remove_unwritten(folder: Path) -> None:
    """Remove unfinished files that killed runs of ``write_atomically`` left in ``folder``.

    The caller holds the lock of all who write there, because files that are just being written
    would be removed too.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in filter(_UNWRITTEN.fullmatch, names):
        os.unlink(folder / name)
