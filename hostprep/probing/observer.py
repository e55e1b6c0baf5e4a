"""The interface through which a probe reports its progress."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Is told how far the probe is."""

    def phase(self, name: str, seconds: float) -> None:
        """Begin a phase that takes about ``seconds``."""

    def progress(self, text: str) -> None:
        """Say what the phase currently measures."""


class Silent:
    """An observer that does not listen."""

    def phase(self, name: str, seconds: float) -> None:
        """Ignore it."""

    def progress(self, text: str) -> None:
        """Ignore it."""
