"""Data sets whose items are already batches, recognised by the library that made them.

Runs in the measuring child. A DataLoader of such a data set needs ``batch_size=None``: batched
again, a batch would count as one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hostprep.attributes import attribute_of
from hostprep.loading.child.batches import count_samples, rows_of_columns

# The names of webdataset's stages, without the underscore that some versions put in front.
_WEB_BATCHES = ("batched", "listed")
_WEB_SAMPLES = ("unbatched", "unlisted")


def is_kerass(found: Any) -> bool:
    """Return whether it is a Keras PyDataset, whose items are batches."""
    return any(
        kind.__name__ in ("PyDataset", "Sequence")
        and kind.__module__.partition(".")[0] in ("keras", "tf_keras", "tensorflow")
        for kind in type(found).__mro__
    )


def streams_batches(found: Any) -> bool:
    """Return whether an IterableDataset of webdataset, Hugging Face or torch's pipes gives batches.

    False for any other, where nobody can tell.
    """
    maker = _maker(found)
    if maker == "datasets":
        return _hugging_face(found)
    if maker == "torch":
        return any(type(pipe).__name__ == "BatcherIterDataPipe" for pipe in _pipes(found))
    stages = attribute_of(found, "pipeline")
    return isinstance(stages, list) and _web(stages)


def counter_of(found: Any) -> Callable[[Any], int]:
    """Return a function that counts the samples in a data set's item; in a batch, by its columns.

    In a known batch every column has one entry per sample, whatever the samples are: bytes, texts,
    lists that differ. Hugging Face's ``Dataset`` does not record a call of its ``batch()``; a list
    there may be a batch of texts or the words of one, and counts by its looks.
    """
    is_batch = _maker(found) != "torch" and streams_batches(found)

    def count(item: Any) -> int:
        rows = rows_of_columns(item) if is_batch else None
        return rows or count_samples(item)[0]

    return count


def _maker(found: Any) -> str:
    return type(found).__module__.partition(".")[0]


def _web(stages: list[Any]) -> bool:
    """Return whether webdataset's last stage that batches or unbatches is one that batches."""
    batches = False
    for stage in stages:
        name = str(attribute_of(attribute_of(stage, "f"), "__name__")).lstrip("_")
        batches = (batches or name in _WEB_BATCHES) and name not in _WEB_SAMPLES
    return batches


def _hugging_face(found: Any) -> bool:
    """Return whether ``batch()`` was called, and after it no function that takes several items."""
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
    """Yield the pipe and the pipes it takes from, in turn, up to one that undoes batches."""
    while pipe is not None and type(pipe).__name__ != "UnBatcherIterDataPipe":
        yield pipe
        pipe = attribute_of(pipe, "datapipe")
