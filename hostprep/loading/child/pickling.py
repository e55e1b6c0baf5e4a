"""What is sent to a worker that is not forked, tried without one, in the measuring child."""

from __future__ import annotations

import pickle
from multiprocessing.context import set_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any


class _Counting:
    """A file that counts what is written and keeps nothing: the pickle of a data set may be big."""

    def __init__(self) -> None:
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.size_bytes += size
        return size


class _Trying(ForkingPickler):
    """Pickles as for a worker that is spawned, and leaves what it pickles as it is.

    Torch's own way moves all tensors into shared memory, which may have no room for them, and keeps
    a descriptor or two for each: of a data set that is measured next.
    """

    def reducer_override(self, thing: Any) -> Any:
        import torch

        if isinstance(thing, torch.UntypedStorage) and thing.device.type == "cpu":
            return bytes, ()
        return NotImplemented


class _NoChild:
    """Stands for the worker to spawn: what only goes to such a one, as a lock, is taken then."""

    def duplicate_for_child(self, descriptor: int) -> int:
        return descriptor

    DupFd = duplicate_for_child  # by the name that multiprocessing asks for


def pickled(dataset: Any, collate: Any, loader: Any) -> tuple[dict[str, str], int | None]:
    """Return what keeps a data set and its functions from being sent to a worker, or the bytes.

    That is an error for each of ``dataset``, ``collate_fn`` and ``worker_init_fn`` that has one:
    who is told of the wrong one looks for it in vain.
    """
    parts = {
        "dataset": dataset,
        "collate_fn": collate,
        "worker_init_fn": None if loader is None else loader.worker_init_fn,
    }
    # Together at first, as they are sent: what they share is sent once.
    whole = _tried(tuple(parts.values()))
    if isinstance(whole, int):
        return {}, whole
    errors: dict[str, str] = {}
    for name, part in parts.items():
        if errors and getattr(part, "__self__", None) is dataset:
            continue  # a method of the data set, which goes with it: the fault is told already
        if isinstance(found := _tried(part), str):
            errors[name] = found
    return errors or {"dataset": whole}, None


def _tried(thing: Any) -> int | str:
    """Return the bytes of a thing as it is sent to a worker, or why it cannot be sent."""
    target = _Counting()
    set_spawning_popen(_NoChild())  # type: ignore[arg-type]
    try:
        _Trying(target, pickle.HIGHEST_PROTOCOL).dump(thing)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        set_spawning_popen(None)
    return target.size_bytes
