"""Data sets whose source is the copy of another one, or lies in it: that is staged before them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from hostprep.spec.model import DatasetSpec

Item = TypeVar("Item")


def holder_of(path: str, folders: Mapping[str, Item]) -> Item | None:
    """Return what ``folders`` has for ``path``, or for the nearest folder above it."""
    while path not in folders:
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above
    return folders[path]


def staged_before(index: int, feeders: Sequence[int | None]) -> tuple[int, ...]:
    """Return those that have to be staged before one, the nearest first; a circle goes round once.

    ``feeders`` has for each the one in whose copy its source lies.
    """
    found: dict[int, None] = {}
    while (feeder := feeders[index]) is not None and feeder not in found:
        found[feeder] = None
        index = feeder
    return tuple(found)


class Misfed(NamedTuple):
    """A data set that cannot be staged from a ``feeder``'s copy as it says; both by their places.

    ``key`` is of the entry; ``message`` has ``{}`` for the feeder.
    """

    dataset: int
    key: str
    feeder: int
    message: str


def mistakes_in_feeding(datasets: Sequence[DatasetSpec]) -> Iterator[Misfed]:
    """Yield each data set that cannot be staged from another's copy as it says."""
    targets = {dataset.target: index for index, dataset in enumerate(datasets)}
    feeders = [holder_of(dataset.source, targets) for dataset in datasets]
    for index, feeder in enumerate(feeders):
        if feeder is None or feeder == index:  # the latter is said of its copy already
            continue
        if index in staged_before(index, feeders):
            words = "would come from the copy of {}, which comes from its own; name an original"
            yield Misfed(index, "source", feeder, words)
        dataset, other = datasets[index], datasets[feeder]
        if dataset.at_boot and other.volume is not None and not other.at_boot:
            words = (
                "cannot be, since its source is the copy of {}, which a reboot takes away; set"
                " `at_boot` there too"
            )
            yield Misfed(index, "at_boot", feeder, words)
