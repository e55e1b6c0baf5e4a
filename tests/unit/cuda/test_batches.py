"""Batches of all shapes: the leaves that are found, and the containers that come back."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest
import torch

from hostprep.cuda.batches import leaves, replaced

Pair = namedtuple("Pair", "image label")


@dataclass(frozen=True, slots=True)
class Frozen:
    image: int
    name: str


@dataclass
class Counted:
    image: int
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.made += 1


class Packed(tuple):  # like torch's PackedSequence: a tuple that moves by its own method
    def to(self, device: Any) -> Packed:
        return self


class Encoding(UserDict[str, int]):
    extra = None

    def to(self, device: Any) -> Encoding:
        return self


def tenfold(leaf: Any) -> Any:
    return leaf * 10 if isinstance(leaf, int) else leaf


class Whole(UserDict[str, int]):  # like TensorDict: all its values are on its device
    device = "cpu"

    def to(self, device: Any) -> Whole:
        return self


def test_a_mapping_with_a_device_of_its_own_is_a_leaf() -> None:
    batch = Whole({"image": 1})
    assert list(leaves([batch])) == [batch]
    assert list(leaves([Encoding({"image": 1})])) == [1]


class Lazy(Encoding):  # like TensorDict's lazy stack of samples
    def __getitem__(self, key: str) -> Any:
        samples = self.data[key]
        if isinstance(samples, str):
            raise RuntimeError("the shapes of its samples differ")
        return [samples]


@pytest.mark.parametrize("samples", [1, "1"])
def test_a_mapping_that_makes_its_values_when_asked_is_a_leaf(samples: Any) -> None:
    batch = Lazy({"image": samples})
    assert list(leaves([batch])) == [batch]
    assert replaced([batch], lambda leaf: (leaf,)) == [(batch,)]


def test_containers_come_back_as_they_were() -> None:
    batch = {"a": [1, (2, "x")], "b": Pair(3, None), "c": Frozen(4, "n"), "d": ()}
    assert replaced(batch, tenfold) == {
        "a": [10, (20, "x")],
        "b": Pair(30, None),
        "c": Frozen(40, "n"),
        "d": (),
    }
    assert batch["a"] == [1, (2, "x")]
    assert list(leaves(batch)) == [1, 2, "x", 3, None, 4, "n"]


def test_types_of_mappings_are_kept() -> None:
    default = defaultdict(list, a=1)
    twin = replaced(default, tenfold)
    assert type(twin) is defaultdict and twin["new"] == [] and twin["a"] == 10
    assert "new" not in default
    ordered = replaced(OrderedDict(b=1, a=2), tenfold)
    assert type(ordered) is OrderedDict and list(ordered.items()) == [("b", 10), ("a", 20)]
    assert replaced(MappingProxyType({"a": 1}), tenfold) == {"a": 10}


def test_a_mapping_that_can_move_is_still_a_mapping_and_keeps_its_attributes() -> None:
    encoding = Encoding(ids=1)
    encoding.extra = "kept"
    twin = replaced(encoding, tenfold)
    assert type(twin) is Encoding and twin["ids"] == 10 and twin.extra == "kept"
    assert encoding["ids"] == 1


def test_a_dataclass_is_not_made_a_second_time() -> None:
    twin = replaced(Counted(5), tenfold)
    assert (twin.image, twin.made) == (50, 10)  # 1 * 10: the field, not another __post_init__


def test_what_moves_by_itself_is_a_leaf_and_so_are_strings_and_classes() -> None:
    packed = Packed((1, 2))
    assert list(leaves([packed, "ab", b"c", Frozen])) == [packed, "ab", b"c", Frozen]
    assert replaced([packed], lambda leaf: leaf)[0] is packed


@dataclass
class Partly:
    image: int
    mask: int = field(init=False)


@dataclass(frozen=True, slots=True)
class PartlyFrozen:
    image: int
    mask: int = field(init=False)


@pytest.mark.parametrize("kind", [Partly, PartlyFrozen])
def test_a_field_that_nobody_has_set_stays_so(kind: Any) -> None:
    batch = kind(4)
    assert list(leaves(batch)) == [4]
    twin = replaced(batch, tenfold)
    assert type(twin) is kind and twin.image == 40 and not hasattr(twin, "mask")


@dataclass(frozen=True)
class Immutable:
    image: int

    def __copy__(self) -> Immutable:
        return self


def test_what_is_its_own_copy_is_made_again_all_the_same() -> None:
    batch = Immutable(4)
    object.__setattr__(batch, "note", "kept")
    twin = replaced(batch, tenfold)
    assert (twin.image, twin.note, batch.image) == (40, "kept", 4)


class Inside(MutableMapping[str, Any]):
    """Has a mapping inside and no ``__copy__``: a copy of it shares that one."""

    def __init__(self, items: Any = ()) -> None:
        self.inside = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self.inside[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.inside[key] = value

    def __delitem__(self, key: str) -> None:
        del self.inside[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.inside)

    def __len__(self) -> int:
        return len(self.inside)


class FromAFile(Inside):
    def __init__(self, path: str, *, more: str) -> None:
        super().__init__({"path": path, "more": more, "image": 4})


class Counting(Inside):
    """Its constructor takes the items for something else, without an error."""

    def __init__(self, image: Any) -> None:
        super().__init__({"image": image})


class Refusing(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        raise NotImplementedError("it cannot be changed")


@pytest.mark.parametrize("kind", [Inside, Refusing])
def test_the_loaders_mapping_stays_as_it_was(kind: Any) -> None:
    batch = kind({"name": "x", "image": 4, "label": 5})
    twin = replaced(batch, tenfold)
    assert type(twin) is kind and dict(twin) == {"name": "x", "image": 40, "label": 50}
    assert dict(batch) == {"name": "x", "image": 4, "label": 5}


@pytest.mark.parametrize("batch", [FromAFile("p", more="m"), Counting(4)])
def test_a_mapping_that_cannot_be_made_again_comes_as_a_dict(batch: Any) -> None:
    before = dict(batch)
    twin = replaced(batch, tenfold)
    assert type(twin) is dict and twin == {**before, "image": 40} and dict(batch) == before
    assert replaced(batch, lambda leaf: leaf) == batch


class Keeping(dict[str, Any]):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path


@pytest.mark.parametrize("names", [("note", "image", "note2"), ("image", "note")])
def test_a_copy_is_taken_whichever_of_its_leaves_stay(names: tuple[str, ...]) -> None:
    batch = Keeping("p")
    batch.update({name: 4 if name == "image" else "x" for name in names})
    twin = replaced(batch, tenfold)
    assert type(twin) is Keeping and twin.path == "p" and twin == {**batch, "image": 40}
    assert batch["image"] == 4


class Closed(Mapping[str, Any]):
    """Takes no items, and its constructor adds one."""

    def __init__(self, items: Any) -> None:
        self.inside = {**items, f"made-{len(items)}": 5}

    def __getitem__(self, key: str) -> Any:
        return self.inside[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.inside)

    def __len__(self) -> int:
        return len(self.inside)


class Open(Closed):
    """As ``Closed``, but made again of its items it has the same."""

    def __init__(self, items: Any) -> None:
        self.inside = dict(items)


def test_a_mapping_that_takes_no_items_is_made_again_where_that_gives_the_same() -> None:
    closed, opened = Closed({"image": 4}), Open({"image": 4})
    twin = replaced(closed, lambda leaf: leaf * 10)
    assert type(twin) is dict and twin == {"image": 40, "made-1": 50}
    assert replaced(closed, lambda leaf: leaf) is closed, "no leaf is another"
    twin = replaced(opened, tenfold)
    assert type(twin) is Open and dict(twin) == {"image": 40} and dict(opened) == {"image": 4}


class Named(list[Any]):
    def __init__(self, name: str, *values: Any) -> None:
        super().__init__(values)
        self.name = name


class Checked(list[Any]):
    def __new__(cls, name: str) -> Any:
        return super().__new__(cls)

    def __init__(self, name: str) -> None:
        super().__init__([name, 4])


class Spread(tuple[Any, ...]):
    note = ""

    def __new__(cls, *values: Any) -> Any:
        return super().__new__(cls, values)


class PairOfOne(Pair):
    def __new__(cls, image: Any) -> Any:
        return super().__new__(cls, image, 5)


def test_lists_and_tuples_with_constructors_of_their_own() -> None:
    named = Named("n", 1, "x")
    twin = replaced(named, tenfold)
    assert type(twin) is Named and twin == [10, "x"] and twin.name == "n" and named == [1, "x"]
    assert replaced(Checked("y"), tenfold) == ["y", 40]  # it cannot even be copied
    checked = Checked("y")
    assert replaced(checked, lambda leaf: leaf) is checked
    for copied in (lambda self: self, tuple):
        kind = type("Odd", (list,), {"__copy__": copied})
        odd = kind([1, "x"])
        assert replaced(odd, tenfold) == [10, "x"] and odd == [1, "x"]
    spread = Spread(1, 2)
    spread.note = "kept"
    twin = replaced(spread, tenfold)
    assert type(twin) is Spread and twin == (10, 20) and twin.note == "kept"
    pair = replaced(PairOfOne(1), tenfold)
    assert type(pair) is PairOfOne and pair == (10, 50)


def test_tuples_that_c_has_made() -> None:
    size = torch.Size([1, 2])
    assert replaced(size, lambda leaf: leaf) is size
    largest = torch.ones(2, 3).max(dim=1)
    twin = replaced(largest, lambda leaf: leaf + 1)
    assert type(twin) is type(largest) and twin.values.tolist() == [2.0, 2.0]
