"""Worker processes and the pipes to them, with no more than fork and pipe need.

A message is its length in 8 bytes and then its bytes. The parent never waits for a worker to take
a task or to finish an answer, so neither can wait for the other.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from hostprep.system.forking import fork
from hostprep.system.interruption import INTERRUPTIONS

# What a worker ends with that got no memory: the kernel killed nobody, a limit refused it.
OUT_OF_MEMORY = 12

_LENGTH_BYTES = 8
# What a pipe holds. Room for more would be mapped for each read, and given back.
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
        """Send a message; for one thread at a time."""
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

    ``in_flight`` is how many tasks it has been given, of which ``at_once`` may be at work.
    ``NoProcess`` where none could be started.
    """

    def __init__(self, main: Callable[[Channel], None], siblings: Sequence[Child]) -> None:
        their_reader, self._writer = os.pipe()
        self._reader, their_writer = os.pipe()
        os.set_blocking(self._writer, False)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            try:
                # A signal must not meet the child while it still has our handlers, see
                # serving.serve. One that comes just before is raised by this very call.
                signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
                self.pid = fork()
                if self.pid == 0:
                    # Its siblings' pipes, held open, would hide that they closed.
                    for child in (*siblings, self):
                        child.close()
                    _run(main, Channel(their_reader, their_writer))
            finally:
                os.close(their_reader)
                os.close(their_writer)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:  # nobody has this to close it; without its pipes a child ends
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
        """Send a message as soon as the pipe takes it; BrokenPipeError where the child has gone."""
        self._outbox.append(memoryview(_framed(message)))
        self.flush()

    def flush(self) -> None:
        """Send of what is waiting as much as the pipe takes."""
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
        """The descriptor that has to become writable for ``flush`` to go on, None for nothing."""
        return self._writer if self._outbox else None

    def take(self) -> list[bytes]:
        """Read what is there and return the messages that are whole; EOFError at the end."""
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
        """Close the pipe of tasks: the child ends when it has done those that it has."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def close(self) -> None:
        """Close both pipes."""
        self.stop_sending()
        os.close(self._reader)

    def join(self, seconds: float) -> bool:
        """Wait for its end at most so long and return whether it came; answers are thrown away."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        # Its end closes the pipe, whatever ends it.
        while self.exit_code is None and poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            if not os.read(self._reader, _PIECE_BYTES):
                return self._reap(deadline)
        return self.exit_code is not None

    def _reap(self, deadline: float) -> bool:
        """Wait for the end of a child that has closed its pipe.

        One that was killed still writes out what it has open: for ever, where the server is gone.
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
        """Send it a signal, unless it has been waited for."""
        if self.exit_code is None:
            os.kill(self.pid, signum)


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(_LENGTH_BYTES, "little") + message


def _run(main: Callable[[Channel], None], channel: Channel) -> None:
    """Be the child: run ``main`` and end without any clean-up of the parent's things."""
    code = 1
    try:
        _let_go_of_output()
        main(channel)
        code = 0
    except MemoryError:
        code = OUT_OF_MEMORY
    except BaseException:
        _take_the_parents_stderr()
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _let_go_of_output() -> None:
    """Hold nothing that somebody reads to its end: a dead server keeps us beyond our parent's."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _take_the_parents_stderr() -> None:
    with suppress(OSError):
        os.dup2(os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_APPEND), 2)
