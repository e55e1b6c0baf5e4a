"""Processes that end together with their parent, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import threading

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, so that kill -9 leaves nothing."""
    end_with_parent(signal.SIGKILL)


def forks_die_with_us() -> None:
    """Make all processes that this one forks from now on, and their children, end with it.

    Except those forked in another thread than the main one: for the kernel, the parent ends when
    that thread does, and a pool of workers may outlive the thread that started it.
    """
    in_main = [True]

    def before() -> None:
        in_main[0] = threading.current_thread() is threading.main_thread()

    def in_child() -> None:
        if in_main[0]:
            die_with_parent()

    os.register_at_fork(before=before, after_in_child=in_child)


def end_with_parent(by: signal.Signals) -> None:
    """Make the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
