"""Identifies a file system apart from its mount point, where another may be mounted tomorrow."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from hostprep.host.block import PathStorage, is_remote
from hostprep.host.boot import boot_id
from hostprep.system.descriptors import closing_fd

# _IOR(0x15, 0, struct fsuuid2), since Linux 6.9: a length in one byte, and up to 16 of a UUID.
_FS_IOC_GETFSUUID = 0x80111500
_ANSWER = struct.Struct("B16s")
# File systems without a device of their own, which get a new number with each mount.
_NO_DEVICE = "0:"


def file_system_id(storage: PathStorage, root: Path = Path("/")) -> str | None:
    """Return what distinguishes the file system of a path from others, None if nothing does.

    That is its UUID. If the kernel does not give one, it is a disk's number in this boot together
    with statfs(2)'s identity; for a server's directory, it is the name, and for FUSE there is none.
    """
    mount = storage.mount
    if is_remote(mount):
        # A program that serves files may be restarted for other files, under the same name.
        return None if mount.fstype.startswith("fuse") else f"{mount.fstype} {mount.source}"
    uuid = _uuid(storage.path)
    if uuid is not None:
        return f"uuid {uuid}"
    boot = boot_id(root)
    if not boot or mount.device.startswith(_NO_DEVICE):
        return None
    try:
        identity = os.statvfs(storage.path).f_fsid
    except OSError:
        return None
    return f"boot {boot} device {mount.device} {identity:x}"


def surely_another(one: str | None, other: str | None) -> bool:
    """Return whether two identities belong to two different file systems.

    A UUID cannot be compared with a server's directory, nor a disk's number in this boot with one
    in another.
    """
    if one is None or other is None:
        return False
    return one != other and _realm(one) == _realm(other)


def _realm(identity: str) -> list[str]:
    """Return the scope in which an identity is unique: its type, and the boot if that matters."""
    words = identity.split()
    return words[:2] if words[0] == "boot" else words[:1]


def _uuid(path: str) -> str | None:
    try:
        with closing_fd(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as descriptor:
            answer = fcntl.ioctl(descriptor, _FS_IOC_GETFSUUID, bytes(_ANSWER.size))
    except OSError:  # cannot be opened; an older kernel, or a file system without one
        return None
    length, uuid = _ANSWER.unpack(answer)
    known: bytes = uuid[:length]
    return known.hex() if any(known) else None
