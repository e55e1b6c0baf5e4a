"""Many questions at the same time, or one after the other if no more threads can be started.

A limit on processes (``ulimit -u``, pids.max) also counts threads, and one on the address space may
leave no room for their stacks. That is no reason to report nothing about a host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_MOST_AT_ONCE = 32

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def at_once(question: Callable[[Item], Answer], items: Sequence[Item]) -> tuple[Answer, ...]:
    """Return the answers to ``question`` for all items, asked at the same time."""
    if not items:
        return ()
    try:
        with ThreadPoolExecutor(min(len(items), _MOST_AT_ONCE)) as pool:
            return tuple(pool.map(question, items))
    except RuntimeError:  # if a question raised it, it will raise it again below
        return tuple(map(question, items))


def begin(work: Callable[[], None], *, name: str) -> None:
    """Do ``work`` in a thread that does not keep the command from ending, or else right here."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError:
        work()
