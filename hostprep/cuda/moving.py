"""Which objects move to a device by their own ``to``, and which have a ``to`` for something else.

A quantity's ``to`` converts to a unit, a date's to a time zone, and calling those would be an error
that occurs only on CUDA. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from inspect import Parameter, signature
from itertools import islice
from types import ModuleType
from typing import Any

from hostprep.attributes import attribute_of

# Parts of an object to search for a tensor: a TensorDict has its first after three steps.
_LOOKED_AT = 256
_ANY_NUMBER = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
# Most leaves in annotations are of these types; looking for a ``to`` in each costs the loop time.
PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
_HOLD_NONE = (str, bytes, int, float, type(None), type, ModuleType)


def moves_itself(value: Any) -> bool:
    """Return whether ``moved`` is the way to get ``value`` onto a device.

    It is for torch's own types (tensors, PackedSequence), and if ``to`` has a parameter named
    ``device`` (torch_geometric's Data, DGL's graphs, transformers' encodings). A ``to`` whose
    signature says nothing, such as TensorDict's and detectron2's, is for devices if the object
    holds tensors. One with other parameters may be as well, but not a container's, whose parts can
    be copied.
    """
    if type(value) in PLAIN or isinstance(value, type):
        return False
    if not callable(attribute_of(value, "to")):
        return False
    kind: Any = type(value)
    takes = _takes(kind)
    if takes in ("torch", "device"):
        return True
    container = dataclasses.is_dataclass(value) or isinstance(value, (Mapping, list, tuple))
    return (takes == "anything" or not container) and _holds_a_tensor(value)


def moved(value: Any, device: Any) -> Any:
    """Return what ``moves_itself`` on ``device``, or itself if its ``to`` is for something else.

    One that moves in place may return nothing: then it is itself, too. Raises what its ``to``
    raises, if that is known to be for devices.
    """
    kind: Any = type(value)
    takes = _takes(kind)
    try:
        # By keyword if it has that name: its first parameter may be a dtype.
        there = value.to(device=device) if takes == "device" else value.to(device)
    except (TypeError, ValueError, AttributeError):
        if takes in ("torch", "device"):
            raise
        return value
    return value if there is None else there


@lru_cache(maxsize=256)
def _takes(kind: type) -> str:
    """Return what a class's ``to`` takes by its signature: torch, device, anything, something."""
    if any(base.__module__.partition(".")[0] == "torch" for base in kind.__mro__):
        return "torch"
    try:
        parameters = signature(kind.to).parameters.values()  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):  # on instances only; written in C
        return "anything"
    if any(each.name == "device" and each.kind != Parameter.POSITIONAL_ONLY for each in parameters):
        return "device"
    kinds = [each.kind for each in parameters]
    named = len(kinds) - sum(kinds.count(some) for some in _ANY_NUMBER)
    # One of them is self, unless something hides it.
    return "anything" if named <= 1 and Parameter.VAR_POSITIONAL in kinds else "something"


def _holds_a_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    seen = set[int]()
    waiting = deque([value])
    while waiting and len(seen) < _LOOKED_AT:
        one = waiting.popleft()
        if isinstance(one, torch.Tensor):
            return True
        if isinstance(one, _HOLD_NONE) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, (dict, list, tuple)):
            parts = one.values() if isinstance(one, dict) else one
            waiting.extend(islice(parts, _LOOKED_AT))
        waiting.extend(islice(getattr(one, "__dict__", {}).values(), _LOOKED_AT))
        for base in type(one).__mro__:
            slots = getattr(base, "__slots__", ())
            names = (slots,) if isinstance(slots, str) else slots
            waiting.extend(attribute_of(one, name) for name in names)
    return False
