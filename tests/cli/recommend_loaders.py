"""Loaders as users have them, good and bad, for ``hostprep recommend --loader``."""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler

print("somebody's module prints when it is imported")


class Waiting(Dataset[torch.Tensor]):
    """20,000 samples, each three milliseconds of waiting, as from a network."""

    size = 20_000
    floats = 100

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.003)
        return torch.zeros(self.floats)


class Ready(Waiting):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(self.floats)


class Working(Waiting):
    """About two milliseconds of one processor a sample."""

    def __getitem__(self, index: int) -> torch.Tensor:
        total = sum(number * number for number in range(20_000))
        return torch.full((self.floats,), float(total % 7))


class Large(Waiting):
    """Four hundred kilobytes a sample: 64 MB have room for a batch of 32 of each of two workers."""

    floats = 100_000


class Huge(Waiting):
    """Three megabytes a sample: one batch of 32 is more than 64 MB."""

    floats = 786_432


class Images(Waiting):
    """Images of 128 pixels, in three milliseconds each."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index).new_zeros(3, 128, 128)


class Raises(Waiting):
    def __getitem__(self, index: int) -> torch.Tensor:
        raise KeyError("label")


class KilledWhenMany(Waiting):
    """Where there are more than two workers, one is killed, as when memory runs out."""

    def __getitem__(self, index: int) -> torch.Tensor:
        info = torch.utils.data.get_worker_info()
        if info is not None and info.id > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class RaisesInWorkers(Waiting):
    def __getitem__(self, index: int) -> torch.Tensor:
        if torch.utils.data.get_worker_info() is not None:
            raise KeyError("label")
        return super().__getitem__(index)


class Hangs(Waiting):
    def __getitem__(self, index: int) -> torch.Tensor:
        signal.pause()
        raise AssertionError


class HangsInWorkers(Waiting):
    def __getitem__(self, index: int) -> torch.Tensor:
        if torch.utils.data.get_worker_info() is not None:
            signal.pause()
        return super().__getitem__(index)


def hangs_in_forkserver_workers() -> DataLoader[torch.Tensor]:
    return DataLoader(
        HangsInWorkers(), batch_size=4, num_workers=2, multiprocessing_context="forkserver"
    )


class Dies(Waiting):
    def __getitem__(self, index: int) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError


class Unsharded(IterableDataset[torch.Tensor]):
    """Every worker gives all of it: more of them seem faster, and only repeat."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in itertools.count():
            time.sleep(0.003)
            yield torch.full((100,), float(number))


class Short(IterableDataset[torch.Tensor]):
    """200 batches of eight, a millisecond each, shared out: over before a clock is."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = torch.utils.data.get_worker_info()
        share, shares = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(share, 1600, shares):
            if number // shares % 8 == 0:
                time.sleep(0.001)
            yield torch.full((100,), float(number))


class NeedsGpu(Waiting):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3, device="cuda")


class Prints(Waiting):
    """Prints to stdout by every way there is, from workers, too."""

    def __getitem__(self, index: int) -> torch.Tensor:
        print('{"not": "the document"}')
        os.write(1, b"bytes for descriptor 1\n")
        sys.stdout.flush()
        return super().__getitem__(index)


def empty() -> Waiting:
    data = Waiting()
    data.size = 0
    return data


def three() -> Waiting:
    data = Waiting()
    data.size = 3
    return data


def unpicklable() -> Waiting:
    data = Prints()
    data.transform = lambda sample: sample  # type: ignore[attr-defined]
    return data


def prints_unpicklable() -> DataLoader[torch.Tensor]:
    return DataLoader(unpicklable(), batch_size=32, multiprocessing_context="fork", num_workers=1)


def short_stream() -> DataLoader[torch.Tensor]:
    return DataLoader(Short(), batch_size=8)


def unpicklable_spawned() -> DataLoader[torch.Tensor]:
    return DataLoader(unpicklable(), batch_size=8, num_workers=2, multiprocessing_context="spawn")


def good_already() -> DataLoader[torch.Tensor]:
    return DataLoader(Ready(), batch_size=16, num_workers=0)


class Shards(IterableDataset[Any]):
    """A stream of batches of 16 samples, each three milliseconds of waiting."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            time.sleep(16 * 0.003)
            yield torch.zeros(16, 3, 8, 8), torch.zeros(16, dtype=torch.long)


def shards() -> DataLoader[Any]:
    return DataLoader(Shards(), batch_size=None)


class Buckets:
    """Makes the batches: 4 long samples, or 12 short ones."""

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(0, 16_000, 16):
            yield list(range(start, start + 4))
            yield list(range(start + 4, start + 16))


def bucketed() -> DataLoader[Any]:
    return DataLoader(Waiting(), batch_sampler=Buckets())


class LostFirst(Waiting):
    """Every second sample is lost, and of the others every third is None."""

    def __getitem__(self, index: int) -> Any:
        if index % 2 == 0:
            raise FileNotFoundError(f"{index}.jpg")
        return None if index % 3 == 0 else super().__getitem__(index)


def _without_none(samples: list[Any]) -> torch.Tensor:
    return torch.stack([sample for sample in samples if sample is not None])


def lost_first() -> DataLoader[Any]:
    sampler = SubsetRandomSampler(range(1, 20_000, 2))
    return DataLoader(LostFirst(), batch_size=16, sampler=sampler, collate_fn=_without_none)


def pipeline() -> Iterator[dict[str, Any]]:
    """Make batches the way tf.data or DALI would: an iterable that is no DataLoader."""
    while True:
        time.sleep(0.01)
        yield {"image": torch.zeros(16, 3, 8, 8)}


def with_arguments() -> DataLoader[torch.Tensor]:
    """As a script does that parses its arguments when it is imported."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    return DataLoader(Ready(), batch_size=parser.parse_args().batch_size)


def train_and_validate() -> tuple[DataLoader[torch.Tensor], Waiting]:
    return good_already(), Waiting()


def by_name() -> dict[str, Any]:
    return {"train": good_already(), "val": good_already(), "classes": 10}


def broken() -> Dataset[torch.Tensor]:
    raise FileNotFoundError("/data/train.lmdb")


constant = 5
