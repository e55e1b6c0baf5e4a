"""Worker processes and the one loop that feeds them.

The parent has a single thread: it sends tasks over pipes, waits for answers, and regularly calls
back for progress. A worker that dies is an error that names the signal; nobody waits for it.
"""

from __future__ import annotations

import marshal
import math
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from hostprep.errors import HostprepError, Stopped, reading_hint
from hostprep.host.memory_kills import read_memory_kills, what_ran_out
from hostprep.staging.processes.channel import Child
from hostprep.staging.processes.descriptors import fitting_processes, share_descriptors
from hostprep.staging.processes.dying import Died, death
from hostprep.staging.processes.effort import Effort
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.serving import serve, told_of
from hostprep.staging.processes.worker import Worker
from hostprep.staging.record.journal import Journal
from hostprep.system.forking import NoProcess
from hostprep.system.interruption import is_interruption

TICK_SECONDS = 0.1
_STOP_SECONDS = 3.0

OnResult = Callable[[Any], None]


class TaskFailed(HostprepError):
    """A worker met an error that ends the run, for ``reason``; ``errno`` is 0 for none.

    ``named`` is the path that the error names, if any.
    """

    def __init__(self, errno: int, reason: str, named: str | None = None) -> None:
        hint = reading_hint(OSError(errno, reason)) if errno else None
        super().__init__(f"a worker process could not go on: {reason}.", hint)
        self.errno = errno
        self.reason = reason
        self.named = named


def _load(member: Child) -> int:
    return member.in_flight


class Pool:
    """``processes`` workers with ``threads`` threads each; with 0, this process does the tasks.

    More of them, up to ``most_processes``, are started if more ``readers`` are asked for later.
    There are fewer if a limit on processes or open files allows no more; ``HostprepError`` if it
    allows none. Use as a context manager. Tasks can be submitted at any time, even from a result's
    handler, and are carried out by ``run``.
    """

    def __init__(
        self, job: Job, *, processes: int, threads: int = 1, most_processes: int | None = None
    ) -> None:
        self._job = job
        self._processes = processes
        self._most_processes = max(processes, most_processes or 0)
        self._threads = threads
        self._members: list[Child] = []
        self._local: Worker | None = None
        self._journal: Journal | None = None
        self._queue: deque[tuple[str, Any, OnResult]] = deque()
        self._waiting: dict[int, OnResult] = {}
        self._ticket = 0
        self._kills = read_memory_kills() if processes else None
        self._effort = Effort(max(1, self._most_processes * threads))
        # How many readers should be at work; None for all. May be changed while they work, which
        # starts processes if there are too few.
        self.readers: int | None = None

    def __enter__(self) -> Pool:
        if self._processes == 0:
            if self._job.journal_fd is not None:
                self._journal = Journal(self._job.journal_fd)
            self._local = Worker(self._job, self._journal, share_descriptors(1))
        try:
            self._start(self._processes)
        except NoProcess as error:
            if not self._members:  # otherwise work with fewer
                raise HostprepError(
                    f"no worker process could be started: {error.reason}.",
                    error.hint,
                ) from None
        return self

    def _start_more(self, processes: int) -> None:
        """Have this many worker processes, or as many as possible."""
        with suppress(NoProcess):
            self._start(processes)
        if len(self._members) < processes:
            self._most_processes = len(self._members)

    def _start(self, processes: int) -> None:
        """Have this many worker processes; raise ``NoProcess`` if that is not allowed."""
        for number in range(len(self._members), fitting_processes(processes)):
            first = number * self._threads
            counters = [self._effort.of(first + reader) for reader in range(self._threads)]
            main = partial(serve, job=self._job, counters=counters)
            self._members.append(Child(main, self._members))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # If the kernel kills a process for lack of memory, systemd stops the rest of its unit
        # (OOMPolicy=), which would look like an interruption.
        try:
            killed = self._close(hurry=kind is not None)
        except KeyboardInterrupt:
            if not (isinstance(value, Died) and self._what_ran_out()):
                raise
            self._close(hurry=True)
            raise self._stopped() from None
        if killed and value is not None and is_interruption(value) and self._what_ran_out():
            raise self._stopped() from None

    @property
    def pids(self) -> list[int]:
        """The worker processes."""
        return [member.pid for member in self._members]

    @property
    def at_work(self) -> int:
        """How many readers have a task."""
        return sum(min(member.in_flight, member.at_once) for member in self._members)

    def effort(self) -> tuple[int, int]:
        """Return what was copied so far, as ``Effort.total``; results may not include it yet."""
        return self._effort.total()

    def submit(self, kind: str, payload: Any, on_result: OnResult) -> None:
        """Queue a task; ``run`` will call ``on_result`` with its result."""
        self._queue.append((kind, payload, on_result))

    def run(
        self,
        more: Iterator[tuple[str, Any, OnResult]] | None = None,
        on_tick: Callable[[], None] | None = None,
        meanwhile: Iterator[object] | None = None,
    ) -> None:
        """Carry out what was submitted and what ``more`` yields, until nothing is left.

        ``meanwhile`` is advanced while the workers are busy: it is work of the parent's own, in
        short steps.

        ``more`` is advanced only as fast as the workers work, so it may be long. ``on_tick`` is
        called about every 0.1 s. Raises ``TaskFailed`` if a task failed for the whole run.
        """
        source = more if more is not None else iter(())
        if self._local is not None:
            self._run_here(self._local, source, on_tick)
            return
        exhausted = False
        ticked = time.monotonic()
        while True:
            members, at_once = self._working()
            # Each has one task more than it works on, so that it need not wait for the next.
            while (member := min(members, key=_load)).in_flight <= at_once:
                if not self._queue:
                    task = None if exhausted else next(source, None)
                    if task is None:
                        exhausted = True
                        break
                    self._queue.append(task)
                self._send(member, at_once, *self._queue.popleft())
            if not self._waiting and not self._queue and exhausted:
                return
            if meanwhile is not None and next(meanwhile, None) is None:
                meanwhile = None
            self._receive(TICK_SECONDS if meanwhile is None else 0)
            now = time.monotonic()
            if on_tick is not None and now - ticked >= TICK_SECONDS:
                ticked = now
                on_tick()

    def _working(self) -> tuple[list[Child], int]:
        """Return the workers that get tasks, and how many tasks each may work on."""
        if self.readers is not None:
            wanted = min(math.ceil(self.readers / self._threads), self._most_processes)
            if wanted > len(self._members):
                self._start_more(wanted)
        everything = len(self._members) * self._threads
        if self.readers is None or self.readers >= everything:
            return self._members, self._threads
        members = self._members[: self.readers]
        return members, self.readers // len(members)

    def _run_here(
        self,
        worker: Worker,
        source: Iterator[tuple[str, Any, OnResult]],
        on_tick: Callable[[], None] | None,
    ) -> None:
        umask = os.umask(0)  # the same as in worker processes, see copying._create
        try:
            while task := self._queue.popleft() if self._queue else next(source, None):
                kind, payload, on_result = task
                try:
                    result = worker.do(kind, payload)
                except OSError as error:
                    raise TaskFailed(*told_of(error)) from error
                on_result(result)
                if on_tick is not None:
                    on_tick()
        finally:
            os.umask(umask)

    def _send(
        self, member: Child, at_once: int, kind: str, payload: Any, on_result: OnResult
    ) -> None:
        self._ticket += 1
        self._waiting[self._ticket] = on_result
        member.in_flight += 1
        member.at_once = at_once
        try:
            member.post(marshal.dumps((at_once, self._ticket, kind, payload)))
        except BrokenPipeError:
            raise self._death(member) from None

    def _receive(self, seconds: float) -> None:
        """Wait this long for answers, or until a worker can take the rest of a task."""
        poll = select.poll()
        readers, writers = {}, {}
        for member in self._members:
            readers[member.fileno()] = member
            poll.register(member, select.POLLIN)
            if (descriptor := member.waiting_to_send) is not None:
                writers[descriptor] = member
                poll.register(descriptor, select.POLLOUT)
        for descriptor, _ in poll.poll(seconds * 1000):
            member = writers.get(descriptor) or readers[descriptor]
            try:
                if descriptor in writers:
                    member.flush()
                    continue
                messages = member.take()
            except (EOFError, BrokenPipeError):
                raise self._death(member) from None
            for message in messages:
                self._finished(member, *marshal.loads(message))

    def _finished(self, member: Child, ticket: int, fine: bool, result: Any) -> None:
        member.in_flight -= 1
        on_result = self._waiting.pop(ticket)
        if not fine:
            raise TaskFailed(*result)
        on_result(result)

    def _death(self, member: Child) -> Died:
        member.join(1)
        return self._told(member.exit_code)

    def _stopped(self) -> Stopped:
        told = self._told(-signal.SIGKILL)
        return Stopped(told.message, told.hint)

    def _told(self, code: int | None) -> Died:
        job = self._job
        return death(code, self._what_ran_out(), in_ram=job.in_ram, then=job.then)

    def _what_ran_out(self) -> str | None:
        return None if self._kills is None else what_ran_out(self._kills, read_memory_kills())

    def _close(self, *, hurry: bool) -> bool:
        """End the workers after their tasks, or in a hurry after the current file.

        In a hurry, those that only look are ended at once: nothing of theirs is left half-way, and
        a huge directory, which is looked at as one, may take them long. Return whether one of them
        was killed by somebody else.
        """
        if self._local is not None:
            self._local.close()
        if self._journal is not None:
            self._journal.close()
        for member in self._members:
            if hurry:
                member.kill(signal.SIGTERM if self._job.looks_only else signal.SIGUSR1)
            member.stop_sending()
        deadline = time.monotonic() + _STOP_SECONDS
        late = [m for m in self._members if not m.join(max(0.0, deadline - time.monotonic()))]
        killed = any(member.exit_code == -signal.SIGKILL for member in self._members)
        for member in late:
            member.kill(signal.SIGKILL)
        deadline = time.monotonic() + _STOP_SECONDS
        for member in late:
            member.join(max(0.0, deadline - time.monotonic()))
        while self._members:
            self._members.pop().close()
        return killed
