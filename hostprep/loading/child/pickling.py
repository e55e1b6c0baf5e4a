"""Tries to pickle what a worker that is not forked would be sent, in the measuring child."""

from __future__ import annotations

import pickle
from multiprocessing.context import set_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any


class _Counting:
    """A file that counts what is written and keeps none: a data set's pickle may be large."""

    def __init__(self) -> None:
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.size_bytes += size
        return size


class _Trying(ForkingPickler):
    """Pickles as for a spawned worker, but leaves what it pickles unchanged.

    Torch's own way moves all tensors into shared memory, which may lack the room, and keeps a
    descriptor or two for each: for a data set that is measured next.
    """

    def reducer_override(self, thing: Any) -> Any:
        import torch

        if isinstance(thing, torch.UntypedStorage) and thing.device.type == "cpu":
            return bytes, ()
        return NotImplemented


class _NoChild:
    """Stands in for a spawned worker, so that what may only be sent to one (locks) is accepted."""

    def duplicate_for_child(self, descriptor: int) -> int:
        return descriptor

    DupFd = duplicate_for_child  # the name that multiprocessing asks for


def pickled(dataset: Any, collate: Any, loader: Any) -> tuple[dict[str, str], int | None]:
    """Return why a data set and its functions cannot be sent to a worker, or their pickled bytes.

    The errors are by name, for each of ``dataset``, ``collate_fn`` and ``worker_init_fn`` that has
    one: a user who is told the wrong one searches in vain.
    """
    parts = {
        "dataset": dataset,
        "collate_fn": collate,
        "worker_init_fn": None if loader is None else loader.worker_init_fn,
    }
    # First all together, as they are sent: what they share is sent once.
    whole = _tried(tuple(parts.values()))
    if isinstance(whole, int):
        return {}, whole
    errors: dict[str, str] = {}
    for name, part in parts.items():
        if errors and getattr(part, "__self__", None) is dataset:
            continue  # a method of the data set, sent with it: already reported
        if isinstance(found := _tried(part), str):
            errors[name] = found
    return errors or {"dataset": whole}, None


def _tried(thing: Any) -> int | str:
    """Return the size of a thing as it is sent to a worker, or why it cannot be sent."""
    target = _Counting()
    set_spawning_popen(_NoChild())  # type: ignore[arg-type]
    try:
        _Trying(target, pickle.HIGHEST_PROTOCOL).dump(thing)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        set_spawning_popen(None)
    return target.size_bytes
