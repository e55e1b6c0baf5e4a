"""Reading arrays from ``.npy`` files; a broken file must cost only itself."""

from __future__ import annotations

import io
import math
from typing import Any

MAGIC = b"\x93NUMPY"


def read_array(data: bytes) -> Any:
    """Return the array in ``data``; raise ``ValueError`` if it is none.

    The header may claim more than any memory holds, and numpy allocates that before it checks
    whether the file is that long. Format: numpy.lib.format, NEP 1.
    """
    import numpy as np

    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except ValueError:
        raise
    except MemoryError:
        _check_size(data)  # only now: a header takes as long to read as a small array
        raise
    except Exception as error:  # for a broken header any: OverflowError, RecursionError, TypeError
        raise ValueError(str(error) or type(error).__name__) from None


def _check_size(data: bytes) -> None:
    """Raise ``ValueError`` if the header claims more than the file has."""
    from numpy.lib import format as npy

    file = io.BytesIO(data)
    # Version 3 differs from 2 in how field names are encoded, not in the sizes.
    first = npy.read_magic(file) == (1, 0)
    read = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
    shape, _, kind = read(file)
    if any(length < 0 for length in shape):
        raise ValueError(f"its header has a shape of {shape}")
    wanted, there = math.prod(shape) * kind.itemsize, len(data) - file.tell()
    # No header says how long pickled objects are; they are not read at all.
    if wanted > there and not kind.hasobject:
        raise ValueError(
            f"its header says {wanted:,} bytes ({kind}, shape {shape}), and it holds {there:,}"
        )
