"""ACLs as the kernel takes them, without setfacl(1) (linux/posix_acl_xattr.h), and NFS 4."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

ACCESS_ACL = "system.posix_acl_access"
_NOBODY = 0xFFFFFFFF
_ALL = 0o7


def access_acl(mode: int, *, user: int, permissions: int = 0o5) -> bytes:
    """Return an ACL that gives what ``mode`` does, and ``permissions`` to ``user``.

    Its mask lets everything through, so the file's mode will show rwx for the group.
    """
    entries = (
        (0x01, mode >> 6 & 0o7, _NOBODY),
        (0x02, permissions, user),
        (0x04, mode >> 3 & 0o7, _NOBODY),
        (0x10, _ALL, _NOBODY),
        (0x20, mode & 0o7, _NOBODY),
    )
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def nfs4_acl(*entries: tuple[int, int, int, bytes]) -> bytes:
    """Return an ACL of NFS 4 as it travels: type, flags, permissions and who of each entry."""
    data = len(entries).to_bytes(4)
    for kind, flags, permissions, who in entries:
        data += struct.pack(">IIII", kind, flags, permissions, len(who))
        data += who + bytes(-len(who) % 4)
    return data


def try_acl(path: Path, acl: bytes) -> None:
    """Set an ACL, or skip the test where the file system has none."""
    try:
        os.setxattr(path, ACCESS_ACL, acl)
    except OSError:
        pytest.skip("this file system has no ACLs")
