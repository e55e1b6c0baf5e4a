"""Errors as part of the product: a message, a hint, and the exit code that scripts rely on.

They are raised where the cause is known, and printed in one place (``hostprep.cli.output``).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class HostprepError(Exception):
    """An operation failed.

    ``message`` says what happened and what was not touched. ``hint`` says what to do about it, and
    ``spec_hint`` the same for someone who uses a spec file instead of a command's options; it
    defaults to the hint. ``beside`` are further fields for the document of ``--json``: what was
    done before the error, if anything.
    """

    exit_code = 1
    code = "failed"

    def __init__(
        self, message: str, hint: str | None = None, *, spec_hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.spec_hint = hint if spec_hint is None else spec_hint
        self.beside: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled in another process without calling the constructor, whatever its parameters.
        return type(self).__new__, (type(self), *self.args), self.__dict__


# Errors of a disk that fails, or of a file system that was shut down because of it.
OF_A_DISK = {
    *(errno.EIO, errno.EREMOTEIO, errno.EUCLEAN, errno.EBADMSG),
    *(errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN),
}
# Errors of a share whose server or program is not there, or does not know it any more. Soft NFS
# mounts return EIO too.
OF_A_SERVER = {
    *(errno.ESTALE, errno.ENOTCONN, errno.ECONNABORTED),
    *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT),
}
# Errors of a file system whose server, program or device has gone; each may take a while to come.
SERVER_GONE = OF_A_SERVER | {errno.EIO}
# Limits that any step may hit, and what to do about them.
LIMIT_HINTS = {
    errno.EAGAIN: "a limit on processes is reached: raise `ulimit -u`, or pids.max of the control"
    " group (TasksMax of a service)",
    errno.EMFILE: "a limit on open files is reached: raise `ulimit -n`",
    errno.ENFILE: "the machine's limit on open files is reached: raise it (sysctl fs.file-max)",
    errno.ENOMEM: "free some memory, and run the same command again",
}
# For errors of ``OF_A_SERVER``.
MOUNT_ANEW = "mount it anew, once its server is there"
# Errors of a path itself, whatever disk it is on.
_PATH_HINTS = {
    errno.ELOOP: "its symlinks lead in a circle: `namei -l` with the path shows which",
    errno.ENAMETOOLONG: "no path may be that long: is it the one that is meant?",
}
# For errors about which nothing more specific is known.
MEND_HINT = "fix that (dmesg may say more), and run the same command again"
# For something that root itself may not do; the user who runs the program may have that right.
ROOT_KEPT_OUT = (
    "root may be kept out by a server (NFS: root_squash), by a mount of a user's own (sshfs without"
    " allow_other), or in a container (by --cap-drop, or because its root is an ordinary user of"
    " the host)"
)
# Errors that are the host's fault, whoever asks: disks, shares, limits, rights.
_OF_THE_HOST = {
    *(errno.ENOLCK, errno.EBUSY, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    *(errno.EACCES, errno.EPERM, *OF_A_DISK, *OF_A_SERVER, *LIMIT_HINTS),
}


def failed_by_host(error: Exception) -> HostprepError | None:
    """Return an error for a step that failed because of the host: its disk, memory or limits.

    Such an error may be raised by any call; None for all others, which are our own mistakes.
    """
    if isinstance(error, MemoryError):
        hint = LIMIT_HINTS[errno.ENOMEM]
        return HostprepError("memory ran out before the command was done.", hint)
    if not isinstance(error, OSError) or error.errno not in _OF_THE_HOST:
        return None
    said = f"{error.strerror}{where_in(error)}"
    return HostprepError(f"the host failed a step: {said}.", reading_hint(error))


def named_in(error: OSError) -> str | None:
    """Return the path that an error names, None if it names none.

    Errors of calls by descriptor have its number instead of a path, which tells nobody anything.
    """
    named = error.filename2 or error.filename
    return os.fsdecode(named) if isinstance(named, str | bytes) else None


def where_in(error: OSError) -> str:
    """Return in brackets the path that an error names, to follow its text; nothing without one."""
    named = named_in(error)
    return "" if named is None else f" ({named})"


def reading_hint(error: OSError) -> str:
    """Return what to do if the system refused to let us read, or do, something."""
    if error.errno in LIMIT_HINTS:
        return LIMIT_HINTS[error.errno]
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0:
        return "run it with sudo, or have its owner give you access"
    if error.errno == errno.EACCES:
        return f"{ROOT_KEPT_OUT}: `findmnt -T` with the path shows it; dmesg may say more"
    if error.errno in OF_A_SERVER:
        return f"{MOUNT_ANEW}, and run the same command again"
    return _PATH_HINTS.get(error.errno or 0, MEND_HINT)


def limit_hint(words: str) -> str | None:
    """Return what to do about a limit that the words of an error name; None for other errors."""
    return next((hint for code, hint in LIMIT_HINTS.items() if words == os.strerror(code)), None)


def one_line(text: str) -> str:
    """Return ``text`` with control characters, line ends and undecodable bytes as escapes.

    For names from strangers in a list, where a line break would look like one of ours.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class Stopped(HostprepError):
    """Stopped from outside, for a known reason: nothing else should be started after it."""


class UsageError(HostprepError):
    """The command line or an input file is wrong; nothing was started."""

    exit_code = 2
    code = "usage"


class Inconclusive(HostprepError):
    """Something was not tested, or no verdict is possible; never to be taken for a pass."""

    exit_code = 4
    code = "inconclusive"


class Refused(HostprepError):
    """A safety rule refused the operation before anything was changed."""

    exit_code = 5
    code = "refused"


class NoRoom(Refused):
    """Something does not fit where it is wanted, beside what is already there."""


class Interrupted(HostprepError):
    """Stopped by Ctrl-C, SIGTERM or the end of its terminal."""

    exit_code = 130
    code = "interrupted"


def without_claim(message: str) -> str:
    """Return an error's message without its final claim that nothing was changed."""
    return re.sub(r"[;.] nothing was changed\.$", ".", message, flags=re.IGNORECASE)


def claim_of_it(message: str) -> str:
    """Return an error's message with its claim, nothing was changed, about its object only."""
    return re.sub(r"([;.] nothing) was changed\.$", r"\1 of it was changed.", message, flags=re.I)


@contextmanager
def after_changes() -> Iterator[None]:
    """Remove from errors of the body the claim that nothing was changed: by now something was.

    The code that reads a record or a mount table does not know that. Refusals are left as they are,
    because their exit code makes the same claim.
    """
    try:
        yield
    except Refused:
        raise
    except HostprepError as error:
        error.message = without_claim(error.message)
        raise


class MissingTool(HostprepError):
    """A system command that is needed, or ansible-core (with a ``hint``), is not installed."""

    code = "missing_tool"

    def __init__(
        self, tool: str, *, wanted_for: str, package: str | None = None, hint: str | None = None
    ) -> None:
        if hint is None:
            install = f"install it: apt-get install {package}"
            hint = install if package else f"put {tool} on the PATH"
        super().__init__(f"{tool} is not installed; it is needed to {wanted_for}.", hint)
        self.tool = tool
        self.package = package
