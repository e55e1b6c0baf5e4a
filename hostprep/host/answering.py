"""Paths on network file systems that do not answer: waited for with a notice, or passed over.

A call on a mount whose server is gone blocks in the kernel until the server is back, and only fatal
signals interrupt it: Python never gets to handle Ctrl-C. So a child makes the call.
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
from hostprep.host.mounts import Mount, lies_in, read_mounts
from hostprep.system.bounded import NoAnswerInTime, ask_in_child
from hostprep.system.forking import NoProcess

# How long a caller that only looks waits for a path.
PATIENCE_SECONDS = 4.0
# After how long to report that a path does not answer, and how often to repeat that.
_FIRST_SECONDS, _AGAIN_SECONDS = 5.0, 60.0
_STOPPED_SECONDS = 2.0
# How long a path is asked that may have brought others' work to a halt.
_ASKED_SECONDS = 1.0


class NoAnswer(Inconclusive):
    """The file system of a path does not answer."""

    code = "no_answer"


# findmnt with the path (-T) would hang as well.
WHICH_MOUNT = "`findmnt --real` lists what is mounted where"


def no_answer(words: str, cure: str = "`umount --lazy --force` detaches it") -> NoAnswer:
    """Return the error for a path that hangs; ``cure`` is what to do until the server is back."""
    return NoAnswer(
        words,
        f"a network mount, there or below, whose server is gone? {WHICH_MOUNT}; {cure}",
    )


def wait_for_answers(paths: Iterable[str], note: Callable[[str], None]) -> None:
    """Return when all of ``paths`` have answered, if only with an error.

    That is at once if there is no network file system and no automount. ``note`` is told which path
    it is waiting for.
    """
    if not _may_hang():
        return
    for path in paths:
        # Otherwise the next one to open it finds out; silently, if no child process is allowed.
        with contextlib.suppress(ChildProcessError, NoProcess):
            ask_in_child(
                lambda path=path: _touch(path),  # type: ignore[misc]
                patience_seconds=math.inf,
                on_wait=Impatience(path, note).waited,
            )


def silent_ones(
    paths: Sequence[str],
    patience_seconds: float,
    on_wait: Callable[[float], None] | None = None,
) -> frozenset[str]:
    """Return those of ``paths`` that have not answered in time; all are asked in parallel.

    Returns none of them at once if there is no network file system and no automount. ``on_wait`` is
    told every second how many have passed.
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
        asked = ask_in_child(ask, patience_seconds=2 * patience_seconds, on_wait=on_wait)
    except NoAnswerInTime:
        return frozenset(paths)
    except (ChildProcessError, NoProcess):  # then the next one to open them finds out
        return frozenset()
    return frozenset(asked)


def _may_hang() -> bool:
    # Where symlinks of the path lead is not checked, because that alone may hang. Looking into an
    # automount waits for its server too, before there is a mount of it. The one that systemd keeps
    # below /proc on each host waits for none.
    return any(map(may_hang, read_mounts()))


def may_hang(mount: Mount) -> bool:
    """Whether what lies on a mount may stop answering."""
    return is_remote(mount) or (mount.fstype == "autofs" and not lies_in(mount.target, "/proc"))


def _touch(path: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            try:
                os.stat(path)
                break
            except FileNotFoundError:  # that may come from a cache as well
                path = os.path.dirname(path) or os.curdir
        os.statvfs(path)  # something a network file system does not answer from its cache
        os.scandir(path).close()


class Impatience:
    """Reports now and then that a path does not answer."""

    def __init__(self, path: str, note: Callable[[str], None]) -> None:
        self._path, self._note = path, note
        self._due_seconds = _FIRST_SECONDS

    def waited(self, seconds: float) -> None:
        """Take note of how long the wait has been so far."""
        if seconds < self._due_seconds:
            return
        self._note(
            f"waiting for {self._path}, which has not answered for {seconds:.0f} s: is its server"
            f" gone? {WHICH_MOUNT}; Ctrl-C ends the waiting"
        )
        self._due_seconds = seconds + _AGAIN_SECONDS


class Standstill:
    """Reports now and then that others' work on a path makes no progress any more.

    If that may be ``doubted``, because the work may also wait for something else, it first asks the
    path and the network mounts in it, and reports nothing as long as these answer.
    """

    def __init__(self, path: str, note: Callable[[str], None], *, doubted: bool = False) -> None:
        self._path, self._note, self._doubted = path, note, doubted
        self._sure, self._ask_seconds = False, math.inf
        self._done: object = None
        self._since_seconds = self._seen_seconds = -math.inf

    def seen(self, done: object, now_seconds: float) -> None:
        """To be called repeatedly with what is ``done``: as long as that is the same, it waits."""
        # If this process was stopped or frozen in between (Ctrl-Z), it has not waited.
        stopped = now_seconds - self._seen_seconds > _STOPPED_SECONDS
        self._seen_seconds = now_seconds
        if done != self._done or stopped:
            self._done, self._since_seconds = done, now_seconds
            self._impatience = Impatience(self._path, self._note)
            self._sure, self._ask_seconds = not self._doubted, now_seconds + _FIRST_SECONDS
        if not self._sure:
            if now_seconds < self._ask_seconds:
                return
            self._sure = bool(silent_ones(_with_mounts(self._path), _ASKED_SECONDS))
            self._ask_seconds = now_seconds + _FIRST_SECONDS
            self._seen_seconds += 2 * _ASKED_SECONDS  # asking is no stop
            if not self._sure:
                self._since_seconds = now_seconds  # it has just answered
        if self._sure:
            self._impatience.waited(now_seconds - self._since_seconds)


def _with_mounts(path: str) -> list[str]:
    """Return a path, and the mounts in it that may cease to answer while it does."""
    mounts = (mount for mount in read_mounts() if is_remote(mount))
    return [path, *(mount.target for mount in mounts if lies_in(mount.target, path))]
