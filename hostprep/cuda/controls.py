"""Prefetchers that are broken on purpose, each in one way.

A test of the prefetcher is only worth something if it catches these. They serve the tests and the
negative controls of ``hostprep verify``, nothing else.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hostprep.cuda.backend import Backend
from hostprep.cuda.prefetcher import CudaPrefetcher, Transfer


class NoWaitBeforeUse(CudaPrefetcher[Any]):
    """The consumer reads whether or not the batch has arrived."""

    def _before_use(self, backend: Backend, consumer: Any, copied: Any) -> None:
        pass


class NoWaitBack(CudaPrefetcher[Any]):
    """A copy begins while the consumer may still read what was in that memory."""

    def _before_copy(self, backend: Backend, consumer: Any) -> None:
        pass


class NoLifetime(CudaPrefetcher[Any]):
    """Unneeded batches are released while their copies are under way."""

    def _abandon(self, backend: Backend, ready: deque[Transfer], behind: deque[Transfer]) -> None:
        ready.clear()
        behind.clear()


class EarlyRefill(CudaPrefetcher[Any]):
    """Page-locked buffers are refilled while they may still be read."""

    def _retire(self, backend: Backend, behind: deque[Transfer], *, keep: int) -> None:
        while behind:
            self._slots.append(behind.popleft().slot)


MUTANTS = (NoWaitBeforeUse, NoWaitBack, NoLifetime, EarlyRefill)
