"""Read-ahead hints, so that a disk has its next request before it has finished the last one."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from hostprep.staging.files import copying
from hostprep.staging.files.metadata import CopyStyle
from hostprep.system.trees import DirCache

# How much to request ahead of the file being copied. Enough for a disk to keep going while a file
# is written, little enough that nothing is evicted before it is used.
WINDOW_BYTES = 8 * 1024 * 1024
WINDOW_FILES = 128
# For one hint the kernel reads no more than the larger of its readahead (128 KiB by default) and
# the device's largest request, which is smaller on USB.
_HINT_BYTES = 128 * 1024


class Lookahead:
    """Opens the files of a task before their turn and asks the kernel to read them (WILLNEED).

    A file gets as many hints as it takes, up to the window; the rest is read by ordinary readahead
    once its turn comes. If only its beginning were requested, a disk arm would move on to the next
    file and come back. ``files`` and ``directories`` are the most that it may have open.
    """

    def __init__(self, source_fd: int, style: CopyStyle, *, files: int, directories: int) -> None:
        self._cache = DirCache(source_fd, limit=directories)
        self._most = files
        self._style = style
        self._coming: Iterator[tuple[str, tuple[Any, ...]]] = iter(())
        self._open: deque[tuple[str, str, int | None, int]] = deque()
        self._bytes = 0

    def begin(self, files: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        """Begin a task with its (directory, entry) pairs, in the order in which to take them."""
        self._drop()
        self._coming = iter(files)

    def take(self, directory: str, name: str) -> int | None:
        """Return the open descriptor of the file whose turn it is, None if it was not opened.

        The caller closes it.
        """
        self._fill()
        while self._open:
            found_directory, found_name, descriptor, size = self._open.popleft()
            self._bytes -= size
            if (found_directory, found_name) == (directory, name):
                return descriptor
            if descriptor is not None:
                os.close(descriptor)  # skipped, because its directory could not be opened
        return None

    def close(self) -> None:
        """Close what was opened and not taken, and the directories."""
        self._drop()
        self._cache.close()

    def _drop(self) -> None:
        self._coming = iter(())
        while self._open:
            descriptor = self._open.popleft()[2]
            if descriptor is not None:
                os.close(descriptor)
        self._bytes = 0

    def _fill(self) -> None:
        while len(self._open) < self._most and self._bytes < WINDOW_BYTES:
            coming = next(self._coming, None)
            if coming is None:
                return
            directory, entry = coming
            name, mode, size = entry[:3]
            descriptor = None
            if stat.S_ISREG(mode):
                try:
                    descriptor = copying.open_source(name, self._cache.fd(directory), self._style)
                    for offset in range(0, min(size, WINDOW_BYTES), _HINT_BYTES):
                        os.posix_fadvise(descriptor, offset, _HINT_BYTES, os.POSIX_FADV_WILLNEED)
                except OSError:
                    pass  # the copy will open it again and report the error
            self._open.append((directory, name, descriptor, size))
            self._bytes += size
