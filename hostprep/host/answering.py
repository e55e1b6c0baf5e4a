"""Paths on network file systems that do not answer: waited for so that it is told, or passed over.

A call on a mount whose server is gone waits for as long as that takes, in the kernel, which lets
only signals through that kill: Python's Ctrl-C does not come to its turn. So a child asks.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from hostprep.errors import Inconclusive
from hostprep.host.block import is_remote
from hostprep.host.mounts import lies_in, read_mounts
from hostprep.system.bounded import NoAnswerInTime, ask_in_child
from hostprep.system.forking import NoProcess

# How long who only looks waits for a path.
PATIENCE_SECONDS = 4.0
# After how long it is said that a path does not answer, and how often again.
_FIRST_SECONDS, _AGAIN_SECONDS = 5.0, 60.0
_STOPPED_SECONDS = 2.0


class NoAnswer(Inconclusive):
    """The file system under a path does not answer."""

    code = "no_answer"


def no_answer(words: str, cure: str = "`umount --lazy --force` takes it away") -> NoAnswer:
    """Return the error of a path that hangs; ``cure`` is what to do until the server is back."""
    return NoAnswer(
        words,
        "a network mount, there or below, whose server is gone? `findmnt -T PATH` shows it;"
        f" {cure}",
    )


def wait_for_answers(paths: Iterable[str], note: Callable[[str], None]) -> None:
    """Return when all of ``paths`` have answered, if only with an error.

    That is at once where no network file system and no automount is there. ``note`` is told who
    keeps us waiting.
    """
    if not _may_hang():
        return
    for path in paths:
        # Then who opens it next finds out; or does so in silence, where no child is allowed.
        with contextlib.suppress(ChildProcessError, NoProcess):
            ask_in_child(
                lambda path=path: _touch(path),  # type: ignore[misc]
                patience_seconds=math.inf,
                on_wait=Impatience(path, note).waited,
            )


def silent_ones(paths: Sequence[str], patience_seconds: float) -> frozenset[str]:
    """Return those of ``paths`` that have not answered in time, all asked side by side.

    None at once where no network file system and no automount is there.
    """
    if not paths or not _may_hang():
        return frozenset()

    def ask() -> list[str]:
        deadline = time.monotonic() + patience_seconds
        asking = {
            path: threading.Thread(target=_touch, args=(path,), daemon=True) for path in paths
        }
        for thread in asking.values():
            thread.start()
        for thread in asking.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        return [path for path, thread in asking.items() if thread.is_alive()]

    try:
        return frozenset(ask_in_child(ask, patience_seconds=2 * patience_seconds))
    except NoAnswerInTime:
        return frozenset(paths)
    except (ChildProcessError, NoProcess):  # then who opens them next finds out
        return frozenset()


def _may_hang() -> bool:
    # Where the path leads by symlinks is not looked at: that alone may hang. Who looks into an
    # automount waits for its server too, before there is a mount of that. The one that systemd
    # keeps below /proc on each host waits for none.
    return any(
        is_remote(mount) or (mount.fstype == "autofs" and not lies_in(mount.target, "/proc"))
        for mount in read_mounts()
    )


def _touch(path: str) -> None:
    with contextlib.suppress(OSError):
        os.stat(path)
        os.statvfs(path)  # what a network file system does not answer from its cache
        os.scandir(path).close()


class Impatience:
    """Says now and then that a path does not answer."""

    def __init__(self, path: str, note: Callable[[str], None]) -> None:
        self._path, self._note = path, note
        self._due_seconds = _FIRST_SECONDS

    def waited(self, seconds: float) -> None:
        """Be told how long it was waited so far."""
        if seconds < self._due_seconds:
            return
        self._note(
            f"waiting for {self._path}, which has not answered for {seconds:.0f} s: is its server"
            " gone? `findmnt -T PATH` names it; Ctrl-C ends the waiting"
        )
        self._due_seconds = seconds + _AGAIN_SECONDS


class Standstill:
    """Says now and then that nothing comes from a path any more, of work that others do there."""

    def __init__(self, path: str, note: Callable[[str], None]) -> None:
        self._path, self._note = path, note
        self._done: object = None
        self._since_seconds = self._seen_seconds = -math.inf

    def seen(self, done: object, now_seconds: float) -> None:
        """Be told again and again what is ``done``: while that is the same, it is waited."""
        # Who was stopped or frozen in between (Ctrl-Z) has not waited.
        stopped = now_seconds - self._seen_seconds > _STOPPED_SECONDS
        self._seen_seconds = now_seconds
        if done != self._done or stopped:
            self._done, self._since_seconds = done, now_seconds
            self._impatience = Impatience(self._path, self._note)
        self._impatience.waited(now_seconds - self._since_seconds)
