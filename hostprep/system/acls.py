"""What an access ACL gives, in the place of the group bits of a mode; see acl(5)."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Sequence

# The access ACL, in the kernel's own form (linux/posix_acl_xattr.h): a version, then entries.
ACCESS_ACL = "system.posix_acl_access"
# What NFS 4 shows in its place, as it travels (RFC 7530, 6.2.1): how many entries, then each.
NFS4_ACL = "system.nfs4_acl"
_HEADER, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")  # tag, permissions, id
_OWNER, _NAMED_USER, _OWNING_GROUP, _NAMED_GROUP, _MASK, _OTHERS = 1, 2, 4, 8, 16, 32
_VERSION, _READ = 2, 0o4
_NOBODY = 0xFFFFFFFF  # the id of entries that have none
_NFS4_ENTRY = struct.Struct(">IIII")  # type, flags, permissions, length of the name that follows
_ALLOW, _DENY = 0, 1
_INHERIT_ONLY, _OF_A_GROUP = 0x8, 0x40
_NFS4_BITS = ((0x1, 0o4), (0x2, 0o2), (0x20, 0o1))
_SPECIAL = (b"OWNER@", b"GROUP@", b"EVERYONE@")
_NO_ACL = _HEADER.pack(_VERSION) + _ENTRY.pack(_OWNING_GROUP, 0, _NOBODY)


def without_acl(mode: int, acl: bytes) -> int:
    """Return a mode that lets nobody in whom ``mode`` together with ``acl`` keeps out.

    Of its group bits, which are the ACL's mask, those stay that the owning group has and each user
    whom the ACL names, who may be in it; of its bits for others those that all have whom it names.
    """
    mask = mode >> 3 & 0o7
    for tag, permissions, _ in _entries_in(acl):
        if tag in (_OWNING_GROUP, _NAMED_USER):
            mode &= ~0o070 | permissions << 3
        if tag in (_NAMED_USER, _NAMED_GROUP):
            mode &= ~0o007 | permissions & mask
    return mode


def hides_more(mode: int) -> bool:
    """Whether it is worth a question to a server what the ACL keeps from whom ``mode`` lets in.

    Of a file that all others may read as well, as of most, it is not: each question takes a while.
    """
    return bool(mode & 0o077 if stat.S_ISDIR(mode) else mode >> 3 & ~mode & 0o7)


def mode_over_nfs(descriptor: int, names: Sequence[str], mode: int) -> int:
    """Return ``mode``, of an open file with these attributes, without what an NFS 4 server's ACL
    keeps from whom it lets in."""
    if NFS4_ACL not in names or not hides_more(os.fstat(descriptor).st_mode):
        return mode
    acl = acl_over_nfs(descriptor)
    return mode if acl is None else without_acl(mode, acl)


def acl_over_nfs(descriptor: int) -> bytes | None:
    """Return as an access ACL what the NFS 4 server says of an open file; None where it has none.

    Those whom it names have no ids: what it gives can be known by it, not set. One that may not be
    read gives nobody but the owner anything.
    """
    try:
        return _from_nfs4(os.getxattr(descriptor, NFS4_ACL))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            return _NO_ACL
        if error.errno not in (errno.EOPNOTSUPP, errno.ENODATA):
            raise
        return None


def _from_nfs4(data: bytes) -> bytes:
    """Translate an ACL of NFS 4; one that is cut short gives nobody but the owner anything."""
    entries, place = [], 4
    try:
        for _ in range(int.from_bytes(data[:4])):
            kind, flags, permissions, length = _NFS4_ENTRY.unpack_from(data, place)
            place += _NFS4_ENTRY.size
            name = data[place : place + length]
            place += length + -length % 4
            if place > len(data):
                return _NO_ACL
            # A user and a group may have one name, as where they are numbers.
            who = (name, name not in _SPECIAL and bool(flags & _OF_A_GROUP))
            if kind in (_ALLOW, _DENY) and not flags & _INHERIT_ONLY:
                entries.append((who, kind, permissions))
    except struct.error:
        return _NO_ACL

    def given(*whos: tuple[bytes, bool]) -> int:
        """Return what those have who are all of these: the first entry for a permission decides."""
        found = 0
        for bit, permission in _NFS4_BITS:
            kinds = (kind for who, kind, bits in entries if who in whos and bits & bit)
            found |= permission if next(kinds, _DENY) == _ALLOW else 0
        return found

    group, all_others = (b"GROUP@", False), (b"EVERYONE@", False)
    named = sorted({who for who, *_ in entries if who[0] not in _SPECIAL})
    owning = given(group, all_others)
    for who in named:  # who may be in the owning group
        owning &= given(who, group, all_others)
    acl = [(_OWNING_GROUP, owning, _NOBODY)]
    rights = [given(all_others), *(given(who, all_others) for who in named)]
    acl += [(_NAMED_GROUP, each, number) for number, each in enumerate(rights)]
    return _HEADER.pack(_VERSION) + b"".join(_ENTRY.pack(*entry) for entry in acl)


def narrowed(mode: int, acl: bytes | None, wanted_mode: int, wanted_acl: bytes | None) -> int:
    """Return ``mode`` without what it, or ``acl``, gives others than the owner and is not wanted.

    As it is where the wanted ones give all of that and more. The bits of the group are the mask of
    an ACL: one that gives too much gives nobody anything with the mode that is returned.
    """
    if acl is None and wanted_acl is None:
        return mode & (wanted_mode | 0o700)
    given, wanted = _permissions(mode, acl), _permissions(wanted_mode, wanted_acl)
    # Who is named by one of them only has what the other gives the group or others, if not both.
    most = given[_OWNING_GROUP, _NOBODY] | given[_OTHERS, _NOBODY]
    least = wanted[_OWNING_GROUP, _NOBODY] & wanted[_OTHERS, _NOBODY]
    if not any(given.get(who, most) & ~wanted.get(who, least) for who in given | wanted):
        return mode
    if acl is None and wanted_acl is not None:
        return mode & (without_acl(wanted_mode, wanted_acl) | 0o700)
    return mode & 0o700


def for_reader(uid: int, *, group: bool) -> bytes:
    """Return the ACL of a file that its owner may write and ``uid``, and its group, may read."""
    entries = (
        (_OWNER, 0o6, _NOBODY),
        (_NAMED_USER, _READ, uid),
        (_OWNING_GROUP, _READ if group else 0, _NOBODY),
        (_MASK, _READ, _NOBODY),
        (_OTHERS, 0, _NOBODY),
    )
    return _HEADER.pack(_VERSION) + b"".join(_ENTRY.pack(*entry) for entry in entries)


def reader_in(acl: bytes) -> tuple[int, bool] | None:
    """Return what ``for_reader`` made an ACL of; None where it is another."""
    named = [who for tag, _, who in _entries_in(acl) if tag == _NAMED_USER]
    for group in (False, True):
        if len(named) == 1 and acl == for_reader(named[0], group=group):
            return named[0], group
    return None


def _permissions(mode: int, acl: bytes | None) -> dict[tuple[int, int], int]:
    """Return what everybody but the owner may do, by (tag, id)."""
    found = {(tag, who): permissions for tag, permissions, who in _entries_in(acl or b"")}
    found.setdefault((_OWNING_GROUP, _NOBODY), mode >> 3 & 0o7)
    found.setdefault((_OTHERS, _NOBODY), mode & 0o7)
    mask = found.pop((_MASK, _NOBODY), 0o7)
    found.pop((_OWNER, _NOBODY), None)
    return {
        (tag, who): permissions if tag == _OTHERS else permissions & mask
        for (tag, who), permissions in found.items()
    }


def _entries_in(acl: bytes) -> list[tuple[int, int, int]]:
    whole = (
        (len(acl) - _HEADER.size) // _ENTRY.size * _ENTRY.size
    )  # of some FUSE it may be anything
    return [*_ENTRY.iter_unpack(acl[_HEADER.size : _HEADER.size + whole])]
