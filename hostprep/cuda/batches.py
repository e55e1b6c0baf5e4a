"""Batches as nested containers: their leaves, and the same batch with other leaves."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def leaves(batch: Any) -> Iterator[Any]:
    """Yield what is in a batch and is no container.

    Containers are mappings, lists, tuples, named tuples and dataclasses, in each other. What has a
    ``to`` method of its own, as a tensor or torch's PackedSequence, is a leaf whatever it is.
    """
    parts = _parts(batch)
    if parts is None:
        yield batch
        return
    for part in parts:
        yield from leaves(part)


def replaced(batch: Any, replace: Callable[[Any], Any]) -> Any:
    """Return the batch with ``replace(leaf)`` for every leaf, in containers of the same types.

    Dataclasses and mappings keep what else they carry; no ``__post_init__`` runs a second time.
    """
    if _parts(batch) is None:
        return replace(batch)
    if isinstance(batch, Mapping):
        items = {key: replaced(value, replace) for key, value in batch.items()}
        if not hasattr(batch, "__setitem__"):
            return type(batch)(items)  # type: ignore[call-arg]
        twin: Any = copy.copy(batch)
        for key, value in items.items():
            twin[key] = value
        return twin
    if dataclasses.is_dataclass(batch):
        twin = copy.copy(batch)
        for field in dataclasses.fields(batch):
            # Frozen ones too: nobody else has seen the twin yet.
            object.__setattr__(twin, field.name, replaced(getattr(batch, field.name), replace))
        return twin
    values = [replaced(value, replace) for value in batch]
    if hasattr(batch, "_fields"):
        return type(batch)(*values)
    return type(batch)(values)


def _parts(batch: Any) -> Any:
    """Return what a container holds, or None for a leaf."""
    if isinstance(batch, type) or callable(getattr(batch, "to", None)):
        # A mapping may have one as well (transformers' BatchEncoding): its values can be copied,
        # but where it has a device of its own (TensorDict), on which it keeps all of them.
        whole = getattr(batch, "device", None) is not None
        return batch.values() if isinstance(batch, Mapping) and not whole else None
    if isinstance(batch, Mapping):
        return batch.values()
    if isinstance(batch, (list, tuple)):
        return batch
    if dataclasses.is_dataclass(batch):
        return [getattr(batch, field.name) for field in dataclasses.fields(batch)]
    return None
