"""What the workers have copied so far, including their unfinished tasks."""

from __future__ import annotations

from mmap import mmap

_NUMBER_BYTES = 8
# A cache line for each, so that no processor waits for another's.
_APART = 8


class Effort:
    """Two counters for each of ``readers``, in memory that is shared with processes forked later.

    Each counter has a single writer, so no locks are needed. Copying something twice counts twice.
    """

    def __init__(self, readers: int) -> None:
        self._counters = memoryview(mmap(-1, readers * _APART * _NUMBER_BYTES)).cast("Q")

    def of(self, reader: int) -> memoryview:
        """Return the counters of the reader with this number: parts (see ``total``), bytes."""
        return self._counters[_APART * reader :][:2]

    def total(self) -> tuple[int, int]:
        """Return how many files and pieces of large ones were copied, and how many bytes."""
        return sum(self._counters[::_APART]), sum(self._counters[1::_APART])
