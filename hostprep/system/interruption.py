"""What ends a command as Ctrl-C does: SIGTERM, and the SIGHUP of a terminal that is closed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C, so that clean-up runs.

    An ignored SIGHUP stays ignored: so nohup(1) asks for it.
    """
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _interrupt)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _interrupt:
                signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:  # a shell sends it, and then the kernel: that is not impatience
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
