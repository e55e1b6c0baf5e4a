"""Whether plain data that came from elsewhere is what it should be. Pure.

Another host's hostprep may be of another version, or the host in somebody else's hands; a file may
be damaged. A kind says of a value whether it is one of it, and raises nothing whatever the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# What a float can hold exactly enough to be reckoned with; more is damage.
_GREATEST = 2**64

Kind = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    """Return whether it is a text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Return whether it is true or false."""
    return isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether it is a number that can be reckoned with; true and false are none."""
    # Not a number, or infinite, is not within bounds either.
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -_GREATEST <= value <= _GREATEST
    )


def is_amount(value: Any) -> bool:
    """Return whether it is a number from nought on: a rate, a size, a time taken."""
    return is_number(value) and bool(value >= 0)


def is_count(value: Any) -> bool:
    """Return whether it is a whole number from nought on."""
    return isinstance(value, int) and is_amount(value)


def is_anything(value: Any) -> bool:
    """Return True."""
    return True


def one_of(*values: str | None) -> Kind:
    """Return the kind of these values alone."""
    return lambda value: (value is None or isinstance(value, str)) and value in values


def or_none(kind: Kind) -> Kind:
    """Return the kind that None is of, too."""
    return lambda value: value is None or kind(value)


def all_of(kind: Kind) -> Kind:
    """Return the kind of lists of nothing but ``kind``."""
    return lambda value: isinstance(value, list) and all(map(kind, value))


def with_fields(fields: Mapping[str, Kind]) -> Kind:
    """Return the kind of objects that have these fields, beside whatever others."""
    return lambda value: (
        isinstance(value, dict)
        and value.keys() >= fields.keys()
        and all(kind(value[name]) for name, kind in fields.items())
    )


def where_there(fields: Mapping[str, Kind]) -> Kind:
    """Return the kind of objects of which each of these fields that is there is of its kind."""
    return lambda value: (
        isinstance(value, dict)
        and all(kind(value[name]) for name, kind in fields.items() if name in value)
    )
