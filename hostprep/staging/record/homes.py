"""Which of a user's directories has a data set's record: this machine's, or that of all machines.

Several machines may share a home, but not their memory or disks. What is on a server is the same
for all of them, and so is its record. Root's records belong to the machine, and whoever has moved
their state directory has made a choice.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from hostprep.errors import HostprepError, reading_hint
from hostprep.host.block import is_remote
from hostprep.host.mounts import Mount, mount_containing, read_mounts
from hostprep.system.following import followed
from hostprep.system.state import host_state_dir, state_dir

_FUSE_SERVERS = frozenset(
    f"fuse.{each}" for each in ("ceph", "glusterfs", "juicefs", "lizardfs", "mfs", "sshfs")
)


def home_for(target: str) -> Path:
    """Return the state directory for the record of a new data set that is staged to ``target``."""
    here = host_state_dir()
    return here if here is not None and shared_home(target) is not None else state_dir()


def own_homes() -> tuple[Path, ...]:
    """Return the user's state directories that may have records, this machine's first."""
    here = host_state_dir()
    return (state_dir(),) if here is None else (here, state_dir())


def is_for_all(home: Path) -> bool:
    """Whether records in the state directory ``home`` are for all machines that share the home."""
    return home != host_state_dir()


def shared_home(target: str) -> Mount | None:
    """Return the mount of the records if other machines may have them, but not the data set.

    None if no other machine can have the records, or if it has the data set as well.
    """
    if host_state_dir() is None:
        return None
    mounts = read_mounts()
    home = mount_containing(followed(state_dir()), mounts)
    place = mount_containing(followed(os.path.dirname(target)), mounts)
    if home is None or place is None or is_remote(place):
        return None
    served_by_program = home.fstype.startswith("fuse")  # this may also be an encrypted local disk
    if not is_remote(home) or (served_by_program and home.fstype not in _FUSE_SERVERS):
        return None
    return home


def may_have_one(folder: Path) -> bool:
    """Return whether a record may be in ``folder``."""
    try:
        return stat.S_ISDIR(os.stat(folder).st_mode)
    except FileNotFoundError:
        return False
    except OSError:  # reading the record will say what is wrong
        return True


def is_there(file: Path) -> bool:
    """Whether a record is there. Raises ``HostprepError`` if that cannot be told."""
    try:
        return stat.S_ISREG(os.stat(file).st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        said = f"the record {file} cannot be looked at: {error.strerror}; nothing was changed."
        raise HostprepError(said, reading_hint(error)) from None
