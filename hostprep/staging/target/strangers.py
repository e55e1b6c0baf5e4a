"""Other users and machines: who can exchange a run's copies, and whose records may describe them.

Several people share a workstation, and several workstations may share a home.
"""

from __future__ import annotations

import os
import shlex
import stat

from hostprep.staging.record.homes import shared_home
from hostprep.staging.record.records import Record, folder, is_shared, other_hosts
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
