"""What this process may do beyond an ordinary user: capabilities(7), user_namespaces(7)."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

_ALL_AS_THEY_ARE = ["0", "0", "4294967295"]


class Capability(IntEnum):
    """The bits of ``linux/capability.h`` that hostprep asks for."""

    IPC_LOCK = 14
    SYS_ADMIN = 21


def has_capability(capability: Capability, root: Path = Path("/")) -> bool:
    """Whether it is effective, in the process's own user namespace; False where that is unknown.

    In a container root has few of them, unless it was started with ``--privileged``.
    """
    try:
        lines = (root / "proc/self/status").read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> capability & 1)
    return False


def users_are_mapped(root: Path = Path("/")) -> bool:
    """Whether user 0 here is somebody else to the kernel, as in a container without root.

    What the kernel asks with capable(), such as for resource limits, only its own user 0 may.
    """
    try:
        users = (root / "proc/self/uid_map").read_text().split()
    except OSError:  # a kernel without user namespaces
        return False
    return users != _ALL_AS_THEY_ARE
