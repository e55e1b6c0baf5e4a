"""Others beside the user of a run: who can exchange its copies, who is at work in its place.

Several people share a workstation, and several workstations may share a home.
"""

from __future__ import annotations

import os
import shlex
import stat

from hostprep.errors import Refused
from hostprep.host.block import is_remote
from hostprep.host.mounts import Mount, mount_containing
from hostprep.system.accounts import trusted_users
from hostprep.system.state import state_dir


def stranger_warning(parent: str) -> str | None:
    """Say who else can exchange what is staged into the directory; None where nobody can.

    In /dev/shm anybody may have taken the name first. Root stages for whoever owns the directory.
    """
    try:
        st = os.stat(parent)
    except OSError:
        return None  # it is made, or the plan says what is wrong with it
    exchange = "can put other files in the place of those that were verified, at any time"
    if os.geteuid() != 0 and st.st_uid not in trusted_users():
        cure = "in a directory of your own nobody can"
        return f"{parent} belongs to uid {st.st_uid}, who {exchange}; {cure}"
    if st.st_mode & stat.S_IWOTH and not st.st_mode & stat.S_ISVTX:
        cure = f"after chmod +t {shlex.quote(parent)} they leave alone what is not theirs"
        return f"everybody can write to {parent}, and so {exchange}; {cure}"
    return None


def shared_records_warning(parent: str, mounts: tuple[Mount, ...]) -> str | None:
    """Say where records of what lies on this machine are such that another one takes for its own.

    So it is of a home on a server: there the other machine would find its own copies changed, and
    what was unstaged here unknown there. Root's are the machine's own; who moved them has chosen.
    """
    home = _shared_home(parent, mounts)
    if home is None:
        return None
    records = state_dir()
    return (
        f"the records in {records} are on {home.source} ({home.fstype}), and {parent} is this"
        " machine's own: where others have the same home, hostprep takes this for what is there;"
        f" records for each: export HOSTPREP_STATE_DIR={shlex.quote(str(records))}-$(hostname)"
    )


def may_be_elsewhere(target: str, mounts: tuple[Mount, ...]) -> str | None:
    """Say which other machine may have a data set that is not here; None where none may."""
    home = _shared_home(os.path.dirname(target), mounts)
    if home is None:
        return None
    return f"another machine may have it, if it has the same home ({home.source})"


def _shared_home(parent: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """Return what the records are on where others may have them, but not what is in ``parent``."""
    if os.geteuid() == 0 or os.environ.get("HOSTPREP_STATE_DIR"):
        return None
    home = mount_containing(os.path.realpath(state_dir()), mounts)
    target = mount_containing(os.path.realpath(parent), mounts)
    if home is None or target is None or is_remote(target):
        return None
    if not is_remote(home) or home.fstype.startswith("fuse"):  # which may be a disk, encrypted
        return None
    return home


def owner_of_entry(parent_fd: int, name: str) -> int | None:
    """Return whose it is, also where it may not be opened; None where nothing tells."""
    try:
        return os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_uid
    except OSError:
        return None


def somebody_at_work(said: str, owner: int | None) -> Refused:
    """Refuse to take the place of another user, whose copies may be growing there right now."""
    return Refused(
        f"{said}: it belongs to uid {owner}, who may be staging there now; nothing was changed.",
        "to stage, another --name does; what is left of a run of theirs is theirs to remove",
        spec_hint="another `name` does; what is left of a run of theirs is theirs to remove",
    )
