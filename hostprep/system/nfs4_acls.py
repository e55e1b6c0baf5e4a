"""What an NFS 4 server's ACL denies to users whom a file's mode lets in; see nfs4_acl(5)."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Sequence

from hostprep.system.acls import of_groups, without_acl

# Its format on the wire (RFC 7530, 6.2.1): the number of entries, then each.
_NFS4_ACL = "system.nfs4_acl"
_ENTRY = struct.Struct(">IIII")  # type, flags, permissions, length of the name that follows
_ALLOW, _DENY = 0, 1
_INHERIT_ONLY, _OF_A_GROUP = 0x8, 0x40
_BITS = ((0x1, 0o4), (0x2, 0o2), (0x20, 0o1))
_SPECIAL = (b"OWNER@", b"GROUP@", b"EVERYONE@")
_FOR_THE_OWNER = of_groups(0)


def may_hide_more(names: Sequence[str], mode: int) -> bool:
    """Whether asking a server for the ACL of a file with these attributes is worthwhile.

    Not if all others may read the file as well, as most: each question takes a while.
    """
    hides = mode & 0o077 if stat.S_ISDIR(mode) else mode >> 3 & ~mode & 0o7
    return _NFS4_ACL in names and bool(hides)


def mode_over_nfs(descriptor: int, names: Sequence[str], mode: int) -> int:
    """Return an open file's ``mode`` without what an NFS 4 server's ACL denies."""
    if not may_hide_more(names, os.fstat(descriptor).st_mode):
        return mode
    acl = acl_over_nfs(descriptor)
    return mode if acl is None else without_acl(mode, acl)


def acl_over_nfs(descriptor: int) -> bytes | None:
    """Return the NFS 4 ACL of an open file as an access ACL; None if there is none.

    It is one of ``of_groups``. If it may not be read, it grants nothing to anybody but the owner.
    """
    try:
        return _translated(os.getxattr(descriptor, _NFS4_ACL))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            return _FOR_THE_OWNER
        if error.errno not in (errno.EOPNOTSUPP, errno.ENODATA):
            raise
        return None


def _translated(data: bytes) -> bytes:
    """Translate an NFS 4 ACL; if it is truncated, grant nothing to anybody but the owner."""
    entries, place = [], 4
    try:
        for _ in range(int.from_bytes(data[:4])):
            kind, flags, permissions, length = _ENTRY.unpack_from(data, place)
            place += _ENTRY.size
            name = data[place : place + length]
            place += length + -length % 4
            if place > len(data):
                return _FOR_THE_OWNER
            # A user and a group may have the same name, for instance if names are numbers.
            who = (name, name not in _SPECIAL and bool(flags & _OF_A_GROUP))
            if kind in (_ALLOW, _DENY) and not flags & _INHERIT_ONLY:
                entries.append((who, kind, permissions))
    except struct.error:
        return _FOR_THE_OWNER

    def given(*whos: tuple[bytes, bool]) -> int:
        """Return the rights of whoever is all of these: the first entry for each right decides."""
        found = 0
        for bit, permission in _BITS:
            kinds = (kind for who, kind, bits in entries if who in whos and bits & bit)
            found |= permission if next(kinds, _DENY) == _ALLOW else 0
        return found

    group, all_others = (b"GROUP@", False), (b"EVERYONE@", False)
    named = sorted({who for who, *_ in entries if who[0] not in _SPECIAL})
    owning = given(group, all_others)
    for who in named:  # any of these may be in the owning group
        owning &= given(who, group, all_others)
    return of_groups(owning, (given(all_others), *(given(who, all_others) for who in named)))
