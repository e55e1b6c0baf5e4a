"""What has a ``to`` for a device, and what has one for something else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from hostprep.cuda.batches import leaves, replaced
from hostprep.cuda.moving import moved, moves_itself

META = torch.device("meta")


class Quantity:  # as pint's
    def __init__(self, magnitude: Any) -> None:
        self._magnitude = magnitude

    def to(self, other: Any = None, *contexts: Any, **more: Any) -> Any:
        return other.items()


class Date:  # as arrow's
    def to(self, tz: Any) -> Any:
        raise TypeError("expected string or bytes-like object")


class Graph:  # as torch_geometric's Data
    def __init__(self, x: Any) -> None:
        self._store = {"x": x}

    def to(self, device: Any, *args: str, non_blocking: bool = False) -> Any:
        return Graph(self._store["x"].to(device))


class Boxes:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def to(self, dtype: Any = None, device: Any = None) -> Any:
        assert dtype is None
        return Boxes(self.tensor.to(device))


class Instances:  # as detectron2's
    __slots__ = ("fields",)

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def to(self, *args: Any, **more: Any) -> Any:
        return Instances(**{key: value.to(*args, **more) for key, value in self.fields.items()})


class Terse:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def to(self, d: Any) -> Any:
        return Terse(self.tensor.to(d))


class Placed:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def to(self, device: Any, /) -> Any:
        return Placed(self.tensor.to(device))


class Single:
    __slots__ = "tensor"

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def to(self, d: Any) -> Any:
        return Single(self.tensor.to(d))


class Whole(dict[str, Any]):  # as TensorDict
    device = torch.device("cpu")

    def to(self, *args: Any, **more: Any) -> Any:
        return Whole({key: value.to(*args, **more) for key, value in self.items()})


class Units(dict[str, Any]):
    def to(self, unit: Any, *more: Any) -> Any:
        raise KeyError(unit)


class Named(dict[str, Any]):
    def to(self, **more: Any) -> Any:
        raise KeyError(more)


class Wrapper:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


class InPlace:  # returns nothing, as a loop needs no more of `batch.to(device)`
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def to(self, device: Any) -> None:
        self.tensor = self.tensor.to(device)


@dataclass
class Length:
    value: torch.Tensor

    def to(self, unit: str) -> Any:
        raise KeyError(unit)


@dataclass
class Point:
    value: torch.Tensor

    def to(self, device: Any) -> Any:
        return Point(self.value.to(device))


@pytest.mark.parametrize(
    ("value", "tensor_of"),
    [
        (torch.ones(2), lambda value: value),
        (pack_sequence([torch.ones(2)]), lambda value: value.data),
        (Graph(torch.ones(2)), lambda value: value._store["x"]),
        (Boxes(torch.ones(2)), lambda value: value.tensor),
        (Instances(a=torch.ones(2)), lambda value: value.fields["a"]),
        (Terse(torch.ones(2)), lambda value: value.tensor),
        (Wrapper(Terse(torch.ones(2))), lambda value: value.tensor),
        (Point(torch.ones(2)), lambda value: value.value),
        (InPlace(torch.ones(2)), lambda value: value.tensor),
        (Single(torch.ones(2)), lambda value: value.tensor),
        (Placed(torch.ones(2)), lambda value: value.tensor),
        (Whole(a=torch.ones(2)), lambda value: value["a"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_moves_by_its_own_method(value: Any, tensor_of: Callable[[Any], Any]) -> None:
    assert moves_itself(value) and list(leaves([value])) == [value]
    assert tensor_of(moved(value, META)).device == META


@pytest.mark.parametrize(
    "value",
    [Quantity(3.0), Date(), Instances(), Terse([1.0, "x"]), Graph, torch.Tensor, "x", 3, None],
    ids=repr,
)
def test_what_does_not(value: Any) -> None:
    assert not moves_itself(value) and list(leaves([value])) == [value]


def test_a_quantity_of_tensors_is_tried_and_comes_through() -> None:
    quantity = Quantity(torch.ones(2))
    assert moves_itself(quantity) and moved(quantity, META) is quantity


def test_of_a_container_with_a_method_for_something_else_the_parts_are_copied() -> None:
    length = Length(torch.ones(2))
    assert not moves_itself(length) and list(leaves(length)) == [length.value]
    for kind in (Units, Named):
        batch = kind(a=torch.ones(2))
        assert not moves_itself(batch) and list(leaves(batch)) == [batch["a"]]


@pytest.mark.parametrize("own", [{}, {"to": lambda self, device: self}], ids=["no to", "a to"])
def test_of_a_dict_whose_attributes_are_its_keys_the_values_are_copied(own: dict[str, Any]) -> None:
    def item(batch: Any, name: str) -> Any:
        return batch[name]  # KeyError for what a dict of tensors has none of

    kind = type("Attributes", (dict,), {"__getattr__": item, **own})
    batch = kind(image=torch.ones(2))
    assert list(leaves(batch)) == [batch.image]
    twin = replaced(batch, lambda leaf: leaf + 1)
    assert type(twin) is kind and twin.image.tolist() == [2.0, 2.0]


def test_an_error_of_a_method_for_devices_is_not_swallowed() -> None:
    class Broken(Graph):
        def to(self, device: Any, *args: str, non_blocking: bool = False) -> Any:
            raise TypeError("a mistake in it")

    with pytest.raises(TypeError, match="a mistake"):
        moved(Broken(torch.ones(2)), META)
    with pytest.raises(TypeError):
        moved(torch.ones(2), object())

    class Full(Terse):
        def to(self, d: Any) -> Any:
            raise RuntimeError("CUDA out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        moved(Full(torch.ones(2)), META)


def test_a_large_object_without_tensors_is_not_searched_to_its_end() -> None:
    class Ring(Terse):
        pass

    ring = Ring(None)
    ring.tensor = [ring, *([object()] * 10), [[n] for n in range(100_000)]]
    assert not moves_itself(ring)
    ring.tensor = ring
    assert not moves_itself(ring)


def test_without_torch_nothing_has_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Terse(torch.ones(2))
    monkeypatch.delitem(sys.modules, "torch")
    assert not moves_itself(value)
