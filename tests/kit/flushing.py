"""A disk that fails right after a file was put in place: its folder cannot be flushed."""

from __future__ import annotations

import errno
import os
import stat

import pytest


def fail_to_flush_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have fsync(2) answer EIO for directories; files are flushed as ever."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
