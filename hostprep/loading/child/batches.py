"""Looking into a batch of any type: its bytes, its content, its samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from hostprep.attributes import attribute_of
from hostprep.units import format_count

_DEEPEST = 8  # levels of a nested batch; an object may contain itself
_SAMPLED = 1024  # elements that are compared to tell one array from another
_CHANNELS = (1, 3, 4)
# Tensors of these layouts have no storage of their own, only that of what these methods return.
_METHODS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
    "torch.jagged": ("values", "offsets"),
}


class BatchSize(NamedTuple):
    """The bytes of all arrays in a batch, of its tensors alone, and the number of tensors."""

    size_bytes: int
    shared_bytes: int
    tensors: int


def measure_batch(batch: Any) -> BatchSize:
    """Return the size of a batch.

    Arrays are found however nested they are. Torch passes its own tensors in shared memory, and
    anything else through a pipe. What cannot be looked into counts as nothing.
    """
    size_bytes = shared_bytes = tensors = 0
    for leaf in _leaves(batch):
        if isinstance(leaf, bytes | bytearray):
            size_bytes += len(leaf)
        elif (held_bytes := _nbytes(leaf)) is not None:
            size_bytes += held_bytes
            if attribute_of(leaf, "untyped_storage") is not None:
                shared_bytes += held_bytes
                tensors += 1
    return BatchSize(size_bytes, shared_bytes, tensors)


def fingerprint(batch: Any) -> int | None:
    """Return a number that is the same for batches with the same content, within this process.

    Only some elements of large arrays are compared. None if the batch cannot be looked into.
    """
    try:
        return hash(tuple(_content(leaf) for leaf in _leaves(batch)))
    except Exception:
        return None


def count_samples(item: Any) -> tuple[int, str]:
    """Return how many samples an item of a loader holds, and in words why that many.

    If that cannot be told, it is one: then the rate is too low, which starves no GPU.
    """
    shapes = list(_shapes(item))
    if not shapes:
        return 1, "as one sample: no array was found in it"
    if () in shapes:
        return 1, "as one sample: a number in it has no dimension for a batch"
    if len({shape[0] for shape in shapes}) > 1:
        return 1, "as one sample: its arrays differ in their first dimension"
    if (rows := rows_of_all(item)) is not None:
        return rows, f"as {format_count(rows, 'sample')}: all its arrays have this many rows"
    rows = shapes[0][0]
    if len(shapes[0]) == 1:
        return 1, "as one sample: its arrays have one dimension"
    if any(_is_image(shape) for shape in shapes):
        return 1, "as one sample: its shape is that of a single image"
    return rows, f"as {format_count(rows, 'sample')}, the first dimension of its arrays"


def rows_of_all(batch: Any) -> int | None:
    """Return the rows that all arrays in a batch share although they differ otherwise, or None.

    It takes two arrays with different dimensions, such as images and their labels: then the match
    is no accident.
    """
    return _common_rows(list(_shapes(batch)))


def rows_of_columns(batch: Any) -> int | None:
    """Return the number of samples in a batch: the length of each of its columns.

    None if these differ. But a list may hold the samples themselves, more of them than each has
    parts: torch makes lists of sample tuples.
    """
    if isinstance(batch, list) and batch and all(isinstance(each, Mapping) for each in batch):
        return len(batch)
    columns = list(_columns(batch))
    lengths = {_length(column) for column in columns}
    if len(lengths) != 1 or (rows := lengths.pop()) is None:
        return None
    by_samples = isinstance(batch, list) and all(isinstance(each, tuple | list) for each in batch)
    return max(rows, len(columns)) if by_samples else rows


def rows_within(batch: Any) -> int | None:
    """Return the rows of each sample in a collated batch, if ``rows_of_all`` would tell them."""
    return _common_rows([shape[1:] for shape in _shapes(batch)])


def rows_for(batch: Any, drawn: int) -> int | None:
    """Return the rows of a batch that was made of ``drawn`` samples; None if that cannot be told.

    If each array has some dimension of that size, for instance when time comes first, it is
    ``drawn``.
    """
    if all(drawn in shape for shape in _shapes(batch)):
        return drawn
    rows, _ = count_samples(batch)
    return None if rows == 1 else rows


def _leaves(
    batch: Any, depth: int = _DEEPEST, known: dict[int, tuple[int, Any]] | None = None
) -> Iterator[Any]:
    """Yield the leaves of a batch: arrays, the parts of sparse ones, bytes, scalars.

    Looks into mappings, sequences, and the fields of objects such as dataclasses, into each only
    once, as pickle does: if a thousand boxes refer to their scene and the scene to its boxes, there
    is no end of paths through them. ``known`` maps the ``id`` of what was looked into to the levels
    that were left there.
    """
    methods = _METHODS.get(str(attribute_of(batch, "layout")))
    if methods is not None:
        yield from _parts(batch, methods)
        return
    if _nbytes(batch) is not None or isinstance(batch, bytes | bytearray | str):
        yield batch
        return
    if depth == 0:
        return
    inner = _held_in(batch)
    if inner is None:
        yield batch
        return
    known = {} if known is None else known
    if known.get(id(batch), (0, None))[0] >= depth:
        return
    known[id(batch)] = depth, batch  # referenced, so that nothing else gets its id
    for item in inner:
        yield from _leaves(item, depth - 1, known)


def _held_in(thing: Any) -> Iterable[Any] | None:
    """Return what a container or an object holds, including a dataclass's non-field attributes."""
    told = _told_in(thing)
    if hasattr(thing, "__dict__") and (told is None or dataclasses.is_dataclass(thing)):
        return list(vars(thing).values())
    return told


def _told_in(thing: Any) -> Iterable[Any] | None:
    """Return what a mapping, a sequence or a dataclass declares to hold; None for anything else."""
    if isinstance(thing, Mapping):
        try:
            return list(thing.values())
        except Exception:  # TensorDict's lazy stack, of samples that differ in shape
            return None
    if isinstance(thing, list | tuple):
        return thing
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return [getattr(thing, each.name, None) for each in dataclasses.fields(thing)]
    return None


def _content(leaf: Any) -> str:
    if shape_of(leaf) is None:
        return repr(leaf)
    flat = leaf.reshape(-1)
    some = flat[:: max(1, flat.shape[0] // _SAMPLED)]
    return f"{tuple(leaf.shape)} {some.tolist()}"


def _shapes(item: Any, depth: int = _DEEPEST) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of arrays, numbers (an empty one), and lists of scalars in an item.

    Texts alone tell nothing.
    """
    # A TensorDict also has a shape, but only that of its batch dimensions.
    holds = isinstance(item, Mapping) or dataclasses.is_dataclass(item)
    if isinstance(item, bool | int | float):
        yield ()
    elif not holds and (shape := shape_of(item)) is not None:
        yield shape
    elif not holds and (shapes := _shapes_in(item)):
        yield (len(shapes), *shapes[0])
    elif isinstance(item, list) and item and isinstance(item[0], bool | int | float | str):
        yield (len(item),)
    elif (holds or isinstance(item, list | tuple)) and depth:
        for value in _told_in(item) or ():
            yield from _shapes(value, depth - 1)


def shape_of(thing: Any) -> tuple[int, ...] | None:
    """Return an array's shape, None for anything else: in DALI's lists ``shape`` is a method."""
    try:
        return tuple(thing.shape)
    except Exception:
        return None


def _shapes_in(thing: Any) -> list[tuple[int, ...]]:
    """Return the shapes of the samples in a DALI list of tensors; none for anything else."""
    try:
        return [tuple(shape) for shape in thing.shape()]
    except Exception:
        return []


def _columns(batch: Any) -> Iterable[Any]:
    if isinstance(batch, Mapping):
        return batch.values()
    return batch if isinstance(batch, tuple | list) else (batch,)


def _length(column: Any) -> int | None:
    if shape := shape_of(column):
        return shape[0]
    return len(column) if isinstance(column, tuple | list) else None


def _common_rows(shapes: list[tuple[int, ...]]) -> int | None:
    if not shapes or () in shapes or len({shape[0] for shape in shapes}) > 1:
        return None
    return shapes[0][0] if len({len(shape) for shape in shapes}) > 1 else None


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and (shape[0] in _CHANNELS or shape[2] in _CHANNELS)


def _nbytes(thing: Any) -> int | None:
    found = attribute_of(thing, "nbytes")
    return found if isinstance(found, int) else None


def _parts(tensor: Any, methods: Iterable[str]) -> list[Any]:
    try:
        return [getattr(tensor, name)() for name in methods]
    except Exception:
        return []
