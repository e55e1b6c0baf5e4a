"""Starting a process of our own, where a limit may stand in the way."""

from __future__ import annotations

import os

from hostprep.errors import HostprepError, reading_hint


class NoProcess(HostprepError):
    """No further process could be started, for ``reason``."""

    def __init__(self, error: OSError) -> None:
        message = f"no further process could be started: {error.strerror}."
        super().__init__(message, reading_hint(error))
        self.reason = error.strerror


def fork() -> int:
    """Fork this process as ``os.fork`` does; raises ``NoProcess`` where there may be no more."""
    try:
        return os.fork()
    except OSError as error:
        raise NoProcess(error) from None
