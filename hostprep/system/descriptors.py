"""Open descriptors, closed after the body that uses them, like ``contextlib.closing``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


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
