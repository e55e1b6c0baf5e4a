"""Timing an iterable of unknown make, in the measuring child: as it is, by the samples it gives."""

from __future__ import annotations

import time
from typing import Any

from hostprep.errors import Inconclusive
from hostprep.loading.child.alone import SLOW_BATCHES
from hostprep.loading.child.batches import count_samples
from hostprep.loading.child.opening import Opened
from hostprep.loading.child.starting import Batches
from hostprep.loading.child.timing import relative_error
from hostprep.units import format_count

_WARM_UP = 4


def time_iterable(
    opened: Opened, batch_size: int | None, seconds: float, limit_seconds: float
) -> dict[str, Any]:
    """Time any iterable as it is: four items to warm up, then items a second.

    An item counts as ``batch_size`` samples; where that is None, as many as it seems to hold.
    """

    def count(item: Any) -> tuple[int, str]:
        if batch_size is not None:
            return batch_size, f"as {format_count(batch_size, 'sample')}, as --batch-size says"
        rows, words = count_samples(item)
        return rows, f"{words}; where that is wrong, say --batch-size"

    items = Batches(iter(opened.iterable), opened.description)
    begin = time.perf_counter()
    samples = 0
    for _ in range(_WARM_UP):
        rows, words = count(items.take())
    start = time.perf_counter()
    marks = [start]
    while marks[-1] - start < seconds and marks[-1] - begin < limit_seconds:
        try:
            item = items.take()
        except Inconclusive:
            break
        samples += count(item)[0]
        marks.append(time.perf_counter())
    if len(marks) - 1 < SLOW_BATCHES:
        raise Inconclusive(f"{opened.description} gave too few items in time to take a rate.")
    return {
        "samples_per_s": samples / (marks[-1] - start),
        "relative_error": relative_error(marks, 1),
        "rows": rows,
        "counted": words,
    }
