"""What ends a command as Ctrl-C does, and what does not."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hostprep.system.held_signals import HeldSignals
from hostprep.system.interruption import INTERRUPTIONS, as_keyboard_interrupt


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Python's own handlers at first, and afterwards what was there."""
    before = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    for number in INTERRUPTIONS:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", INTERRUPTIONS)
def test_each_comes_as_ctrl_c_and_the_handlers_come_back(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), as_keyboard_interrupt():
        signal.raise_signal(number)
    if number != signal.SIGHUP:
        assert signal.getsignal(number) is signal.default_int_handler


def test_what_nohup_asks_for_is_kept() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with as_keyboard_interrupt():
        signal.raise_signal(signal.SIGHUP)
        held = HeldSignals()
        signal.raise_signal(signal.SIGHUP)
        held.release()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_second_hangup_cuts_no_clean_up_short() -> None:
    cleaned_up = False
    with pytest.raises(KeyboardInterrupt), as_keyboard_interrupt():
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(signal.SIGHUP)
            cleaned_up = True
    signal.raise_signal(signal.SIGHUP)
    assert cleaned_up


@pytest.mark.parametrize("number", INTERRUPTIONS)
def test_each_waits_until_it_is_let_through(number: signal.Signals) -> None:
    came: list[int] = []
    with as_keyboard_interrupt():
        held = HeldSignals(lambda: came.append(1))
        signal.raise_signal(number)
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            held.release()
    assert came == [1]


def test_one_that_a_destructor_swallows_is_raised_after_it() -> None:
    """As Ctrl-C is in a callback of an import: the command would go on, and print a traceback."""

    class Closing:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    closing = Closing()
    with pytest.raises(KeyboardInterrupt), as_keyboard_interrupt():
        del closing
        time.sleep(5)


@pytest.mark.parametrize("step", ["put in", "taken out"])
def test_one_that_comes_while_they_change_leaves_none_that_swallows_the_next(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = signal.signal

    def interrupted(number: int, handler: Any) -> None:
        monkeypatch.undo()
        change(number, handler)
        signal.raise_signal(signal.SIGTERM if step == "put in" else signal.SIGINT)

    with as_keyboard_interrupt():
        held = HeldSignals() if step == "taken out" else None
        with pytest.raises(KeyboardInterrupt):
            monkeypatch.setattr(signal, "signal", interrupted)
            held = held or HeldSignals()
            held.release()
        for number in INTERRUPTIONS:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
