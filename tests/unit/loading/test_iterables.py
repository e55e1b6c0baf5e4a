"""Iterables of unknown make: timed as they are, their samples counted as well as can be told."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from hostprep.loading.child.iterables import count_samples, time_iterable
from hostprep.loading.child.opening import Opened

pytestmark = pytest.mark.timed


def slow(item: Any) -> Any:
    """Give an item over and over, a hundred times a second at most."""
    while True:
        time.sleep(0.01)
        yield item


def opened(item: Any) -> Opened:
    return Opened(None, None, slow(item), None, 1, "iterable", "mine")


def test_any_iterable_is_timed_by_its_rows() -> None:
    batch = {"image": torch.zeros(16, 3), "label": [1] * 16}
    # Long enough that a machine which stands still for a moment makes no difference.
    found = time_iterable(opened(batch), None, 1.5, 20.0)
    assert found["rows"] == 16
    assert "--batch-size" in found["counted"]
    assert 50 < found["samples_per_s"] <= 1600


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
        (torch.nested.nested_tensor([torch.zeros(3, 4)]), 1),  # has no shape
        ((), 1),
    ],
)
def test_an_unbatched_item_is_one_sample(item: Any, samples: int) -> None:
    rows, words = count_samples(item)
    assert rows == samples
    assert ("one sample" in words) is (samples == 1)
