"""Attributes of objects that are not ours: reading one may raise any exception."""

from __future__ import annotations

from typing import Any


def attribute_of(thing: Any, name: str) -> Any:
    """Return an attribute, None if there is none, whatever exception the object raises.

    Some tensors raise arbitrary errors, and a dict whose attributes are its keys
    (``__getattr__ = dict.__getitem__``) raises KeyError.
    """
    try:
        return getattr(thing, name, None)
    except Exception:
        return None
