"""Accounts of this host: names to numbers and back, and which users to trust."""

from __future__ import annotations

import grp
import os
import pwd
import re

from hostprep.errors import UsageError
from hostprep.system.acls import ACCESS_ACL

_NAME = re.compile(r"[^-\s:][^\s:]*")
_ACCEPTED = "accepted: USER, USER:GROUP, UID:GID"


def owner_of(text: str) -> tuple[int, int]:
    """Parse ``USER[:GROUP]``, names or numbers, into user and group id.

    Without a group it is the user's own; a number that has no account needs a group. Raises
    ``UsageError`` for names that this host does not know.
    """
    user, colon, group = text.partition(":")
    uid, own_gid = _user(user)
    gid = _group(group) if colon else own_gid
    if gid is None:
        raise UsageError(f"no account has the user id {user}.", f"name the group too: {user}:GROUP")
    return uid, gid


def name_of(uid: int, gid: int) -> str:
    """Return ``USER:GROUP`` for the ids, which ``owner_of`` reads as the same; numbers if need be.

    A name that is all digits would be read as a number, and one with a blank or a colon, as some
    directory services have, cannot be in a spec: such names are not used.
    """
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = ""
    try:
        group = grp.getgrgid(gid).gr_name
    except KeyError:
        group = ""
    return ":".join(
        name if _may_be_written(name) else str(number)
        for name, number in ((user, uid), (group, gid))
    )


def trusted_users() -> set[int]:
    """Return the user ids that may tell this run what to do: root's, its own, its caller's.

    The caller is the user who became root by sudo for this run.
    """
    trusted = {0, os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isascii() and caller.isdigit():
        trusted.add(int(caller))
    return trusted


def has_acl(place: str | int | os.PathLike[str]) -> bool:
    """Return whether an ACL says more about a path or an open file than its mode."""
    try:
        return bool(os.getxattr(place, ACCESS_ACL))
    except OSError:
        return False  # none, or a file system without ACLs


def _may_be_written(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and name.isprintable() and not _is_number(name)


def _user(name: str) -> tuple[int, int | None]:
    try:
        account = pwd.getpwuid(_id(name)) if _is_number(name) else pwd.getpwnam(name)
    except KeyError:
        if _is_number(name):
            return int(name), None
        raise UsageError(
            f"there is no user {name!r}.", f"make it, or name one that is there; {_ACCEPTED}"
        ) from None
    return account.pw_uid, account.pw_gid


def _group(name: str) -> int:
    if _is_number(name):
        return _id(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise UsageError(
            f"there is no group {name!r}.", f"make it, or name one that is there; {_ACCEPTED}"
        ) from None


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _id(number: str) -> int:
    # The largest 32-bit number is not an id: for chown(2) it means "do not change".
    if len(number) > 10 or int(number) >= 0xFFFFFFFF:
        raise UsageError(
            f"{number} is not a user or group id: those end at {0xFFFFFFFE}.",
            "give the id of a user or group of this host",
        )
    return int(number)
