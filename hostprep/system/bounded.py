"""Questions that may never be answered, such as of a dead network mount, with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from hostprep.errors import HostprepError, failed_by_host, named_in
from hostprep.system.forking import NoProcess, fork_for
from hostprep.system.interruption import INTERRUPTIONS


class NoAnswerInTime(Exception):
    """The question was not answered in the time given for it."""


_ENDED = "often that means that memory ran out (see dmesg); run the same command again"


class QuestionFailed(ChildProcessError):
    """There is no answer; ``hint`` says what helps, None if the error does not say."""

    def __init__(self, said: str, hint: str | None = None) -> None:
        super().__init__(said)
        self.hint = hint


def ask_in_child(
    question: Callable[[], Any],
    *,
    patience_seconds: float,
    on_wait: Callable[[float], None] | None = None,
    holding: int | None = None,
) -> Any:
    """Return what ``question`` returns (plain enough for JSON), computed in a child process.

    The child keeps none of the parent's open files except ``holding``, so the question opens what
    it needs. ``on_wait`` is told every second how many have passed.
    Raises ``NoAnswerInTime`` if it takes longer; the child is killed, and one that is stuck in the
    kernel is abandoned and ends when its call returns. Raises ``QuestionFailed`` with the message
    if the question raised, or if the child ended without an answer, ``NoProcess`` if no further
    process is allowed.
    """
    reader, writer = os.pipe()
    try:
        child = fork_for(lambda: _answer(question, writer, holding))
    except NoProcess:
        os.close(reader)
        os.close(writer)
        raise
    os.close(writer)
    said = bytearray()  # an answer of many megabytes comes in small pieces
    started = time.monotonic()
    deadline = started + patience_seconds
    answer_waits = select.poll()  # select(2) itself cannot handle descriptors above 1023
    answer_waits.register(reader, select.POLLIN)
    try:
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise NoAnswerInTime
            if not answer_waits.poll(1000 * min(left, 1.0)):
                if on_wait is not None:
                    on_wait(time.monotonic() - started)
                continue
            piece = os.read(reader, 65536)
            if not piece:
                break
            said += piece
    finally:
        os.close(reader)
        leave(child)
    if not said:
        raise QuestionFailed("the child ended without an answer", _ENDED)
    fine, answer, hint = json.loads(said)
    if not fine:
        raise QuestionFailed(answer, hint)
    return answer


def _answer(question: Callable[[], Any], writer: int, holding: int | None) -> None:
    """In the child: write the answer into the pipe."""
    hold_only(writer, *(() if holding is None else (holding,)))
    for number in INTERRUPTIONS:
        signal.signal(number, signal.SIG_DFL)
    try:
        said = [True, question(), None]
    except HostprepError as error:
        said = [False, error.message, error.hint]
    except BaseException as error:
        words, hint = f"{error}" or type(error).__name__, None
        if isinstance(error, OSError) and error.errno and error.strerror:
            named = named_in(error)
            words = error.strerror if named is None else f"{error.strerror}: {named}"
            known = failed_by_host(error)
            hint = None if known is None else known.hint
        said = [False, words, hint]
    data = memoryview(json.dumps(said).encode())
    while data:
        data = data[os.write(writer, data) :]
    os.close(writer)  # a stuck thread keeps the process alive, but the pipe must end


def hold_only(*keep: int) -> None:
    """Close everything that this process has open, except ``keep``.

    An abandoned child that is stuck would hold a lock, or keep the pipe open on whose end our
    reader waits. The open descriptors are listed, because without close_range(2) every number up to
    the limit would be tried, which in a container may be 10^9.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    try:
        opened = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # there is no /proc, or we may not read it
        begin = 3
        for descriptor in sorted(keep):
            os.closerange(begin, descriptor)
            begin = descriptor + 1
        os.closerange(begin, os.sysconf("SC_OPEN_MAX"))
        return
    for descriptor in opened:
        if descriptor > 2 and descriptor not in keep:
            with contextlib.suppress(OSError):  # the descriptor of the listing is already closed
                os.close(descriptor)


def leave(child: int) -> None:
    """Kill a child and wait for its end, unless it is stuck in the kernel."""
    deadline = time.monotonic() + 0.5
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        os.kill(child, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
