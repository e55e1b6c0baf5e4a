"""The probe's own folder: hidden, locked while in use, removed whatever happens.

A killed run cannot remove its folder. The kernel drops its lock, though, and the next run of the
same host removes what nobody holds any more.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".hostprep-probe-"
_LOCK = "lock"


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """Make a folder below ``parent`` for as long as the body runs.

    OSError where none can be made there. Afterwards the parent's times are as before, so that
    nobody takes the data for changed.
    """
    before = os.stat(parent)
    _remove_stale(parent)
    folder = parent / f"{PREFIX}{_host()}-{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=0o700)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.utime(parent, ns=(before.st_atime_ns, before.st_mtime_ns))
        except OSError:
            pass  # not ours to set, or read-only: then it was not changed either


def _remove_stale(parent: Path) -> None:
    """Remove folders that this user's killed runs on this host left behind."""
    for folder in parent.glob(f"{PREFIX}{_host()}-*"):
        if folder.is_symlink() or folder.lstat().st_uid != os.geteuid():
            continue
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # just being made, or not one of ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # in use by a run that lives
        finally:
            os.close(lock)


def _host() -> str:
    """Return this host's name: on a shared file system, locks of others may not be visible."""
    return re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()) or "host"
