"""The worker process: answers the tasks that its parent sends over a pipe.

Messages are ``marshal`` of plain tuples, the fastest that Python has: ``(ticket, kind, payload)``
in, ``(ticket, fine, result)`` out.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import queue
import signal
import threading
from collections.abc import Sequence
from typing import Any

from hostprep.staging.processes.channel import OUT_OF_MEMORY, Channel
from hostprep.staging.processes.descriptors import share_descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.memory import fitting_threads
from hostprep.staging.processes.worker import Worker
from hostprep.staging.record.journal import Journal
from hostprep.system.gentle import step_behind, step_behind_other_sessions
from hostprep.system.interruption import INTERRUPTIONS
from hostprep.system.parent import die_with_parent


def serve(channel: Channel, job: Job, counters: Sequence[memoryview]) -> None:
    """Answer tasks until the pipe closes: the main function of a worker process.

    It has a thread for each of the ``counters`` (see ``Effort``).
    """
    die_with_parent()
    # Both reach the whole foreground group; the parent decides what is to happen then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTIONS)
    os.umask(0)
    # Entries come and go by the million and none refers to itself: the collector would only search.
    gc.disable()
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
            ticket, kind, payload = marshal.loads(channel.receive())
            channel.send(_answer(worker, ticket, kind, payload))
        except (EOFError, BrokenPipeError):
            return


def _serve_threads(channel: Channel, workers: list[Worker]) -> None:
    """Answer tasks with a thread for each that is in hand: most data sets never need them all."""
    tasks: queue.SimpleQueue[tuple[int, str, Any] | None] = queue.SimpleQueue()
    idle = threading.Semaphore(0)
    sending = threading.Lock()
    threads: list[threading.Thread] = []
    most = len(workers)

    def loop(worker: Worker) -> None:
        while (task := tasks.get()) is not None:
            answer = _answer(worker, *task)
            idle.release()  # before the answer, which may bring the next task at once
            try:
                with sending:
                    channel.send(answer)
            except BrokenPipeError:
                return
            except MemoryError:
                os._exit(OUT_OF_MEMORY)  # or else its parent would wait for the answer for ever

    def start_another() -> None:
        nonlocal most
        if len(threads) == most:
            return
        thread = threading.Thread(target=loop, args=(workers[len(threads)],), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # a limit on processes, which counts threads too: fewer do it as well
            most = len(threads)
        else:
            threads.append(thread)

    start_another()
    if not threads:
        _serve_inline(channel, workers[0])
        return
    idle.release()
    while True:
        try:
            task = marshal.loads(channel.receive())
        except EOFError:
            break
        if not idle.acquire(blocking=False):
            start_another()
        tasks.put(task)
    for _ in threads:
        tasks.put(None)
    for thread in threads:
        thread.join()


def _answer(worker: Worker, ticket: int, kind: str, payload: Any) -> bytes:
    try:
        return marshal.dumps((ticket, True, worker.do(kind, payload)))
    except OSError as error:
        return marshal.dumps((ticket, False, (error.errno or 0, error.strerror or str(error))))
    except MemoryError:
        return marshal.dumps((ticket, False, (errno.ENOMEM, os.strerror(errno.ENOMEM))))
    except Exception as error:
        return marshal.dumps((ticket, False, (0, f"{type(error).__name__}: {error}")))
