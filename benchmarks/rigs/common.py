"""Counters shared by a serving process and the one that measures it: a mapped file of doubles."""

from __future__ import annotations

import mmap
import os
from pathlib import Path


class Counters:
    """Named numbers in a file that several processes map; live, with one writer at a time for each.

    Doubles count exactly up to 2^53. There are no locks: for exact readings, read when all is at
    rest.
    """

    def __init__(self, path: Path, names: tuple[str, ...], *, create: bool = False) -> None:
        length_bytes = 8 * len(names)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        file = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(file, length_bytes)
            self._values = memoryview(mmap.mmap(file, length_bytes)).cast("d")
        finally:
            os.close(file)
        self._index = {name: index for index, name in enumerate(names)}

    def __getitem__(self, name: str) -> float:
        return self._values[self._index[name]]

    def __setitem__(self, name: str, value: float) -> None:
        self._values[self._index[name]] = value
