"""In which of a user's directories the record of a data set lies: this machine's, or that of all.

Several machines may share a home, and one's memory or disk is not another's. What lies on a server
is the same for all of them, and so is its record. Root's records are the machine's own, and whoever
moved theirs has chosen.
"""

from __future__ import annotations

import os
from pathlib import Path

from hostprep.host.block import is_remote
from hostprep.host.mounts import Mount, mount_containing, read_mounts
from hostprep.system.following import followed
from hostprep.system.state import host_state_dir, state_dir

_FUSE_SERVERS = frozenset(
    f"fuse.{each}" for each in ("ceph", "glusterfs", "juicefs", "lizardfs", "mfs", "sshfs")
)


def home_for(target: str) -> Path:
    """Return the state directory for the record of a data set that is staged to ``target`` anew."""
    here = host_state_dir()
    return here if here is not None and shared_home(target) is not None else state_dir()


def own_homes() -> tuple[Path, ...]:
    """Return the user's state directories in which a record may be: this machine's first."""
    here = host_state_dir()
    return (state_dir(),) if here is None else (here, state_dir())


def is_for_all(home: Path) -> bool:
    """Whether all machines that share a home have the records in the state directory ``home``."""
    return home != host_state_dir()


def shared_home(target: str) -> Mount | None:
    """Return what the records are on where others may have them, but not what is at ``target``.

    None where no other machine can have them, or has the data set as well.
    """
    if host_state_dir() is None:
        return None
    mounts = read_mounts()
    home = mount_containing(followed(state_dir()), mounts)
    place = mount_containing(followed(os.path.dirname(target)), mounts)
    if home is None or place is None or is_remote(place):
        return None
    served_by_program = home.fstype.startswith("fuse")  # which may be a disk, encrypted
    if not is_remote(home) or (served_by_program and home.fstype not in _FUSE_SERVERS):
        return None
    return home
