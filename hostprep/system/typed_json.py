"""Dataclasses restored from the JSON that another process made of them."""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def from_json(kind: type[Record], value: Any) -> Record:
    """Return ``value``, made by ``dataclasses.asdict`` and JSON, as a ``kind`` again.

    A missing field gets its default: records of earlier versions may have fewer. KeyError if it has
    none.
    """
    made: Record = _typed(kind, value)
    return made


def _typed(kind: Any, value: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        if value is None:
            return None
        return _typed(next(part for part in get_args(kind) if part is not type(None)), value)
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if parts[-1] is Ellipsis:
            return tuple(_typed(parts[0], item) for item in value)
        return tuple(_typed(part, item) for part, item in zip(parts, value, strict=True))
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        there = [
            field.name for field in fields(kind) if field.name in value or field.default is MISSING
        ]
        return kind(**{name: _typed(hints[name], value[name]) for name in there})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return value
