"""DataLoader classes that go through their batches in their own way, as libraries' and labs' do."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 8
MAIN_SECONDS = 0.02  # of each batch, in the main process
# Of all such sleeps, as they were, when each began and ended: on a busy machine they last longer.
slept: list[tuple[float, float]] = []


def sleep(seconds: float) -> None:
    """Stand for so much work on a batch."""
    began = time.perf_counter()
    time.sleep(seconds)
    slept.append((began, time.perf_counter()))


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index))


class SlowNumbers(Numbers):
    """Of which a batch takes as long as what others here do in the main process."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(MAIN_SECONDS / BATCH)
        return super().__getitem__(index)


class _Own(DataLoader[Any]):
    numbers = Numbers

    def __init__(self, **changed: Any) -> None:
        super().__init__(self.numbers(), **{"batch_size": BATCH, "shuffle": True, **changed})


class Augmenting(_Own):
    """Works on each batch in the main process."""

    def __iter__(self) -> Any:
        for number, batch in enumerate(super().__iter__()):
            sleep(MAIN_SECONDS)
            yield {"number": number, "of": len(self), "x": batch}


class _Fetching:
    """As PyG's DataLoaderIterator."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def __iter__(self) -> _Fetching:
        return self

    def __len__(self) -> int:
        return len(self.iterator)

    def __next__(self) -> Any:
        batch = next(self.iterator)
        sleep(MAIN_SECONDS)
        return batch


class Neighbours(_Own):
    """As PyG's NodeLoader: its ``__iter__`` is torch's."""

    def _get_iterator(self) -> Any:
        return _Fetching(super()._get_iterator())


class Merging(_Own):
    """Makes one batch of two."""

    def __iter__(self) -> Any:
        batches: Iterator[Any] = super().__iter__()
        for first, second in zip(batches, batches, strict=False):
            sleep(2 * MAIN_SECONDS)
            yield torch.cat([first, second])


class Splitting(_Own):
    """Makes many batches of one."""

    def __init__(self) -> None:
        super().__init__(batch_size=8 * BATCH)

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            for part in batch:
                sleep(MAIN_SECONDS)
                yield part


class _RepeatSampler:
    """As timm's and Ultralytics'."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        while True:
            yield from iter(self.sampler)


class Repeating(_Own):
    """As timm's MultiEpochsDataLoader and Ultralytics' InfiniteDataLoader."""

    def __init__(self, **changed: Any) -> None:
        super().__init__(**changed)
        object.__setattr__(self, "batch_sampler", _RepeatSampler(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)  # type: ignore[union-attr, attr-defined]

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield next(self.iterator)


class Sorting(_Own):
    """Wants all batches of an epoch before it gives the first."""

    def __iter__(self) -> Any:
        yield from sorted(super().__iter__(), key=lambda batch: float(batch[0, 0]))


class Preparing(_Own):
    """As accelerate's DataLoaderShard: goes over the loader that it was made of."""

    def __init__(self) -> None:
        super().__init__()
        self.base_dataloader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)

    def __iter__(self) -> Any:
        for batch in self.base_dataloader.__iter__():
            sleep(MAIN_SECONDS)
            yield batch


class Prepared:
    """As accelerate's loaders since 1.0: what only says that it is a DataLoader, and asks one."""

    def __init__(self) -> None:
        self.base_dataloader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True, num_workers=2)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return DataLoader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base_dataloader, name)

    def __iter__(self) -> Any:
        for batch in self.base_dataloader.__iter__():
            sleep(MAIN_SECONDS)
            yield batch


class Around(_Own):
    """Goes over a loader that goes over another, whose workers live on."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared = Preparing()
        self.prepared.base_dataloader = DataLoader(
            Numbers(), batch_size=BATCH, num_workers=2, persistent_workers=True
        )

    def __iter__(self) -> Any:
        return iter(self.prepared)


class Threaded(_Own):
    """As MONAI's ThreadDataLoader: a thread takes batches, one ahead."""

    numbers = SlowNumbers

    def __iter__(self) -> Any:
        ready: queue.Queue[Any] = queue.Queue(1)
        batches, over = super().__iter__(), threading.Event()

        def take() -> None:
            for batch in batches:
                while not over.is_set():
                    try:
                        ready.put(batch, timeout=0.1)
                        break
                    except queue.Full:
                        pass
                if over.is_set():
                    return

        taker = threading.Thread(target=take, daemon=True)
        taker.start()
        try:
            while True:
                yield ready.get()
        finally:
            over.set()


class Wrapping(_Own):
    """Takes batches from a loader that it makes."""

    def __iter__(self) -> Any:
        yield from DataLoader(self.dataset, batch_size=BATCH)


class Distributed(_Own):
    def __iter__(self) -> Any:
        raise ValueError("no process group was set up")
        yield
