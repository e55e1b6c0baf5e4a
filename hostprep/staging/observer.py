"""How the core reports what it is doing, without knowing who listens."""

from __future__ import annotations

from time import monotonic
from typing import Protocol

_TELL_SECONDS = 0.1


class Observer(Protocol):
    """Receives a run's phases and progress; implemented by the command line."""

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """A phase begins; its totals if they are known."""

    def progress(self, files: int, size_bytes: int) -> None:
        """This much of the phase is done, from its beginning; never goes backwards."""

    def note(self, message: str) -> None:
        """Something that the user should know, in a sentence."""


class Count:
    """Counts what is done in a phase and reports it to an observer about every 0.1 s.

    If things are looked at twice, it never reports more than ``most``.
    """

    def __init__(self, observer: Observer, most: int | None = None) -> None:
        self._observer = observer
        self._most = most
        self._done = 0
        self._told = monotonic()

    def add(self, files: int = 1) -> None:
        """Count this many more as done."""
        self._done += files
        if (now := monotonic()) - self._told >= _TELL_SECONDS:
            self._told = now
            done = self._done if self._most is None else min(self._done, self._most)
            self._observer.progress(done, 0)


class Silent:
    """An observer that does not listen."""

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """Ignore."""

    def progress(self, files: int, size_bytes: int) -> None:
        """Ignore."""

    def note(self, message: str) -> None:
        """Ignore."""
