"""Other users and machines: who can exchange a run's copies, and whose records may describe them.

Several people share a workstation, and several workstations may share a home.
"""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import replace

from hostprep.errors import Refused
from hostprep.host.mounts import Mount
from hostprep.staging.record.homes import shared_home
from hostprep.staging.record.records import Record, folder, is_shared, other_hosts
from hostprep.staging.target.place import keeps_numbers
from hostprep.system.accounts import trusted_users


def stranger_warning(parent: str) -> str | None:
    """Say who else can exchange what is staged into the directory; None if nobody can.

    In /dev/shm anybody may have taken the name first. Root stages for the directory's owner.
    """
    try:
        st = os.stat(parent)
    except OSError:
        return None  # it will be created, or the plan says what is wrong with it
    exchange = "can put other files in the place of those that were verified, at any time"
    if os.geteuid() != 0 and st.st_uid not in trusted_users():
        cure = "in a directory of your own nobody can"
        return f"{parent} belongs to uid {st.st_uid}, who {exchange}; {cure}"
    if st.st_mode & stat.S_IWOTH and not st.st_mode & stat.S_ISVTX:
        cure = f"after chmod +t {shlex.quote(parent)} they leave alone what is not theirs"
        return f"everybody can write to {parent}, and so {exchange}; {cure}"
    return None


def identity_of(directory_fd: int, mount: Mount | None) -> str | None:
    """Return what tells an open directory on ``mount`` from all others; None if nothing does.

    That is the identity of its file system by statfs(2), which the new one of a tmpfs after a
    reboot does not share, and the directory's number there.
    """
    file_system = os.fstatvfs(directory_fd).f_fsid
    if not file_system or not keeps_numbers(mount):
        return None
    return f"{file_system:x} {os.fstat(directory_fd).st_ino}"


def exchanged_refusal(record: Record | None, directory_fd: int | None) -> Refused | None:
    """Refuse to let root change an open directory that others may have put in the copies' place.

    Whoever may rename in a folder above could otherwise have root replace, and remove, what it has
    in another directory there. If nobody may, or the file system is another one, as after a move to
    a new disk, the directory is taken for a copy of the one that was staged.
    """
    if os.geteuid() != 0 or record is None or directory_fd is None:
        return None
    if record.phase == "copying" or record.target_identity is None:
        return None  # before the first publication nothing is in its place
    file_system, _, number = record.target_identity.partition(" ")
    if file_system != f"{os.fstatvfs(directory_fd).f_fsid:x}":
        return None
    if number == str(os.fstat(directory_fd).st_ino):
        return None
    where = _others_above(record.target)
    if where is None:
        return None
    return Refused(
        f"{record.target} is not the directory that was staged there: others, who may rename things"
        f" in {where}, may have put it in its place; nothing was changed.",
        "look at whose it is, move it away and run the same command again; do so too if it is the"
        " copy itself, restored from a backup",
    )


def _others_above(path: str) -> str | None:
    """Return a directory above ``path`` in which others can rename what is root's, if any."""
    # Imported late: only root needs it, and only if something is in the place of the copies.
    from hostprep.volumes.paths import look

    trusted = trusted_users()
    for folder_above in look(path).parents:
        ours = folder_above.uid in trusted
        if ours and folder_above.mode & stat.S_ISVTX:
            continue  # there they can only rename what is theirs
        if (replace(folder_above, uid=0) if ours else folder_above).others_can_write:
            return folder_above.path
    return None


def shared_records_warning(name: str, target: str) -> str | None:
    """Warn if the record of data on this machine is one that other machines take for theirs.

    Versions that did not distinguish machines with one home left such records. The other machine
    would find its own copies changed, and after an unstage here it would not know its own.
    """
    home = shared_home(target)
    if home is None or not is_shared(name, target):
        return None
    return (
        f"the record of {target} is on {home.source} ({home.fstype}), written by a version that"
        " did not tell machines apart: others with the same home take it for their own; unstage"
        " and stage it again, and its record is this machine's alone"
    )


def may_be_elsewhere(record: Record) -> str | None:
    """Say which other machine may have a data set that is not here; None if none may."""
    home = shared_home(record.target)
    if home is None or not is_shared(record.name, record.target):
        return None
    return f"another machine may have it, if it has the same home ({home.source})"


def by_another_name(name: str, target: str) -> str:
    """Return how to continue with a machine's record if this machine had its name before."""
    for place in other_hosts(name, target):
        host = place.parents[1].name.removeprefix("on-")
        home = shlex.quote(str(folder(name, target).parent))
        return (
            f"; if this machine, or container, was called {host} when it was staged:"
            f" mkdir -p {home} && mv {shlex.quote(str(place))} {home}/"
        )
    return ""
