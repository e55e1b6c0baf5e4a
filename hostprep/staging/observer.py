"""How the core tells what it is doing, without knowing who listens."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Told about a run's phases and progress; implemented by the command line."""

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """A phase begins; its totals where they are known."""

    def progress(self, files: int, size_bytes: int) -> None:
        """So much of the phase is done, counted from its beginning; never goes backwards."""

    def note(self, message: str) -> None:
        """Something that the user should know, in a sentence."""


class Silent:
    """An observer that does not listen."""

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """Ignore."""

    def progress(self, files: int, size_bytes: int) -> None:
        """Ignore."""

    def note(self, message: str) -> None:
        """Ignore."""
