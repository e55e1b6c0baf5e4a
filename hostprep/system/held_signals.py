"""Holding back signals while a command that they would orphan is being started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from hostprep.system.interruption import INTERRUPTIONS


class HeldSignals:
    """Holds back Ctrl-C and similar signals until they are released; then they take effect.

    It uses handlers, which only the main thread can set, and not the signal mask, which the child
    would inherit. ``on_first`` is called when the first signal comes. A signal that comes while
    handlers are set or removed takes effect at once, and no handler remains that would swallow the
    next.
    """

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self._came: list[int] = []
        self._on_first = on_first
        self._before: dict[int, Any] = {}
        self._holds = False
        if threading.current_thread() is threading.main_thread():
            for number in INTERRUPTIONS:
                if (handler := signal.getsignal(number)) not in (None, signal.SIG_IGN):
                    self._before[number] = handler
                    signal.signal(number, self._take)
            self._holds = True

    def _take(self, number: int, frame: FrameType | None) -> None:
        if not self._holds:
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
            return
        self._came.append(number)
        if len(self._came) == 1:
            self._on_first()

    def release(self) -> None:
        """Restore the handlers, and deliver the signals that came meanwhile."""
        self._holds = False
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for number in self._came:
            signal.raise_signal(number)
