"""Attributes of somebody else's objects, which may raise anything where they are asked for."""

from __future__ import annotations

from typing import Any


def attribute_of(thing: Any, name: str) -> Any:
    """Return an attribute, None where there is none, however the object says so.

    Asking some tensors raises any error, and a dict whose attributes are its keys
    (``__getattr__ = dict.__getitem__``) KeyError.
    """
    try:
        return getattr(thing, name, None)
    except Exception:
        return None
