"""Whether plain data from elsewhere has the form that it should have. Pure.

Another host's hostprep may be of another version, or that host in somebody else's hands; a file may
be damaged. A kind says whether a value conforms to it, and raises nothing, whatever the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# The largest number to accept for calculations; anything beyond is damage.
_GREATEST = 2**64

Kind = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    """Return whether the value is text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Return whether the value is true or false."""
    return isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether the value is a number to calculate with; true and false are not."""
    # NaN and infinity are not within the bounds either.
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -_GREATEST <= value <= _GREATEST
    )


def is_amount(value: Any) -> bool:
    """Return whether the value is a number of at least 0: a rate, a size, a duration."""
    return is_number(value) and bool(value >= 0)


def is_count(value: Any) -> bool:
    """Return whether the value is a whole number of at least 0."""
    return isinstance(value, int) and is_amount(value)


def is_anything(value: Any) -> bool:
    """Return True."""
    return True


def one_of(*values: str | None) -> Kind:
    """Return the kind that consists of just these values."""
    return lambda value: (value is None or isinstance(value, str)) and value in values


def or_none(kind: Kind) -> Kind:
    """Return the kind that also accepts None."""
    return lambda value: value is None or kind(value)


def all_of(kind: Kind) -> Kind:
    """Return the kind of lists whose items all are of ``kind``."""
    return lambda value: isinstance(value, list) and all(map(kind, value))


def with_fields(fields: Mapping[str, Kind]) -> Kind:
    """Return the kind of objects that have these fields, whatever others they have."""
    return lambda value: (
        isinstance(value, dict)
        and value.keys() >= fields.keys()
        and all(kind(value[name]) for name, kind in fields.items())
    )


def where_there(fields: Mapping[str, Kind]) -> Kind:
    """Return the kind of objects in which each of these fields, if present, is of its kind."""
    return lambda value: (
        isinstance(value, dict)
        and all(kind(value[name]) for name, kind in fields.items() if name in value)
    )
