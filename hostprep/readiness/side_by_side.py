"""Many questions at the same time; one after the other where there may be no further thread.

A limit on processes (``ulimit -u``, pids.max) counts threads too, and one on the address space
leaves no room for their stacks: no reason to know nothing of a host.
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
    except RuntimeError:  # of a thread that cannot be started; of a question, it comes again
        return tuple(map(question, items))


def begin(work: Callable[[], None], *, name: str) -> None:
    """Do ``work`` in a thread that does not keep the command from ending, or else here and now."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError:
        work()
