"""Where hostprep keeps its records: those that must survive a reboot, and those that must not."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from hostprep.errors import LIMIT_HINTS, HostprepError, Refused, UsageError
from hostprep.system.accounts import has_acl, trusted_users
from hostprep.system.kept import this_host

SYSTEM_STATE_DIR = Path("/var/lib/hostprep")
SYSTEM_RUN_DIR = Path("/run/lock")
SYSTEM_BOOT_DIR = Path("/run/hostprep")
# The owner of squashed users' files on NFS, unless the export says otherwise.
_NOBODY = 65534


def squashed_hint(uid: int) -> str:
    """Return a hint's addition about files of ``uid``: on a server they may be one's own."""
    if uid != _NOBODY:
        return ""
    return (
        "; if a server gives the files that one makes to another user (NFS: root_squash,"
        " all_squash), records and locks belong on a disk of this machine: HOSTPREP_STATE_DIR=DIR"
    )


def chosen_path(variable: str) -> Path | None:
    """Return the path that an environment variable names; None if it is not set.

    Raises ``UsageError`` for a relative one, because the next run may begin in another directory,
    and would not find anything of this one.
    """
    chosen = os.environ.get(variable)
    if not chosen:
        return None
    if chosen.startswith("~"):
        own = f'as {variable}="$HOME{chosen[1:]}", or ' if chosen[1:2] in ("", "/") else ""
        raise UsageError(
            f"{variable} is {chosen!r}, in which nothing has replaced the ~ by the home directory;"
            " nothing was done.",
            f"set it {own}to the path written out",
        )
    if not os.path.isabs(chosen):
        raise UsageError(
            f"{variable} is {chosen!r}, which means another place in each current directory;"
            " nothing was done.",
            f"write it as an absolute path: {variable}={shlex.quote(os.path.abspath(chosen))}",
        )
    return Path(chosen)


def moved(variable: str) -> Path | None:
    """Return the directory that an environment variable names; None if it is not set.

    Raises ``UsageError`` for a relative path, and for something that cannot be a directory, such as
    a file: it would count as empty, and the answer would be that hostprep has nothing here.
    """
    path = chosen_path(variable)
    if path is None:
        return None
    try:
        possible = stat.S_ISDIR(os.stat(path).st_mode)
    except NotADirectoryError:  # a file is in the way above it
        possible = False
    except OSError:
        return path  # it is created when needed; or whoever needs it reports the reason
    if not possible:
        raise UsageError(
            f"{variable} names {path}, which is not a directory; nothing was done.",
            "name a directory, which is made if it is not there, or unset the variable",
        )
    return path


def state_dir() -> Path:
    """Return the directory for manifests, volume records and probe results.

    ``HOSTPREP_STATE_DIR`` moves it. Ordinary users, who cannot write to ``/var/lib``, have their
    own under ``$XDG_STATE_HOME`` (``~/.local/state``).

    Raises ``Refused`` if root would use one in which somebody else can put records. Ordinary users
    may look at another user's, for instance that of an account that stages for all; changes are
    made under a lock, which checks it (``check_own_records``).
    """
    if chosen := moved("HOSTPREP_STATE_DIR"):
        if os.geteuid() == 0:
            _check_writers(chosen, f"HOSTPREP_STATE_DIR names {chosen}, which")
        return chosen
    if os.geteuid() == 0:
        return SYSTEM_STATE_DIR
    # According to the XDG specification, ignore a path that is not absolute.
    home = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.expanduser("~/.local/state")
    if not os.path.isabs(home):
        # There is no HOME, and no account with one, for instance for a container's user: an
        # unexpanded `~` would put records into a folder of that name in every current directory.
        home = "/.local/state"
    return Path(home) / "hostprep"


def host_state_dir() -> Path | None:
    """Return the directory in a user's records for what is true of this machine only.

    Several machines may share a home. None if the records are a single machine's: root's, or moved,
    except to a user's own, as by ``sudo`` with a variable.
    """
    here = state_dir() / f"on-{this_host().replace('/', '-')}"
    alone = os.geteuid() == 0 or os.environ.get("HOSTPREP_STATE_DIR")
    return None if alone and not os.path.isdir(here) else here  # closed ones are told later


def check_own_records() -> None:
    """Raise ``Refused`` if the records are in a moved directory that others can write to.

    Records decide what is removed and replaced, and which packages other hosts get. Raises
    ``UsageError`` if they, or their locks, have an impossible path.
    """
    run_dir()
    if chosen := moved("HOSTPREP_STATE_DIR"):
        _check_writers(chosen, f"HOSTPREP_STATE_DIR names {chosen}, which")


def _check_writers(directory: Path, named: str) -> None:
    # Anybody may have taken a predictable name in /tmp.
    trusted = trusted_users()
    try:
        link, status = os.lstat(directory), os.stat(directory)
    except OSError:
        return  # it is created when needed; or whoever needs it reports the reason
    place = shlex.quote(str(directory))
    cure = f"or look at whose records are in it, then chmod go-w {place}"
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in trusted:
        who, cure = f"is a symlink of uid {link.st_uid}", "or the one that it leads to"
    elif status.st_uid not in trusted:
        who = f"belongs to uid {status.st_uid}"
        cure = f"or run it as that user{squashed_hint(status.st_uid)}"
    elif status.st_mode & stat.S_IWOTH:
        who = "is writable by everybody"
        if status.st_mode & stat.S_ISVTX:  # like /tmp, which must stay that way
            cure = f"one below it will do: {place.rstrip('/')}/hostprep"
    elif os.geteuid() == 0 and status.st_mode & stat.S_IWGRP and has_acl(directory):
        who = "has an ACL that lets others write (getfacl shows whom)"  # the bits are its mask
    elif os.geteuid() == 0 and status.st_mode & stat.S_IWGRP and status.st_gid != 0:
        # With a umask of 002, the user's own group may write an ordinary user's files.
        who = f"is writable by the group {status.st_gid}"
    else:
        return
    raise Refused(
        f"{named} {who}: with records put there, others could make hostprep remove or replace"
        " what they like; nothing was changed.",
        f"name a directory that is not there yet, which is made; {cure}",
    )


def run_dir() -> Path:
    """Return the directory for locks; ``HOSTPREP_RUN_DIR`` moves it.

    Ordinary users have them next to their records, so that whoever shares those shares the locks.
    Not in ``$XDG_RUNTIME_DIR``, which cron jobs do not have, a batch job inherits from another
    host, and a logout removes: two runs that do not see each other's lock would stage to one place.
    """
    if chosen := moved("HOSTPREP_RUN_DIR"):
        return chosen
    return SYSTEM_RUN_DIR if os.geteuid() == 0 else state_dir() / "lock"


def cannot_remember(directory: Path, why: str) -> Refused:
    """Return the refusal if nothing can be recorded in ``directory``, and ``why``."""
    return Refused(
        f"hostprep could not remember what it does in {directory}: {why}; nothing was changed.",
        "fix that, or name another directory for its records: HOSTPREP_STATE_DIR=DIR",
    )


def cannot_lock(directory: Path, why: str) -> Refused:
    """Return the refusal if no lock can be made in ``directory``, and ``why``."""
    return Refused(
        f"hostprep could not lock what it works on in {directory}: {why}; nothing was changed.",
        "fix that, or name another directory for its locks: HOSTPREP_RUN_DIR=DIR",
    )


def early_run_dir() -> Path | None:
    """Return where early versions, which may be at work, have this ordinary user's locks.

    It is the user's runtime directory; None if there is none, or for root, who never had one.
    """
    if os.geteuid() == 0 or os.environ.get("HOSTPREP_RUN_DIR"):
        return None
    for runtime in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}"):
        try:
            status = os.stat(runtime)
        except OSError:
            continue
        usable = os.path.isabs(runtime) and stat.S_ISDIR(status.st_mode)
        if usable and status.st_uid == os.geteuid():
            return Path(runtime)
    return None


def readable_run_dirs() -> tuple[Path, ...]:
    """Return the directories whose locks ``status`` looks at: one's own, and the machine's.

    One's own are two while early versions may be at work.
    """
    own = run_dir()
    if os.environ.get("HOSTPREP_RUN_DIR") or own == SYSTEM_RUN_DIR:
        return (own,)
    early = early_run_dir()
    return (own, SYSTEM_RUN_DIR) if early is None else (own, early, SYSTEM_RUN_DIR)


def boot_dir() -> Path:
    """Return the directory for what is true of this boot only; ``HOSTPREP_RUN_DIR`` moves it too.

    A moved directory may survive the boot, so files in it say which boot they are from.

    Raises ``Refused`` if root would use one in which somebody else can put things. The directory
    around it may be writable for everybody, such as ``/run/lock``.
    """
    if chosen := moved("HOSTPREP_RUN_DIR"):
        boot = chosen / "boot"
        if os.geteuid() == 0:
            _check_writers(boot, f"{boot}, to which HOSTPREP_RUN_DIR leads,")
        return boot
    return SYSTEM_BOOT_DIR


def readable_state_dirs() -> tuple[Path, ...]:
    """Return the state directories that ``status`` shows: one's own, and the machine's.

    One's own are two if several machines may share them, see ``host_state_dir``.

    Ordinary users who moved theirs, as in a batch job without a home, look at the machine's too,
    because what root staged is there for them as well. If root moved it, that is the machine's.

    Raises ``HostprepError`` for one that may not be read, for instance below somebody else's HOME
    (``sudo -E``): it may say what is on this machine, so the answer "nothing" would be invented. A
    moved one is the way out of that, so next to it a closed directory of the machine is ignored.
    """
    own = state_dir()
    here = host_state_dir()
    directories = [own] if here is None else [here, own]
    if os.geteuid() != 0 and own != SYSTEM_STATE_DIR:
        directories.append(SYSTEM_STATE_DIR)
    found = []
    for directory in directories:
        try:
            os.scandir(directory).close()
        except (FileNotFoundError, NotADirectoryError):
            pass  # nothing was ever recorded there
        except OSError as error:
            if directory != own and os.environ.get("HOSTPREP_STATE_DIR"):
                continue
            raise _unreadable(directory, error) from None
        found.append(directory)
    return tuple(found)


def remembered(folder: str) -> Iterator[Path]:
    """Yield the contents of ``folder`` in each state directory, by name.

    Raises ``HostprepError`` if it cannot be listed, for the same reason; a glob would be empty.
    """
    for state in readable_state_dirs():
        try:
            names = os.listdir(state / folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _unreadable(state / folder, error) from None
        yield from (state / folder / name for name in sorted(names))


def _unreadable(directory: Path, error: OSError) -> HostprepError:
    another = "; or name another directory for records of your own: HOSTPREP_STATE_DIR=DIR"
    if error.errno in LIMIT_HINTS:  # this is not the directory's fault
        hint = LIMIT_HINTS[error.errno]
    elif error.errno in (errno.EACCES, errno.EPERM):
        hint = f"run it as the user whose records they are{another}"
    else:
        hint = f"fix that and run the same command again (dmesg may say more){another}"
    return HostprepError(
        f"hostprep's records in {directory} cannot be read: {error.strerror}; nothing was changed.",
        hint,
    )
