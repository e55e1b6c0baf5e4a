"""Refuses named things that cannot be timed: says what they are, and what to name instead."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isroutine
from io import IOBase
from os import PathLike
from typing import Any

from hostprep.attributes import attribute_of
from hostprep.errors import UsageError
from hostprep.loading.child.batches import rows_of_all, shape_of

_WANTED = "accepted: a Dataset, a DataLoader, an iterable, or a callable that returns one"
_OF_ARRAYS = (
    "name a DataLoader, or a Dataset: torch.utils.data.TensorDataset(...) makes one from tensors"
    " that hold all samples"
)
# A batch has fewer parts than this; a data set has more samples.
_PARTS = 8


def refuse_data(found: Any, said: str) -> None:
    """Raise ``UsageError`` if it is data but not a data set: arrays, text, a file, or its name.

    Also for a part of a DataLoader, such as its sampler. For an array nobody knows whether it is
    one batch or all samples. ``said`` is its name and its type. Not to be called for torch's own
    data sets and DataLoaders.
    """
    if isinstance(found, str | bytes | bytearray | PathLike):
        raise UsageError(
            f"{said}: that is text, or the name of a file, not a loader; nothing was measured.",
            f"{_WANTED}; --dataset DIR measures files",
        )
    if isinstance(found, IOBase):
        raise UsageError(
            f"{said}: that is an open file, not a loader: its lines are not samples; nothing was"
            " measured.",
            "name the Dataset or the DataLoader that reads it; --dataset DIR measures files",
        )
    _refuse_part(found, said)
    if _is_array(found):
        raise UsageError(
            f"{said}: that is an array{_shaped(found)}, not a loader: whether it is one batch or"
            " all samples is not known; nothing was measured.",
            _OF_ARRAYS,
        )
    parts = list(found.values()) if isinstance(found, Mapping) else found
    if not isinstance(parts, tuple | list) or not 0 < len(parts) <= _PARTS:
        return
    # A function that returns values with commas returns a tuple; samples in a list may look alike.
    if all(map(_is_array, parts)) and (
        isinstance(found, tuple | Mapping) or rows_of_all(parts) is not None
    ):
        each = ", ".join(_shaped(part).strip() for part in parts)
        raise UsageError(
            f"{said}: that holds arrays ({each}), as one batch does, and is not a loader;"
            " nothing was measured.",
            f"{_OF_ARRAYS}; if each call makes another batch, name a function that yields them",
        )


def _refuse_part(found: Any, said: str) -> None:
    """Raise ``UsageError`` if it is a DataLoader's sampler, or one pass over a DataLoader."""
    from torch.utils.data import BatchSampler, Sampler
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    if isinstance(found, Sampler):
        given = "batch_sampler" if isinstance(found, BatchSampler) else "sampler"
        raise UsageError(
            f"{said}: that is a sampler, which gives the indices of samples, not the samples;"
            " nothing was measured.",
            f"name the DataLoader that it is for: DataLoader(dataset, {given}=...)",
        )
    if isinstance(found, _BaseDataLoaderIter):
        raise UsageError(
            f"{said}: that is one pass through a DataLoader, already begun; nothing was measured.",
            "name the DataLoader itself, whose num_workers can be set",
        )


def no_loader(found: Any, said: str) -> UsageError:
    """Return the error for what is none of the things that can be timed."""
    hint = _WANTED
    if found is None:
        why = "is its `return` missing?"
        if "returned" not in said:
            why = "what a function sets later is still None: name a function that returns it"
        hint = f"{_WANTED}; {why}"
    if isroutine(found):
        hint = f"{_WANTED}; a function that another one returns is not called"
    if hasattr(found, "train_dataloader"):  # a LightningDataModule, of which setup() knows more
        hint = (
            "name a function of your own that makes one, calls its setup('fit') and returns its"
            " train_dataloader()"
        )
    if type(found).__module__.startswith("nvidia.dali."):
        hint = "name a function of your own that returns a DALIGenericIterator, or yields its run()"
    return UsageError(f"{said}: that is not a loader; nothing was measured.", hint)


def _is_array(thing: Any) -> bool:
    """Return whether it says that numpy can make it an array: tensors, arrays, tables."""
    return attribute_of(type(thing), "__array__") is not None and shape_of(thing) is not None


def _shaped(array: Any) -> str:
    shape = shape_of(array) or ()
    return f" of {' x '.join(map(str, shape))}" if shape else " of a single number"
