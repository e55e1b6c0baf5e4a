"""Processes that end with the one that started them, however that ends."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, so that kill -9 leaves nothing."""
    end_with_parent(signal.SIGKILL)


def end_with_parent(by: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
