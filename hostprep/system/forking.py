"""Starting a process of our own, which a limit may prevent.

A single question is asked through ``bounded``, work of many steps is done through ``apart``. Code
that forks by itself has a reason: the workers of ``hostprep.staging`` take task after task, and the
readers of ``hostprep.probing`` all begin at once. Programs that must not inherit this process's
memory and threads (torch, CUDA, the user's loader) are separate programs, started by ``run``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

from hostprep.errors import HostprepError, reading_hint
from hostprep.system.interruption import INTERRUPTIONS


class NoProcess(HostprepError):
    """No further process could be started, for ``reason``."""

    def __init__(self, error: OSError) -> None:
        message = f"no further process could be started: {error.strerror}."
        super().__init__(message, reading_hint(error))
        self.reason = error.strerror


def fork() -> int:
    """Fork this process as ``os.fork`` does; raise ``NoProcess`` if that is not allowed."""
    try:
        return os.fork()
    except OSError as error:
        raise NoProcess(error) from None


def fork_for(work: Callable[[], object]) -> int:
    """Let a child do ``work`` and end, and return its number; raises ``NoProcess`` as ``fork``.

    It ends without any of this process's clean-up, and silently whatever ``work`` raises. A Ctrl-C
    that comes while it is started is not lost, and does not leave the child behind.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    child = -1
    try:
        # In the child it would be raised inside our callers: a second process would continue in
        # the parent's place, with its clean-up.
        signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
        child = fork()
        if child == 0:
            _do(work, before)
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            if child > 0:  # nobody knows its number
                os.kill(child, signal.SIGTERM)
            raise
    return child


def _do(work: Callable[[], object], mask: set[int | signal.Signals]) -> NoReturn:
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        work()
    finally:
        os._exit(0)
