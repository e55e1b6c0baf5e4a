"""How many samples an item counts as, by who made the data set that gives it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hostprep.loading.child.batched import counter_of
from tests.unit.loading import odd_loaders

# What webdataset's batched() makes of raw bytes, and Hugging Face's batch() of texts.
RAW = {"jpg": [b"x"] * 16, "cls": [b"3"] * 16}
TEXTS = {"text": ["a word"] * 16, "label": [1] * 16}
# One text, or sixteen rows of two numbers.
TOKENS = {"input_ids": [1] * 16, "labels": [1] * 16}


class Hub:
    """As Hugging Face's ``Dataset``: what made its items it keeps no word of."""

    __module__ = "datasets.arrow_dataset"


@pytest.mark.parametrize(
    ("data", "item", "samples"),
    [
        (odd_loaders.of_web_batched, RAW, 16),
        (odd_loaders.of_web, RAW, 1),
        (odd_loaders.of_hub_batched, TEXTS, 16),
        (odd_loaders.of_hub_batched, TOKENS, 16),
        (Hub(), TEXTS, 1),  # or the words of one, and their tags
        (Hub(), {"pixel_values": torch.zeros(3, 8, 8)}, 1),
        (Hub(), TOKENS, 1),
        (Hub(), {"text": "a word", "label": 1}, 1),
        (Hub(), {"image": torch.zeros(16, 3, 8, 8), "label": torch.zeros(16)}, 16),
        (odd_loaders.of_pipes_batched, [torch.zeros(3, 8, 8)] * 16, 1),
        ([], TEXTS, 1),
    ],
)
def test_who_makes_batches_is_known_to_have_made_them(data: Any, item: Any, samples: int) -> None:
    assert counter_of(data)(item) == samples
