"""What ends a command like Ctrl-C: SIGTERM, and the SIGHUP of a closed terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_SECONDS = 0.01


@contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP unwind like Ctrl-C, so that clean-up runs.

    An ignored SIGHUP stays ignored: that is what nohup(1) asks for. An exception that is raised in
    a destructor or in a callback of Python's own (some run during imports) gets lost there, so it
    is raised again afterwards.
    """
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _interrupt)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, _interrupt)
    hook = sys.unraisablehook

    def raise_again(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is KeyboardInterrupt:
            signal.signal(signal.SIGALRM, _again)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        else:
            hook(lost)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGALRM) is _again:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if sys.unraisablehook is raise_again:
            sys.unraisablehook = hook
        for number, handler in before.items():
            if signal.getsignal(number) is _interrupt:
                signal.signal(number, handler)


def is_interruption(error: BaseException) -> bool:
    """Return whether an error is an interruption, or what Python makes of one.

    While it sets up the attributes of a class, as in every import, Python before 3.12 turns any
    exception into a ``RuntimeError``.
    """
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:  # both a shell and the kernel send it: that is not impatience
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _again(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)  # do not raise here: somebody may be holding signals back
