"""Flushing to disk what must survive a power cut, before anything that relies on it."""

from __future__ import annotations

import ctypes
import errno
import os

from hostprep.errors import HostprepError


class NotFlushed(HostprepError):
    """A file is in its place, but a power cut may bring back what was there before."""

    code = "not_flushed"


def flush_directory(path: str | os.PathLike[str]) -> None:
    """Make the names in a directory survive a power cut. Raises ``OSError``.

    Does nothing if the directory may be written but not read, or its file system (9p) cannot.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def flush_file_system(descriptor: int) -> None:
    """Write everything on ``descriptor``'s file system to its disk. Raises ``OSError``."""
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
