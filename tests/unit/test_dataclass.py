"""``hostprep.dataclass`` against the standard library's, which it has to be the same as."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import pytest

from hostprep.dataclass import dataclass

T = TypeVar("T")
Decorator = Callable[..., Callable[[type], type]]
OURS: Any = dataclass
THEIRS: Any = dataclasses.dataclass


def kinds(decorator: Decorator) -> tuple[Any, Any, Any]:
    """A frozen class, a mutable one and a generic one, made by ``decorator``."""

    @decorator(frozen=True, slots=True)
    class Frozen:
        """A frozen one."""

        size_bytes: int
        name: str = "x"
        parts: tuple[str, ...] = ()
        seen: list[int] = field(default_factory=list)
        line: int = field(default=0, compare=False)
        secret: str = field(default="s", repr=False)

        @property
        def doubled(self) -> int:
            return 2 * self.size_bytes

    @decorator(slots=True)
    class Mutable:
        """One that changes."""

        done: int = 0
        names: list[str] = field(default_factory=list)

        def __repr__(self) -> str:
            return f"<{self.done}>"

    @decorator(frozen=True, slots=True)
    class Of(Generic[T]):
        """One with a parameter."""

        item: T

    return Frozen, Mutable, Of


def outcome(act: Callable[[], Any]) -> Any:
    """What ``act`` returns, or the kind of its error."""
    try:
        return act()
    except Exception as error:
        return type(error)


LOOKS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "repr": lambda f, m, o: (repr(f(1)), repr(f(1, "y", ("a",))), repr(m(3)), repr(o(3))),
    "defaults": lambda f, m, o: (f(1).name, f(1).seen, f(1).seen is f(1).seen, m().names),
    "keywords": lambda f, m, o: asdict(f(name="z", size_bytes=4, seen=[1])),
    "missing": lambda f, m, o: f(),
    "too many": lambda f, m, o: m(1, [], 3),
    "unknown": lambda f, m, o: f(1, size=2),
    "equal": lambda f, m, o: (f(1) == f(1), f(1) == f(2), f(1) != f(1), f(1) == (1, "x", (), [])),
    "not compared": lambda f, m, o: (f(1, line=1) == f(1, line=2), f(1, secret="a") == f(1)),
    "other class": lambda f, m, o: (o(1) == m(1), m(1) == o(1)),
    "hash": lambda f, m, o: (hash(o(1)) == hash(o(1)), len({o(1), o(1), o(2)})),
    "hash of a list": lambda f, m, o: hash(f(1)),
    "hash of a mutable one": lambda f, m, o: hash(m()),
    "ordered": lambda f, m, o: o(1) < o(2),
    "fields": lambda f, m, o: [(i.name, i.type, i.default, i.compare) for i in fields(f)],
    "is": lambda f, m, o: (is_dataclass(f), is_dataclass(f(1)), f.__match_args__, f.__slots__),
    "replace": lambda f, m, o: repr(replace(f(1), name="w")),
    "replace an unknown one": lambda f, m, o: replace(f(1), nothing=1),
    "property": lambda f, m, o: f(4).doubled,
    "other attribute": lambda f, m, o: setattr(m(), "other", 1),
    "no dict": lambda f, m, o: vars(m()),
    "copy": lambda f, m, o: (copy.copy(f(2)) == f(2), copy.deepcopy(f(2, seen=[1])) == f(2)),
    "signature": lambda f, m, o: list(inspect.signature(type(f(1)).__init__).parameters),
    "name": lambda f, m, o: (f.__name__, f.__doc__, f.__module__),
}  # fmt: skip


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_it_is_what_the_standard_library_makes(look: Callable[[Any, Any, Any], Any]) -> None:
    ours, theirs = kinds(OURS), kinds(THEIRS)
    expected = outcome(lambda: look(*theirs))
    assert outcome(lambda: look(*ours)) == expected


def test_a_mutable_one_changes_and_a_frozen_one_refuses() -> None:
    frozen, mutable, _ = kinds(OURS)
    changing = mutable()
    changing.done = 5
    assert changing.done == 5 and changing == mutable(5)
    value = frozen(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        value.name = "y"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del value.name
    assert value.name == "x"


@dataclass(frozen=True, slots=True)
class Sent:
    """One that is found by its name, as pickle wants it."""

    number: int
    names: tuple[str, ...] = ("a",)


def test_it_goes_from_process_to_process() -> None:
    assert pickle.loads(pickle.dumps(Sent(3, ("b",)))) == Sent(3, ("b",))


def test_it_matches_by_position() -> None:
    match Sent(3):
        case Sent(number, names):
            assert (number, names) == (3, ("a",))
        case _:
            raise AssertionError


def test_what_it_cannot_make_it_refuses() -> None:
    with pytest.raises(TypeError, match="only dataclasses with slots"):
        OURS(slots=False)
    with pytest.raises(TypeError, match="not a parameter"):

        @OURS(slots=True)
        class Hidden:
            """One whose field nobody may give."""

            found: int = field(default=0, init=False)


def test_one_without_a_docstring_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard decorator writes one from the signature, for more time than all else takes."""
    monkeypatch.delattr(inspect, "signature")

    @OURS(slots=True)
    class Plain:
        size_bytes: int

    assert (Plain(3).size_bytes, Plain.__doc__) == (3, "Plain")
