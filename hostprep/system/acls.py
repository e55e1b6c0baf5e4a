"""What an access ACL gives, in the place of the group bits of a mode; see acl(5)."""

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


def narrowed(mode: int, acl: bytes | None, wanted_mode: int, wanted_acl: bytes | None) -> int:
    """Return ``mode`` without what it, or ``acl``, gives others than the owner and is not wanted.

    As it is where the wanted ones give all of that and more. The bits of the group are the mask of
    an ACL: one that gives too much gives nobody anything with the mode that is returned.
    """
    if acl is None and wanted_acl is None:
        return mode & (wanted_mode | 0o700)
    given, wanted = _permissions(mode, acl), _permissions(wanted_mode, wanted_acl)
    # Whoever is named in one of them only has by the other what that gives the group or others: at
    # most both together, at least what they have in common.
    most = given[_OWNING_GROUP, _NOBODY] | given[_OTHERS, _NOBODY]
    least = wanted[_OWNING_GROUP, _NOBODY] & wanted[_OTHERS, _NOBODY]
    if not any(given.get(who, most) & ~wanted.get(who, least) for who in given | wanted):
        return mode
    if acl is None and wanted_acl is not None:
        return mode & (without_acl(wanted_mode, wanted_acl) | 0o700)
    return mode & 0o700


def of_groups(owning: int, others: Iterable[int] = ()) -> bytes:
    """Return an ACL that gives this to the owning group and to others, whose ids nobody knows.

    What it gives can be known by it, with a mode; it cannot be set.
    """
    named = ((_NAMED_GROUP, permissions, number) for number, permissions in enumerate(others))
    return _acl_of((_OWNING_GROUP, owning, _NOBODY), *named)


def for_reader(uid: int, *, group: bool) -> bytes:
    """Return the ACL of a file that its owner may write and ``uid``, and its group, may read."""
    return _acl_of(
        (_OWNER, 0o6, _NOBODY),
        (_NAMED_USER, _READ, uid),
        (_OWNING_GROUP, _READ if group else 0, _NOBODY),
        (_MASK, _READ, _NOBODY),
        (_OTHERS, 0, _NOBODY),
    )


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


def _acl_of(*entries: tuple[int, int, int]) -> bytes:
    return _HEADER.pack(_VERSION) + b"".join(_ENTRY.pack(*entry) for entry in entries)


def _entries_in(acl: bytes) -> list[tuple[int, int, int]]:
    entries = acl[_HEADER.size :]  # of some FUSE it may be anything
    whole = len(entries) // _ENTRY.size * _ENTRY.size
    return [*_ENTRY.iter_unpack(entries[:whole])]
