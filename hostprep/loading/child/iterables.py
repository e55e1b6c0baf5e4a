"""Timing an iterable of unknown type as it is, by the samples it gives, in the measuring child."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import Inconclusive
from hostprep.loading.child import processes
from hostprep.loading.child.alone import SLOW_BATCHES
from hostprep.loading.child.batches import count_samples
from hostprep.loading.child.opening import Opened
from hostprep.loading.child.starting import Batches
from hostprep.loading.child.timing import relative_error
from hostprep.loading.model import Pipeline
from hostprep.units import format_count

_WARM_UP = 4
# By the package that the iterable's class, or what it gives, comes from.
_MAKERS = {"tensorflow.": "tf.data", "nvidia.dali.": "DALI"}


@dataclass(frozen=True, slots=True)
class Window:
    """The items that count: those after ``first``, up to ``last``, in groups of ``step``."""

    first: int
    last: int
    step: int


def time_iterable(
    opened: Opened, batch_size: int | None, seconds: float, limit_seconds: float
) -> dict[str, Any]:
    """Time any iterable as it is, for about twice ``seconds``, and return a ``Pipeline``'s fields.

    If it ends, it is iterated again, and timed by whole epochs if an epoch is short. An item counts
    as ``batch_size`` samples or, if that is None, as many as it seems to hold. Raises
    ``Inconclusive`` if too few came.
    """

    def count(item: Any) -> tuple[int, str]:
        if batch_size is not None:
            return batch_size, f"as {format_count(batch_size, 'sample')}, as --batch-size says"
        rows, words = count_samples(_batch_in(opened.iterable, item))
        return rows, f"{words}; if that is wrong, give --batch-size"

    begin = time.perf_counter()
    items = Batches(iter(opened.iterable), opened.description, again=lambda: iter(opened.iterable))
    item = items.take()
    (rows, words), maker = count(item), _maker(opened.iterable, item)
    before = processes.usage(())
    marks, samples, ends = [time.perf_counter()], [rows], list[int]()
    while _goes_on(marks, ends, seconds, begin + limit_seconds):
        epochs = items.epochs
        try:
            item = items.take()
        except Inconclusive:
            if len(marks) <= SLOW_BATCHES:
                raise
            break
        if items.epochs > epochs:
            ends.append(len(marks) - 1)
        rows, words = count(item)
        samples.append(rows)
        marks.append(time.perf_counter())
    if len(marks) <= SLOW_BATCHES:
        raise Inconclusive(
            f"{opened.description} gave {format_count(len(marks), 'item')} in"
            f" {marks[-1] - begin:.0f} s, too few to measure a rate.",
            "give it more time (--seconds), or smaller batches",
        )
    used = processes.used_between(before, processes.usage(()))
    window = window_of(marks, ends, seconds)
    counted = marks[window.first : window.last + 1]
    found = Pipeline(
        samples_per_s=sum(samples[window.first + 1 : window.last + 1]) / (counted[-1] - counted[0]),
        relative_error=relative_error(counted, window.step),
        rows=rows,
        counted=words,
        maker=maker,
        own_cpus=used["own_cpus"],
        others_cpus=used["others_cpus"],
        goes_over=_goes_over(opened.iterable),
    )
    return asdict(found)


def window_of(marks: Sequence[float], ends: Sequence[int], seconds: float) -> Window:
    """Return which of the items that came at ``marks`` count; those at ``ends`` ended an epoch.

    Items that were made ahead while it started are not part of the rate, nor is the time in which
    it tunes itself. An iterable that shuffles through a buffer fills that before its first item,
    and empties it all at once at the end of an epoch: only whole epochs, each with its beginning,
    show the rate of such an iterable.
    """
    last = len(marks) - 1
    if len(ends) > 1:
        return Window(ends[0], ends[-1], (ends[-1] - ends[0]) // (len(ends) - 1))
    few = max(0, min(_WARM_UP - 1, last - SLOW_BATCHES))
    if ends and last - ends[0] >= SLOW_BATCHES:
        return Window(ends[0], last, 1)
    warm = next((n for n, mark in enumerate(marks) if mark - marks[0] >= seconds), last)
    enough = marks[last] - marks[warm] >= seconds / 2 and last - warm >= SLOW_BATCHES
    return Window(max(few, warm) if enough else few, last, 1)


def _goes_on(marks: Sequence[float], ends: Sequence[int], seconds: float, deadline: float) -> bool:
    """Return whether another item is to be taken."""
    now, came = marks[-1], len(marks)
    if came > 1 and now + (now - marks[-2]) > deadline:
        return False
    if ends:  # with whole epochs one has to last that long, and be complete
        return len(ends) < 2 or marks[ends[-1]] - marks[ends[0]] < seconds
    return now - marks[0] < 2 * seconds or came < _WARM_UP + SLOW_BATCHES


def _maker(iterable: Any, item: Any) -> str | None:
    """Return whose pipeline it is, by its class or by what it gives; None for any other."""
    for thing in (iterable, *_parts(item)):
        for package, maker in _MAKERS.items():
            if type(thing).__module__.startswith(package):
                return maker
    return None


def _batch_in(iterable: Any, item: Any) -> Any:
    """Return an item without what Lightning's CombinedLoader puts beside its batch.

    That is the batch's number and its loader's, which would make it look like a single sample.
    """
    combined = any(
        kind.__name__ == "CombinedLoader" and "lightning" in kind.__module__.partition(".")[0]
        for kind in type(iterable).__mro__
    )
    return item[0] if combined and isinstance(item, tuple) and len(item) == 3 else item


def _goes_over(iterable: Any) -> str | None:
    """Return the attribute that is a DataLoader, as in timm's PrefetchLoader; None if none is."""
    data = sys.modules.get("torch.utils.data")
    if data is None:  # then nobody has made one
        return None
    attributes = getattr(iterable, "__dict__", {})
    loaders = (name for name, value in attributes.items() if isinstance(value, data.DataLoader))
    return next(loaders, None)


def _parts(item: Any) -> Iterator[Any]:
    if isinstance(item, list | tuple | Mapping):
        for value in item.values() if isinstance(item, Mapping) else item:
            yield from _parts(value)
    else:
        yield item
