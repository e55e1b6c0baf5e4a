"""Work that may get stuck in the kernel, done by a child process that can be abandoned.

For work of many steps that reports its progress; ``bounded`` is for a single question.
"""

from __future__ import annotations

import math
import os
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from types import FrameType
from typing import Any, TypeVar

from hostprep.errors import HostprepError
from hostprep.system.bounded import NoAnswerInTime, hold_only, leave
from hostprep.system.ending import ended_within
from hostprep.system.forking import fork_for
from hostprep.system.parent import end_with_parent

# For the work to clean up; a second Ctrl-C does not wait for it.
_TIDYING_SECONDS = 10.0
_TOLD, _DONE, _FAILED = range(3)
# How often this process looks at the clock while it waits.
_LOOK_SECONDS = 0.5

T = TypeVar("T")


class WorkKilled(HostprepError):
    """Somebody, or a kernel short of memory, killed the work, which has not cleaned up."""


class WorkHalted(HostprepError):
    """For a time none of our processes ran: the clock went on, and the work did not."""


def work_apart(
    work: Callable[[Callable[[Any], None]], T],
    hear: Callable[[Any], None],
    *,
    silence_seconds: float,
    halt_seconds: float = math.inf,
) -> T:
    """Return what ``work`` returns, or raise what it raises; it runs in a forked child process.

    ``work`` gets a function for messages, which ``hear`` receives here. Results, errors and
    messages are pickled. Raises ``NoAnswerInTime`` if nothing comes for longer than
    ``silence_seconds``: the child is killed, and abandoned if it is stuck. Raises ``WorkKilled`` if
    others killed it; ``WorkHalted`` if this process, which only waits, did not run for
    ``halt_seconds``: it was stopped, or frozen together with all that it had started. Anything else
    that ends this, such as Ctrl-C, reaches the work as a KeyboardInterrupt, so that it cleans up.
    """
    ours, theirs = Pipe(duplex=False)
    child = fork_for(lambda: _work(work, theirs))
    theirs.close()
    ended = False
    try:
        while True:
            if not _comes(ours, silence_seconds, halt_seconds):
                ended = True
                raise NoAnswerInTime
            try:
                kind, said = ours.recv()
            except EOFError:
                raise WorkKilled("the process that did the work was killed.") from None
            if kind == _TOLD:
                hear(said)
                continue
            ended = True
            if kind == _FAILED:
                raise said
            result: T = said
            return result
    finally:
        if not ended:
            _interrupt(child)
        ours.close()
        leave(child)


def _comes(pipe: Connection, seconds: float, halt_seconds: float) -> bool:
    """Return whether a message comes within ``seconds``; ``WorkHalted`` as in ``work_apart``."""
    end = (now := time.monotonic()) + seconds
    while now < end:
        there = pipe.poll(min(_LOOK_SECONDS, end - now))
        before, now = now, time.monotonic()
        if now - before > _LOOK_SECONDS + halt_seconds:
            raise WorkHalted(f"nothing of ours ran for about {now - before:.0f} s.")
        if there:
            return True
    return False


def _work(work: Callable[[Callable[[Any], None]], Any], pipe: Connection) -> None:
    """In the child: do the work, and report its result."""
    hold_only(pipe.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the parent tells us
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # if its terminal is closed, the parent ends
    signal.signal(signal.SIGTERM, _stop)
    end_with_parent(signal.SIGTERM)
    try:
        said = _DONE, work(lambda told: pipe.send((_TOLD, told)))
    except BaseException as error:
        if not isinstance(error, HostprepError):
            error.add_note(traceback.format_exc())
        said = _FAILED, error
    pipe.send(said)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would interrupt the clean-up
    raise KeyboardInterrupt


def _interrupt(child: int) -> None:
    """Make the child clean up, and wait until it has, but not for ever."""
    os.kill(child, signal.SIGTERM)
    ended_within(child, _TIDYING_SECONDS)
