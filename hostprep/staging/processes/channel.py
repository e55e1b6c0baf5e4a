"""Worker processes and the pipes to them, with nothing beyond fork and pipe.

A message is its length in 8 bytes, followed by its bytes. The parent never blocks until a worker
takes a task or finishes an answer, so neither can block the other.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from hostprep.system.forking import fork
from hostprep.system.interruption import INTERRUPTIONS

# Exit status of a worker that got no memory: the kernel killed nobody, but a limit refused it.
OUT_OF_MEMORY = 12

_LENGTH_BYTES = 8
# The size of a pipe. A larger buffer would be mapped and unmapped for each read.
_PIECE_BYTES = 64 * 1024
_SHORTEST_PAUSE_SECONDS = 0.0002


class Channel:
    """The worker's end: waits for whole messages and sends whole ones. Raises EOFError at the end.

    ``BrokenPipeError`` from ``send`` means that the parent has gone.
    """

    def __init__(self, reader: int, writer: int) -> None:
        self._reader = reader
        self._writer = writer

    def receive(self) -> bytes:
        """Return the next message."""
        return self._read(int.from_bytes(self._read(_LENGTH_BYTES), "little"))

    def send(self, message: bytes) -> None:
        """Send a message; only one thread may do so at a time."""
        data = memoryview(_framed(message))
        while data:
            data = data[os.write(self._writer, data) :]

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self._reader, min(size, _PIECE_BYTES))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class Child:
    """A worker process as its parent sees it.

    ``in_flight`` is the number of tasks that it has been given, of which ``at_once`` may be at
    work. Raises ``NoProcess`` if none could be started.
    """

    def __init__(self, main: Callable[[Channel], None], siblings: Sequence[Child]) -> None:
        their_reader, self._writer = os.pipe()
        self._reader, their_writer = os.pipe()
        os.set_blocking(self._writer, False)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            try:
                # A signal must not reach the child while it still has our handlers, see
                # serving.serve. One that came just before is raised by this very call.
                signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
                self.pid = fork()
                if self.pid == 0:
                    # If it held its siblings' pipes open, nobody would notice their end.
                    for child in (*siblings, self):
                        child.close()
                    _run(main, Channel(their_reader, their_writer))
            finally:
                os.close(their_reader)
                os.close(their_writer)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:  # no caller can close this; without pipes a child ends
            self.close()
            raise
        self.in_flight = 0
        self.at_once = 1
        self.exit_code: int | None = None
        self._outbox: deque[memoryview] = deque()
        self._inbox = bytearray()

    def fileno(self) -> int:
        """Return the descriptor of its answers, for ``select``."""
        return self._reader

    def post(self, message: bytes) -> None:
        """Send a message once the pipe has room; BrokenPipeError if the child has gone."""
        self._outbox.append(memoryview(_framed(message)))
        self.flush()

    def flush(self) -> None:
        """Send as much of what is waiting as the pipe takes."""
        while self._outbox:
            data = self._outbox[0]
            try:
                sent = os.write(self._writer, data)
            except BlockingIOError:
                return
            if sent < len(data):
                self._outbox[0] = data[sent:]
            else:
                self._outbox.popleft()

    @property
    def waiting_to_send(self) -> int | None:
        """The descriptor that must become writable for ``flush`` to continue, None if done."""
        return self._writer if self._outbox else None

    def take(self) -> list[bytes]:
        """Read what is there and return the complete messages; EOFError at the end."""
        part = os.read(self._reader, _PIECE_BYTES)
        if not part:
            raise EOFError
        self._inbox += part
        messages = []
        while len(self._inbox) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._inbox[:_LENGTH_BYTES], "little")
            if len(self._inbox) < end:
                break
            messages.append(bytes(self._inbox[_LENGTH_BYTES:end]))
            del self._inbox[:end]
        return messages

    def stop_sending(self) -> None:
        """Close the pipe of tasks: the child ends once it has done those that it has."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def close(self) -> None:
        """Close both pipes."""
        self.stop_sending()
        os.close(self._reader)

    def join(self, seconds: float) -> bool:
        """Wait this long for it to end and return whether it did; its answers are discarded."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        # Its end closes the pipe, whatever the cause.
        while self.exit_code is None and poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            if not os.read(self._reader, _PIECE_BYTES):
                return self._reap(deadline)
        return self.exit_code is not None

    def _reap(self, deadline: float) -> bool:
        """Reap a child that has closed its pipe.

        A child that was killed still writes out its open files; if their server is gone, for ever.
        """
        pause = _SHORTEST_PAUSE_SECONDS
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.exit_code = os.waitstatus_to_exitcode(status)
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.1)

    def kill(self, signum: int) -> None:
        """Send it a signal, unless it has been reaped."""
        if self.exit_code is None:
            os.kill(self.pid, signum)


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(_LENGTH_BYTES, "little") + message


def _run(main: Callable[[Channel], None], channel: Channel) -> None:
    """Be the child: run ``main`` and exit without any of the parent's clean-up."""
    try:
        _let_go_of_output()
        main(channel)
    except BaseException as error:
        end_by(error)
    os._exit(0)


def end_by(error: BaseException) -> NoReturn:
    """End this process, whichever thread calls: the parent must not wait for an answer for ever.

    That memory ran out is told by the exit status; a pipe that gets none refuses what is written.
    """
    code = 1
    try:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            code = OUT_OF_MEMORY
        else:
            _take_the_parents_stderr()
            sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(code)


def _let_go_of_output() -> None:
    """Close output that somebody may read to its end: a dead server can keep us alive."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _take_the_parents_stderr() -> None:
    # A named pipe that nobody reads any more would be waited for.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK
    with suppress(OSError):
        os.dup2(os.open(f"/proc/{os.getppid()}/fd/2", flags), 2)
