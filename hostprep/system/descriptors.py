"""Open descriptors, closed after the body that uses them, like ``contextlib.closing``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType


@contextmanager
def closing_fd(descriptor: int) -> Iterator[int]:
    """Yield ``descriptor``, and close it after the body, however that ends."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def closed_on_error(descriptor: int | None) -> Iterator[None]:
    """Close ``descriptor``, if any, if the body raises; else it belongs to whoever gets it."""
    try:
        yield
    except BaseException:
        if descriptor is not None:
            os.close(descriptor)
        raise


class named:
    """Make errors of calls by descriptor name the ``path`` of what is open.

    This is a class because a generator would cost as much as the system call itself.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path | str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error.filename, str | bytes):
            error.filename = str(self._path)
