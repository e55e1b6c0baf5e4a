"""Processes that end with the one that started them, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import threading

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, so that kill -9 leaves nothing."""
    end_with_parent(signal.SIGKILL)


def forks_die_with_us() -> None:
    """Have all processes that this one forks from now on, and those that they fork, end with it.

    Those apart that are forked in another thread than the main one: to the kernel the parent ends
    when that thread does, and whoever has a thread start a pool of workers goes on with the pool.
    """
    in_main = [True]

    def before() -> None:
        in_main[0] = threading.current_thread() is threading.main_thread()

    def in_child() -> None:
        if in_main[0]:
            die_with_parent()

    os.register_at_fork(before=before, after_in_child=in_child)


def end_with_parent(by: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
