"""Tries to pickle what a worker that is not forked would be sent, in the measuring child."""

from __future__ import annotations

import pickle
from multiprocessing.context import set_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple


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
    descriptor or two for each: for a data set that is measured next. Here they are only counted.
    """

    def __init__(self, target: _Counting) -> None:
        super().__init__(target, pickle.HIGHEST_PROTOCOL)
        self._moved: dict[int, int] = {}

    @property
    def moved_bytes(self) -> int:
        """Return the bytes that torch would move into shared memory."""
        return sum(self._moved.values())

    def reducer_override(self, thing: Any) -> Any:
        import torch

        if isinstance(thing, torch.UntypedStorage) and thing.device.type == "cpu":
            if not thing.is_shared():
                self._moved[thing.data_ptr()] = thing.nbytes()
            return bytes, ()
        return NotImplemented


class Sent(NamedTuple):
    """What a worker is sent: bytes of a pickle, and bytes of tensors, which all of them share."""

    pickled_bytes: int
    tensor_bytes: int


class _NoChild:
    """Stands in for a spawned worker, so that what may only be sent to one (locks) is accepted."""

    def duplicate_for_child(self, descriptor: int) -> int:
        return descriptor

    DupFd = duplicate_for_child  # the name that multiprocessing asks for


def pickled(dataset: Any, collate: Any, loader: Any) -> tuple[dict[str, str], Sent | None]:
    """Return why a data set and its functions cannot be sent to a worker, or how much they are.

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
    if isinstance(whole, Sent):
        return {}, whole
    errors: dict[str, str] = {}
    for name, part in parts.items():
        if errors and getattr(part, "__self__", None) is dataset:
            continue  # a method of the data set, sent with it: already reported
        if isinstance(found := _tried(part), str):
            errors[name] = found
    return errors or {"dataset": whole}, None


def _tried(thing: Any) -> Sent | str:
    """Return how much a thing is as it is sent to a worker, or why it cannot be sent."""
    target = _Counting()
    trying = _Trying(target)
    set_spawning_popen(_NoChild())  # type: ignore[arg-type]
    try:
        trying.dump(thing)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        set_spawning_popen(None)
    return Sent(target.size_bytes, trying.moved_bytes)
