"""Looking into batches: whatever they are made of, and whatever their tensors refuse to tell."""

from __future__ import annotations

import time
from collections import UserDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from hostprep.loading.child.batches import (
    count_samples,
    fingerprint,
    measure_batch,
    rows_for,
    rows_of_columns,
    rows_within,
)
from hostprep.loading.child.images import image_side


@dataclass
class Boxes:
    """A batch of a class of one's own."""

    corners: torch.Tensor


@dataclass(slots=True)
class Slots:
    """The same without a ``__dict__``."""

    values: torch.Tensor


class Lazy(UserDict[str, Any]):
    """As TensorDict's lazy stack is, of samples that differ in shape."""

    def __init__(self, *samples: torch.Tensor) -> None:
        super().__init__(x=None)
        self.samples = samples

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(f"the shapes of {key} differ")


class Refusing:
    """Raises what it likes when it is asked for its size."""

    @property
    def nbytes(self) -> int:
        raise RuntimeError("not here")


def sized(batch: Any) -> tuple[int, int]:
    """Measure a batch of nothing but tensors."""
    size_bytes, shared_bytes, tensors = measure_batch(batch)
    assert shared_bytes == size_bytes
    return size_bytes, tensors


def test_arrays_that_are_no_tensors_go_through_a_pipe() -> None:
    batch = {"x": np.zeros(10, dtype=np.float32), "y": torch.zeros(2), "raw": b"abc"}
    assert measure_batch(batch) == (40 + 8 + 3, 8, 1)


def test_bytes_of_nested_batches() -> None:
    batch = {"x": torch.zeros(4, 10), "y": [torch.zeros(3), ("name", torch.zeros(1))]}
    assert sized(batch) == (4 * 44, 3)
    assert measure_batch(b"abc") == (3, 0, 0)
    wrapped = UserDict(
        x=torch.zeros(4, 10), boxes=Boxes(torch.zeros(3)), slots=Slots(torch.ones(2))
    )
    assert sized([wrapped, "name", 7]) == (160 + 12 + 8, 3)
    wrapped["itself"] = wrapped
    assert sized(wrapped)[1] >= 3


def test_sparse_tensors_count_with_their_indices() -> None:
    dense = torch.eye(10)
    assert sized(dense.to_sparse()) == (10 * 2 * 8 + 10 * 4, 2)
    uncoalesced = torch.sparse_coo_tensor(torch.zeros(2, 3, dtype=torch.long), torch.ones(3))
    assert sized({"graph": uncoalesced}) == (3 * 2 * 8 + 3 * 4, 2)
    assert sized(dense.to_sparse_csr()) == (11 * 8 + 10 * 8 + 10 * 4, 3)
    assert sized(dense.to_sparse_csc()) == (11 * 8 + 10 * 8 + 10 * 4, 3)
    ragged = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
    assert sized(ragged) == (5 * 4 + 3 * 8, 2)


class Scene:
    """Knows its boxes, which know their scene."""

    def __init__(self, boxes: int) -> None:
        self.boxes = [Boxes(torch.zeros(4)) for _ in range(boxes)]
        for box in self.boxes:
            box.scene = self  # type: ignore[attr-defined]


class Method:
    """Has a method of a name that arrays have an attribute of, as DALI's lists of tensors."""

    def shape(self) -> list[tuple[int, ...]]:
        return [(3, 8, 8)] * 4


def test_what_objects_know_of_each_other_is_looked_into_once() -> None:
    scenes = [Scene(2000), Scene(2000)]
    began = time.monotonic()
    assert sized(scenes) == (2 * 2000 * 16, 4000)  # each of a million ways takes microseconds
    assert fingerprint(scenes) is not None
    assert time.monotonic() - began < 10


def test_a_method_called_shape_is_none() -> None:
    batch = [Method(), torch.zeros(4, 3, 200, 200)]
    assert count_samples(batch)[0] == 4
    assert image_side(batch) == 200
    assert isinstance(fingerprint([Method()]), int)


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        ((torch.zeros(8, 3, 4, 4), torch.zeros(8)), 8),
        ((torch.zeros(7, 3, 4, 4), torch.zeros(7)), 7),  # one was None
        (torch.zeros(80, 3, 4, 4), 80),  # crops in one tensor
        ([torch.zeros(8, 3, 4, 4)] * 10, 8),  # or one after the other
        (torch.zeros(100, 8), 8),  # time comes first
        ((torch.zeros(900, 4), torch.zeros(2, 5000)), None),  # graphs in one
        (["a", "b"], None),
        ({"loss": 0.5}, None),
    ],
)
def test_the_rows_of_what_eight_samples_became(batch: Any, rows: int | None) -> None:
    assert rows_for(batch, 8) == rows


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        ((torch.zeros(32, 16, 3, 8, 8), torch.zeros(32, 16)), 16),
        ((torch.zeros(32, 3, 8, 8), torch.zeros(32)), None),
        ((torch.zeros(32, 3, 8, 8), torch.zeros(32, 1, 8, 8)), None),
        (torch.zeros(32, 16, 128), None),
        (["a", "b"], None),
    ],
)
def test_samples_that_look_like_batches(batch: Any, rows: int | None) -> None:
    assert rows_within(batch) == rows


def test_what_raises_when_asked_counts_for_nothing() -> None:
    assert sized([Refusing(), torch.zeros(3)]) == (12, 1)


def test_a_mapping_that_cannot_be_asked_for_its_values_is_looked_into_as_an_object() -> None:
    batch = Lazy(torch.zeros(3), torch.zeros(2))
    assert sized(batch) == (20, 2)
    assert fingerprint(batch) is not None
    assert count_samples(batch)[0] == 1


@pytest.mark.parametrize(
    "batch",
    [
        torch.arange(100_000.0).reshape(100, 1000),
        {"x": torch.arange(6).reshape(2, 3), "names": ["a", "b"]},
        torch.eye(4).to_sparse(),
        torch.arange(8).bfloat16(),
    ],
)
def test_the_same_content_has_the_same_fingerprint(batch: Any) -> None:
    import copy

    assert fingerprint(batch) == fingerprint(copy.deepcopy(batch)) is not None


def test_other_content_has_another_fingerprint() -> None:
    prints = {
        fingerprint(batch)
        for batch in (
            torch.zeros(4, 10),
            torch.zeros(10, 4),
            torch.ones(4, 10),
            [torch.ones(4, 10), ["a"]],
            [torch.ones(4, 10), ["b"]],
        )
    }
    assert len(prints) == 5


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        ({"jpg": [b"x"] * 16, "__key__": ["a"] * 16}, 16),
        ([[b"x"] * 16, torch.zeros(16)], 16),
        ([[b"x"] * 16, [[1, 2]] * 16], 16),
        ([[b"x", 3]] * 16, 16),
        ([{"jpg": b"x", "cls": 3}] * 16, 16),
        ({"ids": [[1], [1, 2]], "text": ["a", "b"]}, 2),
        ({"text": "a word", "label": 3}, None),
        ({"text": ["a", "b"], "label": 3}, None),
        ({"text": ["a", "b"], "label": [3]}, None),
        ({}, None),
    ],
)
def test_the_samples_of_what_is_a_batch_are_as_many_as_its_columns_are_long(
    batch: Any, rows: int | None
) -> None:
    assert rows_of_columns(batch) == rows
