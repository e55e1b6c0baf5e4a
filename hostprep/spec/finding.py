"""Where the spec file is, and its bytes: from nobody whom root should not obey."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from hostprep.errors import HostprepError, Refused, UsageError, reading_hint
from hostprep.system.accounts import trusted_users
from hostprep.system.trees import NAMED_FILE_FLAGS

LOCAL_SPEC = Path("hostprep.yml")
SYSTEM_SPEC = Path("/etc/hostprep/hostprep.yml")
MOST_BYTES = 256 * 1024


def find_spec() -> Path | None:
    """Return the spec file: ``HOSTPREP_SPEC``, else ``./hostprep.yml``, else the system's, or None.

    Raises ``UsageError`` where the variable names a file that is not there: to take another one
    instead would act on what nobody meant.
    """
    if moved := os.environ.get("HOSTPREP_SPEC"):
        if not os.path.lexists(moved):
            raise UsageError(
                f"HOSTPREP_SPEC names {moved}, which does not exist.",
                "write that file, or unset the variable",
            )
        return Path(moved)
    # A link that leads nowhere counts as found: to pass over it would be to guess.
    return next((path for path in (LOCAL_SPEC, SYSTEM_SPEC) if os.path.lexists(path)), None)


def read_spec_bytes(path: Path, *, named: bool) -> bytes:
    """Return the content of the spec file, at most ``MOST_BYTES``.

    A file that was found, not ``named`` by the user, is obeyed by root only where nobody else can
    write it; it is judged by its descriptor, so that it cannot be exchanged in between. Raises
    ``Refused`` for that, ``UsageError`` for what can be no spec, ``HostprepError`` for what the
    system does not let us read.
    """
    flags = NAMED_FILE_FLAGS
    if os.geteuid() == 0 and not named and not _is_trusted_link(path):
        flags |= os.O_NOFOLLOW  # one that takes the file's place only now
    _check_no_device(path)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise UsageError(f"the spec file {path} does not exist.", "name another") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path} is a directory.", f"name the file: {path / LOCAL_SPEC}")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is not a regular file.", "name the spec file")
        if os.geteuid() == 0 and not named:
            _check_writers(path, status)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(descriptor)
    if len(content) > MOST_BYTES:
        raise UsageError(
            f"{path} is larger than {MOST_BYTES // 1024} KiB; no spec is that large.",
            "is it the right file?",
        )
    return content


def _check_no_device(path: Path) -> None:
    """Raise for a device without opening it, which alone has some act, as a watchdog or a tape."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # the open says what is wrong
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise UsageError(f"{path} is a device.", "name the spec file")


def _is_trusted_link(path: Path) -> bool:
    """Return whether it is a symlink; raise where somebody else's decides which file root reads."""
    try:
        status = os.lstat(path)
    except OSError:
        return False  # the open says what is wrong
    if not stat.S_ISLNK(status.st_mode):
        return False
    if status.st_uid not in trusted_users():
        raise _refusal(path, f"is a symlink of uid {status.st_uid}", "chown -h root:")
    return True


def _check_writers(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in trusted_users():
        raise _refusal(path, f"belongs to uid {status.st_uid}", "chown root:")
    if status.st_mode & stat.S_IWOTH:
        raise _refusal(path, "is writable by everybody", "chmod go-w")
    # With an ACL these bits are its mask, which covers every user and group named in it.
    if status.st_mode & stat.S_IWGRP:
        raise _refusal(path, f"is writable by the group {status.st_gid}", "chmod g-w")


def _refusal(path: Path, reason: str, remedy: str) -> Refused:
    return Refused(
        f"{path} {reason}, who could make root mount and copy what they like; it was not read and"
        " nothing was changed.",
        f"look at what it says, then `{remedy} {shlex.quote(str(path))}`",
    )


def _unreadable(path: Path, error: OSError) -> HostprepError:
    return HostprepError(
        f"the spec file {path} cannot be read: {error.strerror}; nothing was changed.",
        reading_hint(error),
    )
