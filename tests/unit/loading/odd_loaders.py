"""DataLoaders that are valid and not plain: others make their batches, or draw their samples."""

from __future__ import annotations

import inspect
import io
import random
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.distributed import DistributedSampler

SIZE = 4000
SAMPLE_SECONDS = 0.0005
_KNOWN = inspect.signature(DataLoader.__init__).parameters  # of this torch
OUT_OF_ORDER: dict[str, Any] = {"in_order": False} if "in_order" in _KNOWN else {}  # since 2.6


def sample(index: int) -> torch.Tensor:
    time.sleep(SAMPLE_SECONDS)
    return torch.full((3,), float(index))


class Plain(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        return sample(index)


class ByLists(Plain):
    """Makes a whole batch of a list of indices, as one that reads a table in one go."""

    def __getitem__(self, indices: Any) -> torch.Tensor:
        assert isinstance(indices, list)
        return torch.stack([sample(index) for index in indices])


class AllAtOnce(Plain):
    """Makes all samples of a batch in one go, as one that asks a server; none by itself."""

    def __getitem__(self, index: int) -> torch.Tensor:
        raise NotImplementedError

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [sample(index) for index in indices]


class Batched(Plain):
    """Holds batches of 16, and their labels."""

    def __len__(self) -> int:
        return 250

    def __getitem__(self, index: int) -> Any:
        return torch.stack([sample(index)] * 16), torch.zeros(16, dtype=torch.long)


class Shards(IterableDataset[Any]):
    """A stream of batches of 16, as of WebDataset."""

    def __iter__(self) -> Iterator[Any]:
        for _ in range(100_000):
            yield torch.stack([sample(0)] * 16), torch.zeros(16, dtype=torch.long)


class Buckets:
    """A batch sampler without a batch size: by length, 4 long ones or 8 short ones."""

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(0, SIZE - 12, 12):
            yield list(range(start, start + 4))
            yield list(range(start + 4, start + 12))

    def __len__(self) -> int:
        return 2 * (SIZE // 12)


class Half(Plain):
    """Has every second sample alone; the others are lost."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 2 == 0:
            raise KeyError(index)
        return sample(index)


class ByName(Dataset[torch.Tensor]):
    """Knows its samples by name and size, and not how many they are."""

    def __getitem__(self, key: tuple[str, int]) -> torch.Tensor:  # type: ignore[override]
        name, size = key
        assert name.startswith("sample-")
        return sample(size)


class Names:
    """A sampler of such keys, in an order by Python's dice."""

    def __init__(self) -> None:
        self.drawn: list[Any] = []

    def __iter__(self) -> Iterator[tuple[str, int]]:
        keys = [(f"sample-{number}", number) for number in range(SIZE)]
        random.shuffle(keys)
        for key in keys:
            self.drawn.append(key)
            yield key

    def __len__(self) -> int:
        return SIZE


class Gaps(Plain):
    """The first ones and some others cannot be read, and are None."""

    def __getitem__(self, index: int) -> Any:
        return None if index < 3 or index % 100 == 0 else sample(index)


def without_none(samples: list[Any]) -> torch.Tensor:
    return torch.stack([each for each in samples if each is not None])


def shards() -> DataLoader[Any]:
    return DataLoader(Shards(), batch_size=None)


def batched() -> DataLoader[Any]:
    return DataLoader(Batched(), batch_size=None, shuffle=True)


def all_at_once() -> DataLoader[Any]:
    return DataLoader(AllAtOnce(), batch_size=16)


def by_lists() -> DataLoader[Any]:
    sampler = BatchSampler(SequentialSampler(range(SIZE)), 16, False)
    return DataLoader(ByLists(), batch_size=None, sampler=sampler)  # type: ignore[arg-type]


def bucketed() -> DataLoader[Any]:
    return DataLoader(Plain(), batch_sampler=Buckets())


def of_16() -> DataLoader[Any]:
    class Mine(BatchSampler):
        """Of the user's own make."""

    return DataLoader(Plain(), batch_sampler=Mine(SequentialSampler(range(SIZE)), 16, False))


def half() -> DataLoader[Any]:
    return DataLoader(Half(), batch_size=8, sampler=SubsetRandomSampler(range(1, SIZE, 2)))


def by_name() -> DataLoader[Any]:
    return DataLoader(ByName(), batch_size=8, sampler=Names())  # type: ignore[arg-type]


def gaps() -> DataLoader[Any]:
    return DataLoader(Gaps(), batch_size=8, collate_fn=without_none)


def distributed() -> DataLoader[Any]:
    data = Plain()
    return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, 4, 1))


def as_they_are(samples: list[Any]) -> list[Any]:
    return samples


def seeded(worker: int) -> None:
    random.seed(worker)


def all_given() -> DataLoader[Any]:
    return DataLoader(
        Plain(),
        batch_size=8,
        shuffle=True,
        drop_last=True,
        num_workers=1,
        collate_fn=as_they_are,
        worker_init_fn=seeded,
        generator=torch.Generator().manual_seed(1),
        timeout=30,
        multiprocessing_context="spawn",
        **OUT_OF_ORDER,
    )


def some_of_them() -> DataLoader[Any]:
    data = Plain()
    return DataLoader(data, batch_size=8, sampler=RandomSampler(data, num_samples=800))


def grouped() -> DataLoader[Any]:
    return DataLoader(Plain(), batch_sampler=BatchSampler(Names(), 8, drop_last=True))


def by_numpys_numbers() -> DataLoader[Any]:
    two = np.int64(2)
    return DataLoader(Plain(), 8, num_workers=two, prefetch_factor=two)  # type: ignore[arg-type]


class Pipeline:
    """Is called with a source, and iterated then."""

    def __call__(self, source: str) -> Pipeline:
        return self

    def __iter__(self) -> Iterator[torch.Tensor]:
        return map(sample, range(SIZE))


callable_pipeline = Pipeline()("somewhere")
splits = {"train": list(range(SIZE)), "test": list(range(SIZE))}  # no torch Datasets
by_stage = {"fit": object()}
numbered = dict(enumerate(range(SIZE)))
unsized = ByName()


class WebLoader(IterableDataset[Any]):
    """As webdataset's: a DataLoader and what comes after it, and itself a data set to torch."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.pipeline: list[Any] = [loader]

    def __iter__(self) -> Iterator[Any]:
        found: Any = self.pipeline[0]
        for stage in self.pipeline[1:]:
            found = stage(found)
        yield from found


def web() -> WebLoader:
    return WebLoader(DataLoader(Shards(), batch_size=None, num_workers=2))


def chained() -> WebLoader:
    """Mix across workers, as webdataset's documentation has it."""
    made = web()
    made.pipeline.append(iter)
    return made


class DataModule:
    """As Lightning's."""

    def train_dataloader(self) -> DataLoader[Any]:
        return shards()


class Endless(DataLoader[Any]):
    """A DataLoader of somebody's own, which takes its arguments in its own way."""

    def __init__(self, dataset: Any, *, seed: int) -> None:
        super().__init__(dataset, 8, shuffle=True, collate_fn=as_they_are, num_workers=2)
        self.seed = seed

    def __iter__(self) -> Any:
        while True:
            yield from super().__iter__()


def endless() -> Endless:
    return Endless(Plain(), seed=1)


class Renamed(DataLoader[Any]):
    """Another name, and else what torch has."""


def renamed() -> Renamed:
    return Renamed(Plain(), batch_size=8, num_workers=2)


# As fastai's are: no tuple, but indexed, and with a length.
class Loaders:
    def __init__(self) -> None:
        self.loaders = [batched(), by_lists()]

    def __getitem__(self, index: int) -> DataLoader[Any]:
        return self.loaders[index]

    def __len__(self) -> int:
        return len(self.loaders)


def loaders() -> Loaders:
    return Loaders()


# As Lightning's CombinedLoader is.
class Unstarted:
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.zeros(4)])

    def __len__(self) -> int:
        raise RuntimeError("Please call `iter(loader)` first.")


def unstarted() -> Unstarted:
    return Unstarted()


def as_torchdata_has_them() -> DataLoader[Any]:
    """Return a loader with samplers of the kind that a StatefulDataLoader makes for itself."""
    module = "torchdata.stateful_dataloader.sampler"
    one_by_one = type("RandomSampler", (RandomSampler,), {"__module__": module})(Plain())
    batches = type("BatchSampler", (BatchSampler,), {"__module__": module})
    return DataLoader(one_by_one.data_source, batch_sampler=batches(one_by_one, 8, True))


class PyDataset:
    """As keras' is, by its name: no data set of torch's, and its items are batches."""

    __module__ = "keras.src.trainers.data_adapters.py_dataset_adapter"


class OfKeras(PyDataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return np.full((16, 4, 4, 3), index, dtype=np.float32), np.zeros(16)


def of_keras() -> OfKeras:
    return OfKeras()


class Chain(IterableDataset[Any]):
    """As webdataset's is: a list of stages, each with its function."""

    def __init__(self, *names: str) -> None:
        self.pipeline = [SimpleNamespace(f=type(name, (), {})) for name in names]

    def __iter__(self) -> Iterator[Any]:
        return iter(Shards())


of_web = Chain("tarfile_samples", "_map")
of_web_batched = Chain("tarfile_samples", "_batched", "_map")
of_web_unbatched = Chain("_batched", "_unbatched", "_shuffle")


class OfHuggingFace(Chain):
    """As Hugging Face's is: each step knows the one before, and some have a function."""

    __module__ = "datasets.iterable_dataset"

    def __init__(self, *functions: tuple[str, bool]) -> None:
        super().__init__()
        self._ex_iterable = None
        for name, several in functions:
            function = partial(type(name, (), {}))
            before = self._ex_iterable
            step = SimpleNamespace(function=function, batched=several, ex_iterable=before)
            self._ex_iterable = SimpleNamespace(ex_iterable=step)


of_hub = OfHuggingFace(("tokenise", False))
of_hub_batched = OfHuggingFace(("_batch_fn", True), ("tokenise", False))
of_hub_unbatched = OfHuggingFace(("_batch_fn", True), ("crops", True))
of_pipes = IterableWrapper(range(SIZE)).map(sample)
of_pipes_batched = IterableWrapper(range(SIZE)).batch(16).map(torch.tensor)
of_pipes_unbatched = IterableWrapper(range(SIZE)).batch(16).unbatch()


def an_image() -> torch.Tensor:
    return torch.zeros(32, 3, 8, 8)


def a_pair() -> tuple[torch.Tensor, torch.Tensor]:
    return an_image(), torch.zeros(32)


def two_alike() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(12, 256), torch.zeros(12, 256)


def a_batch() -> dict[str, torch.Tensor]:
    return {"image": an_image()}


def a_name() -> str:
    return "train"


def a_file() -> io.BytesIO:
    return io.BytesIO(b"0 1 2\n")


order = RandomSampler(range(SIZE))
groups = BatchSampler(order, 16, drop_last=False)


def one_pass() -> Iterator[Any]:
    return iter(DataLoader(Plain()))


def nothing() -> None:
    """Lack a ``return``."""


set_later = None


def a_function() -> Any:
    return a_pair


def crops(samples: list[torch.Tensor]) -> torch.Tensor:
    """Leave out a half, and make ten of each other one."""
    return torch.cat([torch.stack(samples[::2])] * 10)


def cropped() -> DataLoader[Any]:
    return DataLoader(Plain(), batch_size=8, collate_fn=crops)
