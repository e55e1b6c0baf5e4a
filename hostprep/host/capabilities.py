"""What this process may do beyond an ordinary user: capabilities(7), user_namespaces(7)."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from hostprep.host.reading import own_status, read_text

_ALL_AS_THEY_ARE = ["0", "0", "4294967295"]


class Capability(IntEnum):
    """The bits of ``linux/capability.h`` that hostprep needs."""

    CHOWN = 0
    DAC_OVERRIDE = 1
    FSETID = 4
    IPC_LOCK = 14
    SYS_ADMIN = 21
    SYS_RESOURCE = 24


def has_capability(capability: Capability, root: Path = Path("/")) -> bool:
    """Whether it is effective, in the process's own user namespace; False if that is unknown.

    In a container root has few of them, unless it was started with ``--privileged``.
    """
    effective = _effective(root)
    return effective is not None and bool(effective >> capability & 1)


def lacks_capability(capability: Capability, root: Path = Path("/")) -> bool:
    """Whether it is known not to be effective; False if that is unknown.

    For what can be tried: without /proc, or without a free descriptor, nothing says so, and what is
    wrong then is something else.
    """
    effective = _effective(root)
    return effective is not None and not effective >> capability & 1


def _effective(root: Path) -> int | None:
    told = own_status(root, "CapEff")
    try:
        return None if told is None else int(told, 16)
    except ValueError:
        return None


def users_are_mapped(root: Path = Path("/")) -> bool:
    """Whether user 0 here is another user to the kernel, as in a container without root.

    What the kernel checks with capable(), such as resource limits, is only for its own user 0.
    """
    users = read_text(root / "proc/self/uid_map")  # None: a kernel without user namespaces
    return users is not None and users.split() != _ALL_AS_THEY_ARE


def unknown_uid(root: Path = Path("/")) -> int | None:
    """Return the uid that files of all users unknown here appear to have, None if none are unknown.

    A user namespace knows those users that it has numbers for: in a container without root, files
    of the host's root belong to nobody.
    """
    if not users_are_mapped(root):
        return None
    told = read_text(root / "proc/sys/kernel/overflowuid")
    return 65534 if told is None else int(told)


def knows_other_users(root: Path = Path("/")) -> bool:
    """Whether files here can belong to somebody else: not if only one user has a number.

    That is so in a container that a user started with no more than ``unshare --map-root-user``
    (such as Apptainer's ``--fakeroot`` without ``/etc/subuid``): root has no number to give a file
    to.
    """
    users = read_text(root / "proc/self/uid_map")  # None: a kernel without user namespaces
    return users is None or sum(map(int, users.split()[2::3])) != 1
