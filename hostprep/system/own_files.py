"""Files of our own: written as a whole, for whoever is to read them.

Those of the system, which others write to as well, ``files`` replaces.
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
    """Write a file of our own so that a reader, and a killed run, leave the old or the new one.

    It has ``mode``, less the umask, before anything is in it; where that is meant for the group
    ``gid``, or the user ``uid`` may read it too, only once all of it is written.

    ``durable`` waits for the disk. What describes a tmpfs need not outlive a power cut, which its
    data does not outlive either; it saves many milliseconds on a busy disk, and a reader has to
    take an empty file, which a power cut may leave, for none.
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
            error.filename = str(path)  # which a full disk does not tell
        raise


def give_to(descriptor: int, mode: int, gid: int | None, uid: int | None) -> None:
    """Give an open file, its owner's alone, to the group that ``mode`` is meant for, and to a user.

    The user gets an ACL and never the file, which would be the user's to change then. It stays as
    it is where that cannot be, as in a container that does not know the group, or without ACLs.
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
    """Remove what killed runs left of files that ``write_atomically`` was to write in ``folder``.

    The caller holds the lock that all who write there share: what is being written would go too.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in filter(_UNWRITTEN.fullmatch, names):
        os.unlink(folder / name)
