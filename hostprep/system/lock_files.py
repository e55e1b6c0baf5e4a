"""Lock files of our own, even in a directory where everybody may create files.

/run/lock is one on Debian: somebody may take a lock's name there before root does, with a file of
theirs, a directory, a fifo, or a symlink. That is not a lock for root's runs, and is moved aside,
except for something that they mounted there, which root has to unmount.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from hostprep.errors import LIMIT_HINTS, HostprepError
from hostprep.system.renaming import exchange
from hostprep.system.state import boot_dir, squashed_hint, state_dir

# Neither follow links nor wait for pipes.
FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_RDWR | FLAGS | os.O_CREAT | os.O_EXCL
_OTHERS_WRITE = 0o022
# Somebody may keep creating and removing one with that name.
_TRIES = 20


def open_lock(path: Path) -> int:
    """Open a lock file, creating it if there is none; return its descriptor.

    Raises ``HostprepError`` if that is impossible, or if it is one that somebody else could keep
    from us.
    """
    shared = _is_for_all(path.parent)
    problem: HostprepError | None = None
    for _ in range(_TRIES):
        try:
            # O_CREAT is left out if the file exists, because fs.protected_regular refuses it to
            # root for other users' files.
            return _checked(os.open(path, os.O_RDWR | FLAGS), path)
        except FileNotFoundError:
            problem = None
        except OSError as error:
            problem = no_lock(path, error)
        except HostprepError as error:
            problem = error
        with _alone() if shared else nullcontext(False) as alone:
            if problem is None:
                with suppress(FileExistsError):
                    return _make(path)
            elif not alone:
                raise problem
            elif _is_of_others(path):
                _put_aside(path, problem)
    raise problem or HostprepError(
        f"the lock file {path} comes and goes; something else uses its name."
    )


def fault_of(descriptor: int) -> str | None:
    """Say why an open file is not a lock of ours, None if it is one."""
    status = os.fstat(descriptor)
    keeps = "whoever made it could keep hostprep waiting for ever"
    if not stat.S_ISREG(status.st_mode):
        return f"is not a regular file: {keeps}"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to uid {status.st_uid}: {keeps}"
    if status.st_nlink > 1:
        return "is a hard link to another file, which the note of who has the lock would overwrite"
    return None


def no_lock(path: Path, error: OSError, failed: str = "opened") -> HostprepError:
    """Return the error if the system does not let us have the lock file."""
    hint = "hostprep's run directory can be moved with HOSTPREP_RUN_DIR"
    of_service = "RuntimeDirectory=NAME and Environment=HOSTPREP_RUN_DIR=%t/NAME"
    beside_records = path.parent == state_dir() / "lock"
    # An ordinary user's; the records would fail next. A directory that was named does not move with
    # them.
    if beside_records and "HOSTPREP_RUN_DIR" not in os.environ:
        hint = "locks and records can be moved: export HOSTPREP_STATE_DIR=DIR"
        of_service = "StateDirectory=NAME and Environment=HOSTPREP_STATE_DIR=%S/NAME"
    if error.errno in LIMIT_HINTS and failed != "locked":  # this is not the directory's fault
        hint = LIMIT_HINTS[error.errno]
    if error.errno == errno.EROFS:
        if path.parent.is_dir():
            hint += f"; a systemd service with ProtectSystem= needs ReadWritePaths={path.parent}"
        else:  # named there, it would keep the service from starting
            hint += f"; a systemd service with ProtectSystem= or DynamicUser= needs {of_service}"
    if error.errno in (errno.ELOOP, errno.EISDIR):  # anybody may have made one of that name
        hint = f"remove it: rm -d {shlex.quote(str(path))}"
    if error.errno in (errno.EACCES, errno.ENOTCONN) and os.geteuid() == 0:
        hint = f"a user may have mounted something there: umount {shlex.quote(str(path))}"
    # A directory that was chosen may be root's, and then sudo helps; the user's own is in HOME.
    chosen = not beside_records or "HOSTPREP_STATE_DIR" in os.environ
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0 and chosen:
        hint = f"run it with sudo; for a run of one's own, {hint}"
    return HostprepError(
        f"the lock file {path} cannot be {failed}: {error.strerror}; nothing was changed.", hint
    )


def _checked(descriptor: int, path: Path) -> int:
    if (fault := fault_of(descriptor)) is None:
        return descriptor
    hint = f"remove it: rm {shlex.quote(str(path))}"
    if path.parent == state_dir() / "lock":  # an ordinary user's, perhaps in a home on a server
        hint += squashed_hint(os.fstat(descriptor).st_uid)
    os.close(descriptor)
    raise HostprepError(f"the lock file {path} {fault}; nothing was changed.", hint)


def _is_for_all(directory: Path) -> bool:
    """Whether others may create files in a directory of root's; those are not locks of ours.

    They cannot remove what root creates there. If root uses a user's records, as by `sudo` with
    variables, it also uses that user's locks.
    """
    if os.geteuid() != 0:
        return False
    try:
        status = os.stat(directory)
        records = state_dir()
        if records.exists() and os.stat(records).st_uid != 0:
            return False
    except OSError:
        return False  # whoever needs it reports the reason
    kept = status.st_uid == 0 and status.st_mode & stat.S_ISVTX
    return bool(kept and status.st_mode & _OTHERS_WRITE)


def _make(path: Path) -> int:
    try:
        return os.open(path, _NEW, 0o600)
    except FileExistsError:
        raise
    except OSError as error:
        raise no_lock(path, error, "made") from None


@contextmanager
def _alone() -> Iterator[bool]:
    """Keep root's other runs from creating lock files in the body; False if that is impossible.

    Otherwise, what one run moves aside might be what another has just created there, and locked.
    """
    descriptor = -1
    try:
        boot_dir().mkdir(mode=0o755, parents=True, exist_ok=True)
        guard = boot_dir() / "making-locks"  # checked again: somebody may have created it before us
        descriptor = os.open(guard, os.O_RDWR | os.O_CREAT | FLAGS, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except (OSError, HostprepError):
        alone = False
    else:
        alone = True
    try:
        yield alone
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _is_of_others(path: Path) -> bool:
    """Whether a name is somebody else's: root has opened no file of its own as a lock there."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:  # root learns nothing about what a user has mounted there (FUSE)
        return True
    return status.st_uid != 0


def _put_aside(path: Path, problem: HostprepError) -> None:
    """Put the lock file in the place of what others made, which gets another name next to it.

    In one step, because whoever keeps creating one would otherwise be faster.
    """
    aside = path.with_name(f"hostprep-put-aside-{os.urandom(4).hex()}.lock")
    os.close(_make(aside))
    try:
        exchange(aside, path)
    except OSError as error:
        os.unlink(aside)
        if not isinstance(error, FileNotFoundError):  # otherwise they have removed it
            raise problem from None
