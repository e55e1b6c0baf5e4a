"""Whether a path answers at all: a child looks, because it can be left behind.

A call on a dead network mount may never return, and cannot always be killed. So a child makes the
first call, and the parent waits only for a limited time.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

from hostprep.errors import ROOT_KEPT_OUT, SERVER_GONE, HostprepError, UsageError, reading_hint
from hostprep.host.answering import PATIENCE_SECONDS, NoAnswer, no_answer
from hostprep.host.fscrypt import locked_out
from hostprep.system.bounded import NoAnswerInTime, ask_in_child


def check_listable(path: str, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Raise what is wrong with ``path`` unless it is a folder that can be listed.

    ``NoAnswer`` if it hangs, ``UsageError`` if it is missing or no folder, ``HostprepError`` if it
    may not be read, or is encrypted and locked.
    """
    try:
        seen = ask_in_child(lambda: _see(path), patience_seconds=patience_seconds)
    except NoAnswerInTime:
        raise no_answer(
            f"{path} does not answer: listing it took more than {patience_seconds:g} s. "
            "Nothing was measured."
        ) from None
    except ChildProcessError:
        raise HostprepError(
            f"{path} could not be looked at; nothing was measured.",
            "run the same command again; dmesg may say what ended the look",
        ) from None
    _complain(path, seen)


def _see(path: str) -> dict[str, Any]:
    """In the child: return what is at ``path``, its error, or that it is encrypted and locked."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        if is_folder:
            with os.scandir(path) as entries:
                next(entries, None)
            os.stat(os.path.join(path, "."))  # permission to list it is not enough
            os.statvfs(path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            return {"errno": error.errno, "words": error.strerror}
        is_folder = None
    if locked := locked_out(path):
        return {"locked": locked}
    if is_folder is None:
        return {"errno": errno.ENOENT}
    return {"folder": is_folder}


def _complain(path: str, seen: dict[str, Any]) -> None:
    if seen.get("folder"):
        return
    if "locked" in seen:
        said, cure = seen["locked"]
        raise HostprepError(f"{path} {said}; nothing was measured.", cure)
    if "folder" in seen:
        raise UsageError(f"{path} is not a folder; nothing was measured.", "name its folder")
    if seen["errno"] == errno.ENOENT:
        raise UsageError(
            f"{path} does not exist; nothing was measured.", "name a folder that exists"
        )
    if seen["errno"] in (errno.EACCES, errno.EPERM):
        hint = "run it as root"
        if os.geteuid() == 0:
            hint = f"{ROOT_KEPT_OUT}: run it as a user who may read it"
        raise HostprepError(f"{path} may not be read; nothing was measured.", hint)
    if seen["errno"] in SERVER_GONE:
        raise NoAnswer(
            f"{path} answers with an error: {seen['words']}. Nothing was measured.",
            "is the device, or the server, still there? see `dmesg`",
        )
    raise HostprepError(
        f"{path} could not be read: {seen['words']}; nothing was measured.",
        reading_hint(OSError(seen["errno"], seen["words"])),
    )
