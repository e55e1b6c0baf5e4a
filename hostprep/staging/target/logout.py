"""What systemd's logind removes of a user's copies in RAM when their last session ends.

It removes what the user owns in /dev/shm, even if something still reads it, such as a batch job
(RemoveIPC= of logind.conf(5), which is on unless an admin turned it off), and /run/user/UID. What
root stages has the same owners as in the source.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from hostprep.errors import HostprepError
from hostprep.host.boot import boot_id
from hostprep.host.mounts import lies_in
from hostprep.staging.record.records import Record
from hostprep.system.following import followed
from hostprep.system.run import run

_SHARED = "/dev/shm"
_RUNTIME = "/run/user"
# logind spares root and service users: up to SYS_UID_MAX, unless somebody changed that.
_LAST_SYSTEM_UID = 999
_NOBODY = 65534
_MOST_NAMED = 3
_MOST_ASKED = 20  # each takes the start of a program


def logout_warning(parent: str, owners: Callable[[], Iterable[int]]) -> str | None:
    """Warn that a logout will remove what is staged into ``parent``; None if it will not.

    None also for a user without a session here, as in a batch job: no session can end. For what
    root stages, ``owners`` gives the user ids.
    """
    uid = os.geteuid()
    place = followed(parent)
    if uid == 0:
        return _told_to_root(place, owners)
    if uid <= _LAST_SYSTEM_UID:
        return None
    if lies_in(place, _SHARED):
        what = f"what you have in the machine's {_SHARED}"
        if not _removes():
            return None
    elif lies_in(place, f"{_RUNTIME}/{uid}"):
        what = f"what is in {_RUNTIME}/{uid}"
    else:
        return None
    if _asked(str(uid), "--property=Linger") != "Linger=no":
        return None
    return (
        f"{what} is removed when your last session there ends (by systemd's logind), also while a"
        " batch job reads it; after `loginctl enable-linger` it stays"
    )


def _told_to_root(place: str, owners: Callable[[], Iterable[int]]) -> str | None:
    if lies_in(place, _SHARED) and _removes():
        return _warning_of_others(list(islice(_who_may_log_out(owners()), _MOST_NAMED + 1)))
    user = place.removeprefix(f"{_RUNTIME}/").partition("/")[0]
    if lies_in(place, _RUNTIME) and user.isdecimal() and _asked("--property=RemoveIPC"):
        for name in _who_may_log_out((int(user),)):
            return (
                f"all that is in {_RUNTIME}/{user} is removed when the last session of {name} here"
                " ends (by systemd's logind), whoever owns or reads it; after `loginctl"
                f" enable-linger {name}` it stays, and a volume (--to-tmpfs) is left alone"
            )
    return None


def _warning_of_others(users: list[str]) -> str | None:
    if not users:
        return None
    named = ", ".join(users[:_MOST_NAMED]) + (" and others" if len(users) > _MOST_NAMED else "")
    return (
        f"files that belong to {named} keep their owner in the copy, and what a user owns in"
        f" {_SHARED} is removed when that user's last session here ends (by systemd's logind),"
        " whoever reads it; a volume (--to-tmpfs) is left alone, and so is what belongs to a user"
        " after `loginctl enable-linger USER`"
    )


def _who_may_log_out(owners: Iterable[int]) -> Iterator[str]:
    """Yield the names of users who have an account here and would lose files at a logout."""
    users = (uid for uid in sorted(owners) if uid > _LAST_SYSTEM_UID and uid != _NOBODY)
    for uid, name in islice(_with_account(users), _MOST_ASKED):
        if _asked(str(uid), "--property=Linger") != "Linger=yes":
            yield name


def _with_account(users: Iterable[int]) -> Iterator[tuple[int, str]]:
    for uid in users:
        with suppress(KeyError):
            yield uid, pwd.getpwuid(uid).pw_name


def may_be_cleared(record: Record) -> str | None:
    """Say what may have removed copies that are gone; None if nothing does so by itself."""
    place = followed(os.path.dirname(record.target))
    if record.boot_id != boot_id() or not lies_in(place, _SHARED):
        return None
    return (
        f"what a user owns in {_SHARED} may go with that user's last session (logind's RemoveIPC),"
        " and is seen only in the job or container that has a /dev/shm of its own"
    )


def _removes() -> bool:
    return _asked("--property=RemoveIPC") == "RemoveIPC=yes"


def _asked(*words: str) -> str | None:
    """Return logind's answer; None if there is no logind, or no such user is logged in."""
    line = ("loginctl", "show-user", *words)
    try:
        return run(line, wanted_for="asking logind", timeout_seconds=5).stdout.strip()
    except HostprepError:
        return None
