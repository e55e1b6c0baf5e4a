"""What systemd's logind takes away of a user's copies in RAM when the last session ends.

That is what the user owns in /dev/shm, whatever else still reads it, a batch job for instance
(RemoveIPC= of logind.conf(5), which is on unless an admin turned it off), and /run/user/UID.
"""

from __future__ import annotations

import os

from hostprep.errors import HostprepError
from hostprep.host.boot import boot_id
from hostprep.host.mounts import lies_in
from hostprep.staging.record.records import Record
from hostprep.system.run import run

_SHARED = "/dev/shm"
# logind leaves root and the users of services alone: SYS_UID_MAX, where nobody changed it.
_LAST_SYSTEM_UID = 999


def logout_warning(parent: str) -> str | None:
    """Say that a logout will clear what is staged into ``parent``; None where it will not.

    Nor of a user without a session here, as in a batch job: nothing ends that could clear it.
    """
    uid = os.geteuid()
    place = os.path.realpath(parent)
    if uid <= _LAST_SYSTEM_UID:
        return None
    if lies_in(place, _SHARED):
        what = f"what you have in the machine's {_SHARED}"
        if _asked("--property=RemoveIPC") != "RemoveIPC=yes":
            return None
    elif lies_in(place, f"/run/user/{uid}"):
        what = f"what is in /run/user/{uid}"
    else:
        return None
    if _asked(str(uid), "--property=Linger") != "Linger=no":
        return None
    return (
        f"{what} is removed when your last session there ends (by systemd's logind), also while a"
        " batch job reads it; after `loginctl enable-linger` it stays"
    )


def may_be_cleared(record: Record) -> str | None:
    """Say what copies that are gone may have gone with; None where they do not by themselves."""
    place = os.path.realpath(os.path.dirname(record.target))
    if record.boot_id != boot_id() or not lies_in(place, _SHARED):
        return None
    return (
        f"what a user owns in {_SHARED} may go with that user's last session (logind's RemoveIPC),"
        " and is seen only in the job or container that has a /dev/shm of its own"
    )


def _asked(*words: str) -> str | None:
    """Return what logind says; None where there is none, or no such user is logged in."""
    line = ("loginctl", "show-user", *words)
    try:
        return run(line, wanted_for="asking logind", timeout_seconds=5).stdout.strip()
    except HostprepError:
        return None
