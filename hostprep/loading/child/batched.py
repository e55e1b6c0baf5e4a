"""Data sets whose items are batches already, known by who made them; runs in the measuring child.

A DataLoader of such a one wants ``batch_size=None``: batched once more, a batch would count as one
sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hostprep.attributes import attribute_of
from hostprep.loading.child.batches import count_samples, rows_of_columns

# What webdataset's stages do, by their names without the underscore that some versions have.
_WEB_BATCHES = ("batched", "listed")
_WEB_SAMPLES = ("unbatched", "unlisted")


def is_kerass(found: Any) -> bool:
    """Return whether it is a PyDataset of keras, whose items are batches."""
    return any(
        kind.__name__ in ("PyDataset", "Sequence")
        and kind.__module__.partition(".")[0] in ("keras", "tf_keras", "tensorflow")
        for kind in type(found).__mro__
    )


def streams_batches(found: Any) -> bool:
    """Return whether an IterableDataset gives batches: webdataset's, Hugging Face's, torch's pipes.

    False of any other, of which nobody can tell.
    """
    maker = _maker(found)
    if maker == "datasets":
        return _hugging_face(found)
    if maker == "torch":
        return any(type(pipe).__name__ == "BatcherIterDataPipe" for pipe in _pipes(found))
    stages = attribute_of(found, "pipeline")
    return isinstance(stages, list) and _web(stages)


def counter_of(found: Any) -> Callable[[Any], int]:
    """Return what counts the samples in an item of a data set: of a batch, by its columns.

    Of what is known to be one each column is as long as that, whatever its samples are: bytes,
    texts, lists that differ. Hugging Face's ``Dataset`` keeps no word of its ``batch()``; a list
    there may be a batch of texts or the words of one, and counts as it looks.
    """
    is_batch = _maker(found) != "torch" and streams_batches(found)

    def count(item: Any) -> int:
        rows = rows_of_columns(item) if is_batch else None
        return rows or count_samples(item)[0]

    return count


def _maker(found: Any) -> str:
    return type(found).__module__.partition(".")[0]


def _web(stages: list[Any]) -> bool:
    """Return whether the last of webdataset's stages that makes or undoes batches makes them."""
    batches = False
    for stage in stages:
        name = str(attribute_of(attribute_of(stage, "f"), "__name__")).lstrip("_")
        batches = (batches or name in _WEB_BATCHES) and name not in _WEB_SAMPLES
    return batches


def _hugging_face(found: Any) -> bool:
    """Return whether ``batch()`` was called and no function since that is given several items."""
    step = attribute_of(found, "_ex_iterable")
    while step is not None:
        function = attribute_of(step, "function")
        name = attribute_of(attribute_of(function, "func") or function, "__name__")
        if str(name).startswith("_batch_"):
            return True
        if attribute_of(step, "batched"):
            return False
        step = attribute_of(step, "ex_iterable")
    return False


def _pipes(pipe: Any) -> Iterator[Any]:
    """Yield the pipe and what it takes from, one after the other, up to one that undoes batches."""
    while pipe is not None and type(pipe).__name__ != "UnBatcherIterDataPipe":
        yield pipe
        pipe = attribute_of(pipe, "datapipe")
