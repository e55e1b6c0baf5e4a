"""The worker process: answers the tasks that its parent sends over a pipe.

Messages are plain tuples in ``marshal``, the fastest format that Python has: ``(at_once, ticket,
kind, payload)`` in, ``(ticket, fine, result)`` out. ``at_once`` is how many tasks this process may
now work on at the same time.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import signal
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from hostprep.errors import named_in
from hostprep.staging.processes.channel import Channel, end_by
from hostprep.staging.processes.descriptors import share_descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.memory import fitting_threads
from hostprep.staging.processes.worker import Worker
from hostprep.staging.record.journal import Journal
from hostprep.system.gentle import be_killed_first, step_behind, step_behind_other_sessions
from hostprep.system.interruption import INTERRUPTIONS
from hostprep.system.parent import die_with_parent


def serve(channel: Channel, job: Job, counters: Sequence[memoryview]) -> None:
    """Answer tasks until the pipe closes: the main function of a worker process.

    It has a thread for each of the ``counters`` (see ``Effort``).
    """
    die_with_parent()
    # Both reach the whole foreground process group; the parent decides what to do about them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTIONS)
    os.umask(0)
    # Entries come and go by the million without reference cycles, so collecting is wasted time.
    gc.disable()
    if job.in_ram:
        # If memory runs out, the process that fills it should die, and its parent report that.
        be_killed_first()
    if job.gentle:
        step_behind()
        step_behind_other_sessions()
    journal = Journal(job.journal_fd) if job.journal_fd is not None else None
    may_open = share_descriptors(fitting_threads(len(counters)))
    workers = [Worker(job, journal, may_open, own) for own in counters[: may_open.workers]]

    def stop(signum: int, frame: object) -> None:
        for worker in workers:
            worker.stop()

    signal.signal(signal.SIGUSR1, stop)
    if len(workers) == 1:
        _serve_inline(channel, workers[0])
    else:
        _serve_threads(channel, workers)


def _serve_inline(channel: Channel, worker: Worker) -> None:
    while True:
        try:
            _, ticket, kind, payload = marshal.loads(channel.receive())
            channel.send(_answer(worker, ticket, kind, payload))
        except (EOFError, BrokenPipeError):
            return


def _serve_threads(channel: Channel, workers: list[Worker]) -> None:
    """Answer tasks with as many threads as they need; most data sets never need all of them."""
    crew = _Crew(channel, workers)
    if not crew.has_started():
        _serve_inline(channel, workers[0])
        return
    while True:
        try:
            at_once, *task = marshal.loads(channel.receive())
        except EOFError:
            break
        crew.give(task, at_once)
    crew.end()


class _Crew:
    """Threads that carry out tasks, ``at_once`` at a time; there are no more threads than that.

    Each task brings the number, because the parent decides how many read. A task that waits here
    begins without waiting for the parent.
    """

    def __init__(self, channel: Channel, workers: list[Worker]) -> None:
        self._channel = channel
        self._workers = workers
        self._most = len(workers)
        self._threads: list[threading.Thread] = []
        self._waiting: deque[list[Any]] = deque()
        self._busy = 0
        self._at_once = 1
        self._ended = False
        self._changed = threading.Condition()
        self._sending = threading.Lock()

    def has_started(self) -> bool:
        """Start one thread and return whether there is one."""
        self._start_another()
        return bool(self._threads)

    def give(self, task: list[Any], at_once: int) -> None:
        """Carry out a task as soon as fewer than ``at_once`` are at work."""
        with self._changed:
            self._waiting.append(task)
            self._at_once = at_once
            wanted = min(at_once, self._busy + len(self._waiting))
            self._changed.notify(max(0, min(len(self._waiting), at_once - self._busy)))
        if wanted > len(self._threads):
            self._start_another()

    def end(self) -> None:
        """Wait until all is done."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _start_another(self) -> None:
        if len(self._threads) == self._most:
            return
        worker = self._workers[len(self._threads)]
        thread = threading.Thread(target=self._loop, args=(worker,), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # a limit on processes also counts threads: work with fewer
            self._most = len(self._threads)
        else:
            self._threads.append(thread)

    def _loop(self, worker: Worker) -> None:
        try:
            self._work(worker)
        except BrokenPipeError:
            return
        except BaseException as error:
            end_by(error)

    def _work(self, worker: Worker) -> None:
        while (task := self._take()) is not None:
            answer = _answer(worker, *task)
            with self._changed:  # before the answer, which may bring the next task at once
                self._busy -= 1
                if self._waiting:
                    self._changed.notify()
            with self._sending:
                self._channel.send(answer)

    def _take(self) -> list[Any] | None:
        """Return the next task when it is its turn, None if there will be no more."""
        with self._changed:
            while not self._waiting or self._busy >= self._at_once:
                if self._ended and not self._waiting:
                    return None
                self._changed.wait()
            self._busy += 1
            return self._waiting.popleft()


def _answer(worker: Worker, ticket: int, kind: str, payload: Any) -> bytes:
    try:
        return marshal.dumps((ticket, True, worker.do(kind, payload)))
    except OSError as error:
        return marshal.dumps((ticket, False, told_of(error)))
    except MemoryError:
        return marshal.dumps((ticket, False, (errno.ENOMEM, os.strerror(errno.ENOMEM))))
    except Exception as error:
        return marshal.dumps((ticket, False, (0, f"{type(error).__name__}: {error}")))


def told_of(error: OSError) -> tuple[int, str, str | None]:
    """Return what the parent is told of an error: its number, what it says, and what it names."""
    return error.errno or 0, error.strerror or str(error), named_in(error)
