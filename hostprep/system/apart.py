"""Work that may get stuck in the kernel, done by a child process that can be left behind.

For work of many steps that tells how far it is; ``bounded`` is for one question.
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

# To take away what the work has made; a second Ctrl-C does not wait for it.
_TIDYING_SECONDS = 10.0
_TOLD, _DONE, _FAILED = range(3)
# While it waits, this process looks at the clock so often.
_LOOK_SECONDS = 0.5

T = TypeVar("T")


class WorkKilled(HostprepError):
    """Somebody, or a kernel short of memory, killed the work: it has tidied nothing up."""


class WorkHalted(HostprepError):
    """For a time nothing of ours ran: the clock went on, and the work did not."""


def work_apart(
    work: Callable[[Callable[[Any], None]], T],
    hear: Callable[[Any], None],
    *,
    silence_seconds: float,
    halt_seconds: float = math.inf,
) -> T:
    """Return what ``work`` returns, or raise what it raises; it runs in a forked child process.

    ``work`` is given a function that tells something, which ``hear`` hears here. Results, errors
    and what is told are pickled. Raises ``NoAnswerInTime`` where nothing comes for longer than
    ``silence_seconds``: the child is killed then, and left where it is stuck; ``WorkKilled`` where
    others killed it; ``WorkHalted`` where this process, which only waits, did not come to its turn
    for ``halt_seconds``: it was stopped, or frozen with all that it had started. Whatever else ends
    this, such as Ctrl-C, reaches the work as a KeyboardInterrupt, so that it tidies up.
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
    """Return whether something comes within ``seconds``; ``WorkHalted`` as in ``work_apart``."""
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
    """In the child: work, and tell of it."""
    hold_only(pipe.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all: the parent tells us
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # and when its terminal is closed, it ends
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
    signal.signal(number, signal.SIG_IGN)  # or a second one would cut the tidying short
    raise KeyboardInterrupt


def _interrupt(child: int) -> None:
    """Have the child tidy up and wait until it has, but not for ever."""
    os.kill(child, signal.SIGTERM)
    ended_within(child, _TIDYING_SECONDS)
