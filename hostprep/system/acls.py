"""What an access ACL grants in place of a mode's group bits; see acl(5)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

# The access ACL, in the kernel's own form (linux/posix_acl_xattr.h): a version, then entries.
ACCESS_ACL = "system.posix_acl_access"
_HEADER, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")  # tag, permissions, id
_OWNER, _NAMED_USER, _OWNING_GROUP, _NAMED_GROUP, _MASK, _OTHERS = 1, 2, 4, 8, 16, 32
_VERSION, _READ = 2, 0o4
_NOBODY = 0xFFFFFFFF  # the id of entries that have none


def without_acl(mode: int, acl: bytes) -> int:
    """Return a mode that lets in nobody whom ``mode`` together with ``acl`` keeps out.

    Of its group bits, which are the ACL's mask, those stay that the owning group has and every user
    named by the ACL, who may be in the group; of its bits for others, those that everybody named by
    the ACL has.
    """
    mask = mode >> 3 & 0o7
    for tag, permissions, _ in _entries_in(acl):
        if tag in (_OWNING_GROUP, _NAMED_USER):
            mode &= ~0o070 | permissions << 3
        if tag in (_NAMED_USER, _NAMED_GROUP):
            mode &= ~0o007 | permissions & mask
    return mode


def narrowed(mode: int, acl: bytes | None, wanted_mode: int, wanted_acl: bytes | None) -> int:
    """Return ``mode`` without rights that it, or ``acl``, grants to non-owners and are not wanted.

    Unchanged if the wanted ones grant at least as much. The group bits are the mask of an ACL: if
    it grants too much, it grants nothing to anybody with the returned mode.
    """
    if acl is None and wanted_acl is None:
        return mode & (wanted_mode | 0o700)
    given, wanted = _permissions(mode, acl), _permissions(wanted_mode, wanted_acl)
    # Somebody named in only one of the two gets from the other the rights of the group or of
    # others: at most both together, at least what they have in common.
    most = given[_OWNING_GROUP, _NOBODY] | given[_OTHERS, _NOBODY]
    least = wanted[_OWNING_GROUP, _NOBODY] & wanted[_OTHERS, _NOBODY]
    if not any(given.get(who, most) & ~wanted.get(who, least) for who in given | wanted):
        return mode
    if acl is None and wanted_acl is not None:
        return mode & (without_acl(wanted_mode, wanted_acl) | 0o700)
    return mode & 0o700


def of_groups(owning: int, others: Iterable[int] = ()) -> bytes:
    """Return an ACL that grants this to the owning group and to others, with unknown ids.

    It serves to find out, with a mode, what it grants; it cannot be set.
    """
    named = ((_NAMED_GROUP, permissions, number) for number, permissions in enumerate(others))
    return _acl_of((_OWNING_GROUP, owning, _NOBODY), *named)


def for_reader(uid: int, *, group: bool) -> bytes:
    """Return the ACL of a file that its owner may write, and ``uid`` and its group may read."""
    return _acl_of(
        (_OWNER, 0o6, _NOBODY),
        (_NAMED_USER, _READ, uid),
        (_OWNING_GROUP, _READ if group else 0, _NOBODY),
        (_MASK, _READ, _NOBODY),
        (_OTHERS, 0, _NOBODY),
    )


def reader_in(acl: bytes) -> tuple[int, bool] | None:
    """Return the arguments of ``for_reader`` for its ACL; None if it is another one."""
    named = [who for tag, _, who in _entries_in(acl) if tag == _NAMED_USER]
    for group in (False, True):
        if len(named) == 1 and acl == for_reader(named[0], group=group):
            return named[0], group
    return None


def _permissions(mode: int, acl: bytes | None) -> dict[tuple[int, int], int]:
    """Return what everybody except the owner may do, by (tag, id)."""
    found = {(tag, who): permissions for tag, permissions, who in _entries_in(acl or b"")}
    found.setdefault((_OWNING_GROUP, _NOBODY), mode >> 3 & 0o7)
    found.setdefault((_OTHERS, _NOBODY), mode & 0o7)
    mask = found.pop((_MASK, _NOBODY), 0o7)
    found.pop((_OWNER, _NOBODY), None)
    return {
        (tag, who): permissions if tag == _OTHERS else permissions & mask
        for (tag, who), permissions in found.items()
    }


def _acl_of(*entries: tuple[int, int, int]) -> bytes:
    return _HEADER.pack(_VERSION) + b"".join(_ENTRY.pack(*entry) for entry in entries)


def _entries_in(acl: bytes) -> list[tuple[int, int, int]]:
    entries = acl[_HEADER.size :]  # some FUSE file systems return anything
    whole = len(entries) // _ENTRY.size * _ENTRY.size
    return [*_ENTRY.iter_unpack(entries[:whole])]
