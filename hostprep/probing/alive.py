"""Whether a path answers at all: looked at by a child that can be left behind.

A call on a dead network mount may never return, and cannot always be killed. So a child makes the
first look, and nobody waits for it longer than this.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import stat
import time

from hostprep.errors import HostprepError, Inconclusive, UsageError

PATIENCE_SECONDS = 4.0


class NoAnswer(Inconclusive):
    """The file system under the path does not answer."""

    code = "no_answer"


def look(path: str, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Return where ``path`` is a folder that can be listed; else raise what is wrong with it.

    ``NoAnswer`` where it hangs, ``UsageError`` where it is missing or no folder, ``HostprepError``
    where it may not be read.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _look_and_tell(path, writer)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], patience_seconds)
        said = os.read(reader, 4096) if ready else b""
    finally:
        os.close(reader)
        _leave(child)
    if not ready:
        raise NoAnswer(
            f"{path} does not answer: listing it took more than {patience_seconds:g} s. "
            "Nothing was measured.",
            "a network mount whose server is gone? `findmnt -T PATH` shows it, "
            "`umount --lazy --force` takes it away",
        )
    if not said:
        raise HostprepError(f"{path} could not be looked at; nothing was measured.")
    _complain(path, json.loads(said))


def _look_and_tell(path: str, writer: int) -> None:
    """In the child: look, write what was seen into the pipe, and end without any clean-up.

    It closes whatever else is open: stuck, it would keep the reader of our output waiting.
    """
    os.closerange(0, writer)
    os.closerange(writer + 1, 1 << 16)
    try:
        try:
            is_folder = stat.S_ISDIR(os.stat(path).st_mode)
            if is_folder:
                with os.scandir(path) as entries:
                    next(entries, None)
                os.statvfs(path)
            seen: dict[str, object] = {"folder": is_folder}
        except OSError as error:
            seen = {"errno": error.errno, "words": error.strerror}
        os.write(writer, json.dumps(seen).encode())
    finally:
        os._exit(0)


def _complain(path: str, seen: dict[str, object]) -> None:
    if seen.get("folder"):
        return
    if "folder" in seen:
        raise UsageError(f"{path} is not a folder; nothing was measured.", "name its folder")
    if seen["errno"] == errno.ENOENT:
        raise UsageError(f"{path} does not exist; nothing was measured.")
    if seen["errno"] in (errno.EACCES, errno.EPERM):
        raise HostprepError(f"{path} may not be read; nothing was measured.", "run it as root")
    if seen["errno"] in (errno.ESTALE, errno.ENOTCONN, errno.EIO, errno.EHOSTDOWN):
        raise NoAnswer(f"{path} answers with an error: {seen['words']}. Nothing was measured.")
    raise HostprepError(f"{path} could not be read: {seen['words']}; nothing was measured.")


def _leave(child: int) -> None:
    """End the child; one that is stuck in the kernel stays, and goes when its call returns."""
    deadline = time.monotonic() + 0.5
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        os.kill(child, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
