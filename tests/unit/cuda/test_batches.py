"""Batches of all shapes: the leaves that are found, and the containers that come back."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

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
