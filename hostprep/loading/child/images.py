"""Whether a batch holds images, and of what size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hostprep.loading.child.batches import shape_of

_COLOURS = 3
# Smaller ones are trained with smaller networks, many times as fast as the one used here.
_LEAST_SIDE = 128
_DEEPEST = 4  # levels of a nested batch


def image_side(batch: Any, depth: int = _DEEPEST) -> int | None:
    """Return the side in pixels of square images as large as those in a batch; None if it has none.

    Images are arrays of batch x 3 x height x width, or with the colours last, of 128 pixels or
    more.
    """
    shape = shape_of(batch)
    if shape is not None:
        return _side(shape)
    if depth == 0:
        return None
    inner: Any = ()
    if isinstance(batch, Mapping):
        inner = batch.values()
    elif isinstance(batch, list | tuple):
        inner = batch
    sides = (image_side(item, depth - 1) for item in inner)
    return next((side for side in sides if side is not None), None)


def _side(shape: tuple[int, ...]) -> int | None:
    if len(shape) != 4:
        return None
    _, first, second, third = shape
    if first == _COLOURS:
        height, width = second, third
    elif third == _COLOURS:
        height, width = first, second
    else:
        return None
    return round(math.sqrt(height * width)) if min(height, width) >= _LEAST_SIDE else None
