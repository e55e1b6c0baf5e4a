"""Arrays in ``.npy`` files, of which a broken one must cost itself alone."""

from __future__ import annotations

import io
import math
from typing import Any

MAGIC = b"\x93NUMPY"


def read_array(data: bytes) -> Any:
    """Return the array in ``data``; raise ``ValueError`` where it is none.

    Its header may promise more than any memory holds, and numpy asks for the memory first, before
    it looks whether the file has as much. Format: numpy.lib.format, NEP 1.
    """
    import numpy as np

    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except ValueError:
        raise
    except MemoryError:
        _check_size(data)  # only now: a header takes as long to read as a small array
        raise
    except Exception as error:  # of a broken header any: OverflowError, RecursionError, TypeError
        raise ValueError(str(error) or type(error).__name__) from None


def _check_size(data: bytes) -> None:
    """Raise ``ValueError`` where the header says more than the file has."""
    from numpy.lib import format as npy

    file = io.BytesIO(data)
    # Version 3 differs from 2 in how the names of fields are spelled, and not in their sizes.
    first = npy.read_magic(file) == (1, 0)
    read = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
    shape, _, kind = read(file)
    if any(length < 0 for length in shape):
        raise ValueError(f"its header has a shape of {shape}")
    wanted, there = math.prod(shape) * kind.itemsize, len(data) - file.tell()
    # How long pickled objects are, no header says; they are not read at all.
    if wanted > there and not kind.hasobject:
        raise ValueError(
            f"its header says {wanted:,} bytes ({kind}, shape {shape}), and it holds {there:,}"
        )
