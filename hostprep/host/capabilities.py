"""What this process may do beyond an ordinary user: capabilities(7), user_namespaces(7)."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from hostprep.host.reading import own_status, read_text

_ALL_AS_THEY_ARE = ["0", "0", "4294967295"]


class Capability(IntEnum):
    """The bits of ``linux/capability.h`` that hostprep asks for."""

    CHOWN = 0
    DAC_OVERRIDE = 1
    FSETID = 4
    IPC_LOCK = 14
    SYS_ADMIN = 21
    SYS_RESOURCE = 24


def has_capability(capability: Capability, root: Path = Path("/")) -> bool:
    """Whether it is effective, in the process's own user namespace; False where that is unknown.

    In a container root has few of them, unless it was started with ``--privileged``.
    """
    effective = own_status(root, "CapEff")
    return effective is not None and bool(int(effective, 16) >> capability & 1)


def users_are_mapped(root: Path = Path("/")) -> bool:
    """Whether user 0 here is somebody else to the kernel, as in a container without root.

    What the kernel asks with capable(), such as for resource limits, only its own user 0 may.
    """
    users = read_text(root / "proc/self/uid_map")  # None: a kernel without user namespaces
    return users is not None and users.split() != _ALL_AS_THEY_ARE


def unknown_uid(root: Path = Path("/")) -> int | None:
    """Return as which uid the files of all users show that are unknown here, None where none are.

    A user namespace knows those that it was given numbers for: in a container without root, files
    of the host's root are nobody's.
    """
    if not users_are_mapped(root):
        return None
    told = read_text(root / "proc/sys/kernel/overflowuid")
    return 65534 if told is None else int(told)


def knows_other_users(root: Path = Path("/")) -> bool:
    """Whether files can be somebody else's here: not where one user alone has a number.

    So it is in a container that a user started with no more than ``unshare --map-root-user`` (such
    as Apptainer's ``--fakeroot`` without ``/etc/subuid``): root has no number to give a file to.
    """
    users = read_text(root / "proc/self/uid_map")  # None: a kernel without user namespaces
    return users is None or sum(map(int, users.split()[2::3])) != 1
