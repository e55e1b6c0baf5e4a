"""Batches as nested containers: finding their leaves, and replacing them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hostprep.attributes import attribute_of
from hostprep.cuda.moving import PLAIN, moves_itself


def leaves(batch: Any) -> Iterator[Any]:
    """Yield everything in a batch that is not a container.

    Containers are mappings, lists, tuples, named tuples and dataclasses, nested in any way. What
    moves by a method of its own, such as a tensor or torch's PackedSequence, is a leaf whatever it
    is.
    """
    parts = _parts(batch)
    if parts is None:
        yield batch
        return
    for part in parts:
        yield from leaves(part)


def replaced(batch: Any, replace: Callable[[Any], Any]) -> Any:
    """Return the batch with ``replace(leaf)`` for every leaf, in containers of the same types.

    The containers keep their other attributes, and if possible no constructor runs again. If a type
    cannot be recreated, a dict, list or tuple takes its place (or the container itself, if no leaf
    changed). The original batch is not changed.
    """
    if _parts(batch) is None:
        return replace(batch)
    if isinstance(batch, Mapping):
        return _mapping(batch, {key: replaced(value, replace) for key, value in batch.items()})
    if dataclasses.is_dataclass(batch):
        return _dataclass(
            batch, {name: replaced(value, replace) for name, value in _fields(batch).items()}
        )
    values = [replaced(value, replace) for value in batch]
    return _list(batch, values) if isinstance(batch, list) else _tuple(batch, values)


def _mapping(batch: Any, items: dict[Any, Any]) -> Any:
    if type(batch) is dict:
        return items
    for make in (_assigned, _constructed):
        try:
            twin = make(batch, items)
        except Exception:  # a user's class may refuse a value, or a change
            continue
        if twin is not None:
            return twin
    return items if _differ(batch.values(), items.values()) else batch


def _assigned(batch: Any, items: dict[Any, Any]) -> Any:
    """Return a copy with the items; None, with the batch unchanged, if the copy shares its items.

    A class that wraps a mapping, and has no ``__copy__``, does. Raises what a class raises that
    does not accept items.
    """
    twin = copy.copy(batch)
    alone = False
    for key, value in items.items():
        before = None if alone else batch[key]
        twin[key] = value
        if not alone and value is not before:
            if batch[key] is value:
                twin[key] = before
                return None
            alone = True
    return twin


def _constructed(batch: Any, items: dict[Any, Any]) -> Any:
    """Return a new instance; None if its constructor makes something else of the items."""
    twin = type(batch)(items)
    same = twin.keys() == items.keys() and all(twin[key] is items[key] for key in items)
    return twin if same else None


def _dataclass(batch: Any, items: dict[str, Any]) -> Any:
    try:
        twin = copy.copy(batch)
    except AttributeError:  # frozen, with slots, and with an unset field
        twin = batch
    if twin is batch:
        twin = object.__new__(type(batch))
        if hasattr(batch, "__dict__"):
            vars(twin).update(vars(batch))
    for name, value in items.items():
        # Frozen ones too: nobody else has seen the copy yet.
        object.__setattr__(twin, name, value)
    return twin


def _list(batch: list[Any], values: list[Any]) -> Any:
    if type(batch) is list:
        return values
    try:
        twin = copy.copy(batch)
        if twin is not batch:
            list.__setitem__(twin, slice(None), values)
            return twin
    except Exception:  # as for a mapping; or the copy is not a list
        pass
    return values if _differ(batch, values) else batch


def _tuple(batch: tuple[Any, ...], values: list[Any]) -> Any:
    kind: Any = type(batch)
    try:
        twin = tuple.__new__(kind, values)  # as in a named tuple's _make
    except TypeError:
        # A type implemented in C: torch.Size, what torch.max returns.
        try:
            return kind(values) if _differ(batch, values) else batch
        except TypeError:
            return tuple(values)
    if hasattr(batch, "__dict__"):
        vars(twin).update(vars(batch))
    return twin


def _differ(some: Iterable[Any], others: Iterable[Any]) -> bool:
    return any(one is not other for one, other in zip(some, others, strict=True))


def _fields(batch: Any) -> dict[str, Any]:
    """Return a dataclass's fields, except unset ones."""
    names = [field.name for field in dataclasses.fields(batch)]
    return {name: getattr(batch, name) for name in names if hasattr(batch, name)}


def _holds_its_values(batch: Mapping[Any, Any]) -> bool:
    """Return whether a mapping returns the same values each time.

    TensorDict's lazy stack creates them anew, and cannot if the shapes of its samples differ.
    """
    try:
        return not _differ(batch.values(), batch.values())
    except Exception:
        return False


def _parts(batch: Any) -> Any:
    """Return what a container holds, or None for a leaf."""
    if type(batch) in PLAIN or isinstance(batch, type):
        return None
    if moves_itself(batch):
        # A mapping may do so as well (transformers' BatchEncoding): its values can be copied,
        # unless it has a device of its own (TensorDict), on which it keeps all of them.
        whole = attribute_of(batch, "device") is not None
        parts = isinstance(batch, Mapping) and not whole and _holds_its_values(batch)
        return batch.values() if parts else None
    if isinstance(batch, Mapping):
        return batch.values()
    if dataclasses.is_dataclass(batch):
        return _fields(batch).values()
    return batch if isinstance(batch, (list, tuple)) else None
