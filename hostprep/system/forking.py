"""Starting a process of our own, where a limit may stand in the way."""

from __future__ import annotations

import errno
import os

from hostprep.errors import HostprepError


class NoProcess(HostprepError):
    """No further process could be started, for ``reason``."""

    def __init__(self, error: OSError) -> None:
        hint = None
        if error.errno == errno.EAGAIN:
            hint = (
                "a limit on processes is reached: raise `ulimit -u`, or pids.max of the control"
                " group (TasksMax of a service)"
            )
        elif error.errno == errno.EMFILE:
            hint = "a limit on open files is reached: raise `ulimit -n`"
        super().__init__(f"no further process could be started: {error.strerror}.", hint)
        self.reason = error.strerror


def fork() -> int:
    """Fork this process as ``os.fork`` does; raises ``NoProcess`` where there may be no more."""
    try:
        return os.fork()
    except OSError as error:
        raise NoProcess(error) from None
