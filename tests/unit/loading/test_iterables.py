"""Iterables of unknown make: timed as they are, their samples counted as well as can be told."""

from __future__ import annotations

import itertools
import time
from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from hostprep.errors import Inconclusive
from hostprep.loading.child.batches import count_samples
from hostprep.loading.child.iterables import Window, time_iterable, window_of
from hostprep.loading.child.opening import Opened, describe


def slow(item: Any) -> Any:
    """Give an item over and over, a hundred times a second at most."""
    while True:
        time.sleep(0.01)
        yield item


def opened(item: Any) -> Opened:
    return Opened(None, None, slow(item), None, 1, "iterable", "mine")


class Epochs:
    """So many items, that can be iterated again; all are made before the first, as by a shuffle."""

    def __init__(self, items: int, seconds: float) -> None:
        self.items = items
        self.seconds = seconds

    def __iter__(self) -> Iterator[Any]:
        time.sleep(self.items * self.seconds)
        return iter([torch.zeros(16, 8)] * self.items)


class Unending:
    """Says 0 of itself, as DALI's iterators do where they have no end."""

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(torch.zeros(16, 8))


@dataclass
class Told:
    """A batch of a class of one's own."""

    images: torch.Tensor
    labels: torch.Tensor


class Whole(UserDict[str, torch.Tensor]):
    """As TensorDict is: its shape is that of its batches alone."""

    shape = (16,)


class ListOfTensors:
    """As DALI's lists of tensors are: no array, but a method that tells the shape of each."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self.shapes = shapes

    def shape(self) -> list[tuple[int, ...]]:
        return list(self.shapes)


@pytest.mark.timed
def test_any_iterable_is_timed_by_its_rows() -> None:
    batch = {"image": torch.zeros(16, 3), "label": [1] * 16}
    # Long enough that a machine which stands still for a moment makes no difference.
    found = time_iterable(opened(batch), None, 1.5, 20.0)
    assert found["rows"] == 16
    assert "--batch-size" in found["counted"]
    assert 50 < found["samples_per_s"] <= 1600


@pytest.mark.timed
def test_what_comes_at_once_after_a_wait_is_timed_by_whole_epochs() -> None:
    data = Epochs(20, 0.01)
    found = time_iterable(Opened(None, None, data, None, 1, "iterable", "mine"), None, 0.5, 20.0)
    assert 50 < found["samples_per_s"] <= 1600


@pytest.mark.timed
def test_a_batch_size_that_was_given_counts() -> None:
    found = time_iterable(opened(torch.zeros(3, 8, 8)), 64, 0.5, 20.0)
    assert 64 * 5 < found["samples_per_s"] <= 64 * 100
    assert found["counted"] == "as 64 samples, as --batch-size says"


@pytest.mark.parametrize(
    ("item", "samples"),
    [
        ((torch.zeros(16, 3, 8, 8), torch.zeros(16)), 16),
        ([{"data": torch.zeros(16, 8, 8, 3), "label": torch.zeros(16, 1)}], 16),
        ({"tokens": torch.zeros(8, 1024), "mask": torch.zeros(8, 1024)}, 8),
        ({"image": torch.zeros(16, 3, 8, 8), "path": ["a.jpg"] * 16}, 16),
        (torch.zeros(16, 3, 8, 8), 16),
        (torch.zeros(256, 30), 256),
        (Told(torch.zeros(16, 3, 8, 8), torch.zeros(16)), 16),
        (Whole(x=torch.zeros(16, 3, 8, 8), y=torch.zeros(16)), 16),
        # As DALI gives them: images of one size or several, and their labels.
        ((ListOfTensors(*[(3, 8, 8)] * 16), ListOfTensors(*[(1,)] * 16)), 16),
        ((ListOfTensors((3, 8, 8), (3, 9, 7), (3, 5, 5)),), 3),
        ((ListOfTensors((4711,), (4712,), (42,)), ListOfTensors((), (), ())), 3),
        # One sample an item: an image either way round, alone or with its label.
        (torch.zeros(3, 224, 224), 1),
        (torch.zeros(224, 224, 3).numpy(), 1),
        ((torch.zeros(3, 224, 224), 7), 1),
        ((torch.zeros(3, 224, 224), torch.tensor(7)), 1),
        ({"image": torch.zeros(3, 224, 224), "path": "a.jpg"}, 1),
        ((torch.zeros(3, 224, 224), torch.zeros(1, 224, 224)), 1),
        (torch.zeros(1024), 1),
        ({"tokens": [5] * 1024, "mask": [1] * 1024}, 1),
        ({"text": "once"}, 1),
        (Told(torch.zeros(3, 8, 8), torch.tensor(7)), 1),
        (Whole(x=torch.zeros(16), y=torch.zeros(16)), 1),
        (torch.nested.nested_tensor([torch.zeros(3, 4)]), 1),  # has no shape
        ((), 1),
    ],
)
def test_an_unbatched_item_is_one_sample(item: Any, samples: int) -> None:
    rows, words = count_samples(item)
    assert rows == samples
    assert ("one sample" in words) is (samples == 1)


def steadily(items: int) -> list[float]:
    """Return when items come of which each takes a tenth of a second."""
    return [0.1 * number for number in range(items)]


@pytest.mark.parametrize(
    ("marks", "ends", "window"),
    [
        (steadily(41), [], Window(20, 40, 1)),  # the first two seconds are for warming up
        (steadily(25), [], Window(3, 24, 1)),  # but not where it is over soon
        (steadily(5), [], Window(2, 4, 1)),
        (steadily(3), [], Window(0, 2, 1)),
        (steadily(36), [9, 19, 29], Window(9, 29, 10)),
        (steadily(36), [9], Window(9, 35, 1)),
        (steadily(11), [9], Window(3, 10, 1)),
        ([0.0, 5.0, 10.0, 15.0, 20.0, 25.0], [], Window(3, 5, 1)),
    ],
)
def test_which_items_count(marks: list[float], ends: list[int], window: Window) -> None:
    assert window_of(marks, ends, 2.0) == window


def test_an_iterable_that_says_it_is_empty_may_not_be() -> None:
    unending = Opened(None, None, Unending(), None, 1, "iterable", "mine")
    assert describe(unending, thoroughly=True).length is None
    assert time_iterable(unending, None, 0.05, 5.0)["samples_per_s"] > 0


@pytest.mark.parametrize(
    ("items", "words"), [(0, "is empty"), (2, "ended after 2 batches"), (1, "ended after 1 batch,")]
)
def test_too_few_items_are_inconclusive(items: int, words: str) -> None:
    few = Opened(None, None, Epochs(items, 0.0), None, 1, "iterable", "mine")
    with pytest.raises(Inconclusive, match=words):
        time_iterable(few, None, 0.05, 5.0)


def test_items_that_take_longer_than_there_is_time_are_inconclusive() -> None:
    endless = Opened(None, None, slow(torch.zeros(16, 8)), None, 1, "iterable", "mine")
    with pytest.raises(Inconclusive, match=r"gave 2 items in 0 s") as raised:
        time_iterable(endless, None, 0.05, 0.015)
    assert "--seconds" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("module", "maker"),
    [
        ("tensorflow.python.data.ops.batch_op", "tf.data"),
        ("nvidia.dali.plugin.pytorch", "DALI"),
        ("tensorflow_of_mine", None),
    ],
)
def test_whose_pipeline_it_is_shows_by_its_class_or_what_it_gives(
    module: str, maker: str | None
) -> None:
    theirs = type("Theirs", (Unending,), {"__module__": module})
    by_class = Opened(None, None, theirs(), None, 1, "iterable", "mine")
    assert time_iterable(by_class, None, 0.02, 5.0)["maker"] == maker
    given = type("Tensor", (ListOfTensors,), {"__module__": module})((3, 8, 8), (3, 8, 8))
    items = itertools.repeat({"image": (given,)})
    by_item = Opened(None, None, items, None, 1, "iterable", "mine")
    assert time_iterable(by_item, None, 0.02, 5.0)["maker"] == maker


@pytest.mark.parametrize(
    ("module", "rows"), [("lightning.pytorch.utilities.combined_loader", 16), ("mine", 1)]
)
def test_the_numbers_beside_a_batch_of_lightnings_make_it_no_single_sample(
    module: str, rows: int
) -> None:
    kind = type(
        "CombinedLoader",
        (Unending,),
        {
            "__module__": module,
            "__iter__": lambda _: itertools.repeat(({"a": torch.zeros(16, 8)}, 0, 0)),
        },
    )
    theirs = Opened(None, None, kind(), None, 1, "iterable", "mine")
    assert time_iterable(theirs, None, 0.02, 1)["rows"] == rows


def test_a_dataloader_that_it_goes_over_is_named() -> None:
    class Prefetching:
        def __init__(self) -> None:
            self.loader = DataLoader(list(range(4000)), batch_size=8)  # type: ignore[arg-type]

        def __iter__(self) -> Iterator[Any]:
            return iter(self.loader)

    of = Opened(None, None, Prefetching(), None, None, "iterable", "mine")
    assert time_iterable(of, None, 0.02, 5.0)["goes_over"] == "loader"
    assert time_iterable(opened(torch.zeros(2)), None, 0.02, 5.0)["goes_over"] is None
