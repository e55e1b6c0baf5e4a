"""One run at a time in a private directory, even if runs do not share their locks.

Containers that share a target mostly have records and locks of their own. Each would take the
other's copies for those of an interrupted run, and write to them even after they are published.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress

from hostprep.staging.target.owned import open_own, private_name
from hostprep.system.descriptors import closed_on_error
from hostprep.system.locks import Locked

# The workers of a killed run keep the directory until they have ended too.
_PATIENCE_SECONDS, _POLL_SECONDS = 2.0, 0.02


def open_held(parent_fd: int, target: str) -> int | None:
    """Do as ``open_own``, and hold the directory; raise ``Locked`` if another run does, or did."""
    descriptor = open_own(parent_fd, target)
    if descriptor is None:
        return None
    with closed_on_error(descriptor):
        hold(descriptor, target)
        if _was_removed(parent_fd, private_name(os.path.basename(target)), descriptor):
            raise locked(target, "was")
    return descriptor


def _was_removed(parent_fd: int, name: str, descriptor: int) -> bool:
    """Whether the other run has published, and removed the open directory, before it was held."""
    try:
        there = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return True
    status = os.fstat(descriptor)  # some file systems change the numbers of what is there
    return not os.path.samestat(there, status) and status.st_nlink == 0


def hold(descriptor: int, target: str) -> None:
    """Keep other runs of this kernel from an open private directory, until ``let_go``.

    The lock is one on the directory itself, and ends with the process and its workers. Raises
    ``Locked`` if another run has it.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                return  # this file system has no locks on directories
        if time.monotonic() >= deadline:
            raise locked(target, "is")
        time.sleep(_POLL_SECONDS)


def let_go(descriptor: int) -> None:
    """Let others have the directory, even if a killed worker that does not end has it open."""
    with suppress(OSError):  # as in ``hold``
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def locked(target: str, tense: str) -> Locked:
    """Return the error if another run "is", or "was", at work there."""
    return Locked(
        f"another hostprep, with records and locks of its own as in another container, {tense} at"
        f" work on {target}; nothing was changed.",
        "wait for it to end; containers that share a target wait for each other, and know what is"
        " staged there, if all have the same HOSTPREP_STATE_DIR and HOSTPREP_RUN_DIR, for instance"
        " on the volume that they share",
    )
