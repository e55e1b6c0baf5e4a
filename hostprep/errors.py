"""Errors as part of the product: a message, a hint, and the exit code that scripts rely on.

Raised where the cause is known, printed in one place (``hostprep.cli.output``).
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

    ``message`` says what happened and what was not touched; ``hint`` says what to do about it, and
    ``spec_hint`` the same to who has a spec file in place of a command's options: not given, it is
    the hint. ``beside`` are fields that the document of ``--json`` has beside the error: what was
    done before it, where that was something.
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
        # Between processes a subclass travels without its constructor, whatever that takes.
        return type(self).__new__, (type(self), *self.args), self.__dict__


# What a disk answers that fails, or a file system that was shut down for it.
OF_A_DISK = {
    *(errno.EIO, errno.EREMOTEIO, errno.EUCLEAN, errno.EBADMSG),
    *(errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN),
}
# What a share answers whose server or program is not there, or has forgotten it. Soft mounts of NFS
# give EIO too.
OF_A_SERVER = {
    *(errno.ESTALE, errno.ENOTCONN, errno.ECONNABORTED),
    *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT),
}
# What comes of a file system whose server, program or device has gone, each time after a while.
SERVER_GONE = OF_A_SERVER | {errno.EIO}
# Limits that any step may meet, and what to do about them.
LIMIT_HINTS = {
    errno.EAGAIN: "a limit on processes is reached: raise `ulimit -u`, or pids.max of the control"
    " group (TasksMax of a service)",
    errno.EMFILE: "a limit on open files is reached: raise `ulimit -n`",
    errno.ENFILE: "the machine's limit on open files is reached: raise it (sysctl fs.file-max)",
    errno.ENOMEM: "free some memory, and run the same command again",
}
# What is wrong with a path itself, whatever disk it would lie on.
_PATH_HINTS = {
    errno.ELOOP: "its symlinks lead in a circle: `namei -l` with the path shows which",
    errno.ENAMETOOLONG: "no path may be that long: is it the one that is meant?",
}
# Of what cannot be told any better.
MEND_HINT = "mend that (dmesg may say more), and run the same command again"
# Of what root itself is refused; who runs as another user may have the right to it.
ROOT_KEPT_OUT = (
    "root may be kept out by a server (NFS: root_squash), or by a mount of a user's own (sshfs"
    " without allow_other)"
)
# What a kernel answers where the host is at fault, whoever asks: disks, shares, limits, rights.
_OF_THE_HOST = {
    *(errno.ENOLCK, errno.EBUSY, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    *(errno.EACCES, errno.EPERM, *OF_A_DISK, *OF_A_SERVER, *LIMIT_HINTS),
}


def failed_by_host(error: Exception) -> HostprepError | None:
    """Return what to say where the host failed a step: its disk, its memory, one of its limits.

    Such an error may come at any call; None for any other, which is our own mistake.
    """
    if isinstance(error, MemoryError):
        hint = LIMIT_HINTS[errno.ENOMEM]
        return HostprepError("memory ran out before the command was done.", hint)
    if not isinstance(error, OSError) or error.errno not in _OF_THE_HOST:
        return None
    where = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, str | bytes) else ""
    return HostprepError(f"the host failed a step: {error.strerror}{where}.", reading_hint(error))


def reading_hint(error: OSError) -> str:
    """Return what to do where the system did not let us look at something, or do it."""
    if error.errno in LIMIT_HINTS:
        return LIMIT_HINTS[error.errno]
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0:
        return "run it with sudo, or have it opened to you"
    if error.errno == errno.EACCES:
        return f"{ROOT_KEPT_OUT}: `findmnt -T` with the path shows it; dmesg may say more"
    if error.errno in OF_A_SERVER:
        return "mount it anew, once its server is there, and run the same command again"
    return _PATH_HINTS.get(error.errno or 0, MEND_HINT)


def one_line(text: str) -> str:
    """Return ``text`` with control characters, line ends and undecodable bytes as escapes.

    For names from strangers in a list, where a line end would look like one of ours.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class Stopped(HostprepError):
    """Stopped from outside, for a reason that is known: nothing else is to be begun after it."""


class UsageError(HostprepError):
    """The command line or an input file is wrong; nothing was started."""

    exit_code = 2
    code = "usage"


class Inconclusive(HostprepError):
    """Not tested, or no verdict possible; must never be taken for a pass."""

    exit_code = 4
    code = "inconclusive"


class Refused(HostprepError):
    """A safety rule refused the operation before anything was changed."""

    exit_code = 5
    code = "refused"


class NoRoom(Refused):
    """What is wanted somewhere does not fit there beside what there is."""


class Interrupted(HostprepError):
    """Stopped by Ctrl-C, SIGTERM or the end of its terminal."""

    exit_code = 130
    code = "interrupted"


def without_claim(message: str) -> str:
    """Return an error's words without the last of them that nothing was changed."""
    return re.sub(r"[;.] nothing was changed\.$", ".", message, flags=re.IGNORECASE)


def claim_of_it(message: str) -> str:
    """Return an error's words with their last, that nothing was changed, about its object alone."""
    return re.sub(r"([;.] nothing) was changed\.$", r"\1 of it was changed.", message, flags=re.I)


@contextmanager
def after_changes() -> Iterator[None]:
    """Take from errors of the body their word that nothing was changed: by now something was.

    Who reads a record or a mount table does not know that. A refusal's code says the same as its
    words, so those are left as they are.
    """
    try:
        yield
    except Refused:
        raise
    except HostprepError as error:
        error.message = without_claim(error.message)
        raise


class MissingTool(HostprepError):
    """A system command that is needed is not installed, or ansible-core, which has a ``hint``."""

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
