"""What systemd's logind takes away of a user's copies in RAM when the last session ends.

That is all in /dev/shm, whatever else still reads it, a batch job for instance: RemoveIPC= of
logind.conf(5), which is on unless an admin turned it off.
"""

from __future__ import annotations

import os

from hostprep.errors import HostprepError
from hostprep.host.boot import boot_id
from hostprep.host.mounts import lies_in
from hostprep.staging.record.records import Record
from hostprep.system.run import run

_CLEARED = "/dev/shm"


def logout_warning(parent: str) -> str | None:
    """Say that a logout will clear what is staged into ``parent``; None where it will not.

    Nor of a user without a session here, as in a batch job: nothing ends that could clear it.
    """
    if not _clears(parent):
        return None
    if _asked("--property=RemoveIPC") != "RemoveIPC=yes":
        return None
    if _asked(str(os.geteuid()), "--property=Linger") != "Linger=no":
        return None
    return (
        f"what you have in the machine's {_CLEARED} is removed when your last session there ends"
        " (RemoveIPC of systemd's logind), also while a batch job reads it; after `loginctl"
        " enable-linger` it stays"
    )


def may_be_cleared(record: Record) -> str | None:
    """Say what copies that are gone may have gone with; None where they do not by themselves."""
    if record.boot_id != boot_id() or not _clears(os.path.dirname(record.target)):
        return None
    return (
        f"what lies in {_CLEARED} may go with a user's last session (logind's RemoveIPC), and is"
        " seen only in the job or container that has a /dev/shm of its own"
    )


def _clears(parent: str) -> bool:
    return os.geteuid() != 0 and lies_in(os.path.realpath(parent), _CLEARED)


def _asked(*words: str) -> str | None:
    """Return what logind says; None where there is none, or no such user is logged in."""
    line = ("loginctl", "show-user", *words)
    try:
        return run(line, wanted_for="asking logind", timeout_seconds=5).stdout.strip()
    except HostprepError:
        return None
