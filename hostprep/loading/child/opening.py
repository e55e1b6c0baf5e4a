"""Opening what the user named, in a process of its own: a Dataset, a DataLoader, or any iterable.

Runs in the measuring child only, because importing a user's module runs the user's code.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import get_start_method
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import Inconclusive, UsageError
from hostprep.loading.child.batched import is_kerass, streams_batches
from hostprep.loading.child.given import (
    batch_sampler_of,
    current_settings,
    inner_sampler,
    is_shuffled,
    kept_arguments,
    kept_with_workers,
    own_class,
    plain_kind,
)
from hostprep.loading.child.own_way import has_own_way, innermost
from hostprep.loading.child.pickling import pickled
from hostprep.loading.child.refusing import no_loader, refuse_data
from hostprep.loading.failures import IMPORTING, TorchMissing
from hostprep.loading.files.samples import collate_tensors, in_memory, listed_samples
from hostprep.loading.model import Batching, Subject
from hostprep.loading.naming import NOTEBOOK_HINT, parts_of


@dataclass(frozen=True, slots=True)
class Opened:
    """What was opened. ``loader`` is the DataLoader that was given, if it was one.

    ``named`` is what the user has: that DataLoader, or a chain that begins with it. ``dataset`` is
    None for an iterable of unknown type, which is then ``iterable``. ``batch_size`` is None if
    batches have to be counted, because their sizes are not known beforehand. ``mixed``: the samples
    are already in random order.
    """

    dataset: Any
    loader: Any
    iterable: Any
    collate: Callable[[Any], Any] | None
    batch_size: int | None
    kind: str
    description: str
    batching: Batching = Batching.SIZE
    mixed: bool = False
    named: Any = None

    @property
    def length(self) -> int | None:
        """Return the samples of an epoch, of all ranks together; None if nobody knows.

        For an iterable this is its own length, except 0, which DALI's report if they are endless.
        Raises ``UsageError`` for a data set without a length, since then nobody knows which samples
        there are.
        """
        if self.kind == "stream":
            return None
        if self.loader is not None:
            return _epoch(self.loader, self.batching)
        if self.dataset is None:
            try:
                return _length(self.iterable) or None
            except Exception:  # nothing depends on it, and Lightning's CombinedLoader needs iter()
                return None
        length = _length(self.dataset)
        if length is None:
            raise UsageError(
                f"{self.description} has no length, so it is not known which samples it has.",
                "name its DataLoader with a sampler, which knows them, or add __len__",
            )
        return length

    @property
    def batches(self) -> int | None:
        """Return the batches of an epoch; None if nobody knows."""
        if self.batching is Batching.BATCH_SAMPLER:
            return _length(batch_sampler_of(self.loader))
        if self.batching is Batching.SAMPLER:
            return _length(self.loader.sampler)
        length = self.length
        if length is None or self.batching is Batching.DATASET:
            return length
        return math.ceil(length / (self.batch_size or 1))


def open_source(source: dict[str, Any], batch_size: int | None) -> Opened:
    """Open ``{"loader": "MODULE:NAME"}`` or ``{"files": PATH_OF_JSON}``.

    Raises ``TorchMissing`` if torch is missing for anything but a bare iterable, and ``UsageError``
    if the named thing does not exist. With ``form``, ``decoder`` and ``resizer`` some of the files
    are first read into memory, in that form.
    """
    if "files" in source:
        samples, directory = listed_samples(source["files"])
        if "form" in source:
            samples = in_memory(samples, source["form"], source["decoder"], source["resizer"])
        size = batch_size or 32
        # In the order of the list, the first ones are those that the stages were timed with.
        return Opened(samples, None, None, collate_tensors, size, "dataset", directory, mixed=True)
    return _classify(_named(source["loader"]), source["loader"], batch_size)


def _named(spec: str) -> Any:
    module_name, name = parts_of(spec)
    sys.path.insert(0, os.getcwd())  # as in `python train.py`
    sys.argv[0] = module_name  # argparse prints it as the program's name
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise TorchMissing from None
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            hint = f"run hostprep where `python -c 'import {module_name}'` works"
            if os.path.exists(f"{module_name}.ipynb"):
                hint = NOTEBOOK_HINT
            raise UsageError(
                f"there is no module {error.name} in {os.getcwd()} or the Python path.", hint
            ) from None
        raise
    except Exception as error:
        error.add_note(IMPORTING)
        raise
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            # Python's own queue.py hides the user's if it was imported before.
            place = getattr(module, "__file__", None) or "built in"
            raise UsageError(
                f"module {module_name} ({place}) has no {name}.",
                "accepted: MODULE:NAME; what is made in a function, or below `if __name__ =="
                " '__main__':`, is not a name of the module: name a function that returns it",
            )
        found = getattr(found, part)
    return found


def _classify(found: Any, spec: str, batch_size: int | None) -> Opened:
    try:
        from torch.utils.data import DataLoader, Dataset, IterableDataset, default_convert
    except ImportError:
        return _without_torch(found, spec, batch_size)

    def is_data(thing: Any) -> bool:
        return isinstance(thing, DataLoader | Dataset) or (
            hasattr(thing, "__getitem__") and hasattr(thing, "__len__")
        )

    def is_source(thing: Any) -> bool:
        return is_data(thing) or isinstance(thing, Iterable)

    callee = found
    if isinstance(found, type) or (callable(found) and not is_source(found)):
        found = found()
    what = _described(found, spec)
    made = found is callee or isinstance(callee, type)
    said = what if made else f"{spec} returned {_kind(found).removeprefix('builtins.')}"
    if not isinstance(found, DataLoader | Dataset):
        refuse_data(found, said)
    if _holds_several(found, DataLoader | Dataset):
        raise UsageError(
            f"{what} holds several things and is not a loader; nothing was measured.",
            "name one of them, or a function of your own that returns one of them",
        )
    if isinstance(found, DataLoader):
        return _of_loader(found, found, what, batch_size)
    # For instance webdataset's WebLoader: a stream of batches, not to be batched again.
    chain = getattr(found, "pipeline", None)
    if isinstance(chain, list) and chain and isinstance(chain[0], DataLoader):
        return _of_loader(chain[0], found, f"{what}: the DataLoader in it", batch_size)
    is_stream = isinstance(found, IterableDataset)
    kind = "stream" if is_stream else "dataset"
    if streams_batches(found) if is_stream else is_kerass(found):
        how = Batching.DATASET
        return Opened(found, None, None, default_convert, batch_size, kind, what, how)
    if is_data(found):
        return Opened(found, None, None, None, batch_size or 32, kind, what)
    if isinstance(found, Iterable):
        return Opened(None, None, found, None, batch_size or 1, "iterable", what)
    raise no_loader(found, said)


def _holds_several(found: Any, loaders: Any) -> bool:
    """Return whether it holds several loaders, of the types ``loaders``, or several splits."""
    # fastai's DataLoaders is not a tuple, and keeps its loaders under this name.
    parts = found if isinstance(found, tuple | list) else getattr(found, "loaders", None)
    if isinstance(parts, tuple | list) and (
        parts is not found or any(isinstance(one, loaders) for one in parts)
    ):
        return True
    # Splits, of any type; a data set of samples is a mapping by number.
    return isinstance(found, Mapping) and bool(found) and 0 not in found


def _described(found: Any, spec: str) -> str:
    return f"{spec} ({_kind(found)})"


def _kind(found: Any) -> str:
    return f"{type(found).__module__}.{type(found).__qualname__}"


def _without_torch(found: Any, spec: str, batch_size: int | None) -> Opened:
    """Open an iterable without torch, which only tf.data and the like can do without."""
    if isinstance(found, type) or (callable(found) and not isinstance(found, Iterable)):
        found = found()
    if not isinstance(found, Iterable) or hasattr(found, "__getitem__"):
        raise TorchMissing
    what = _described(found, spec)
    return Opened(None, None, found, None, batch_size or 1, "iterable", what)


def _of_loader(loader: Any, named: Any, what: str, batch_size: int | None) -> Opened:
    """Return a DataLoader opened; ``batch_size`` is the user's value, which replaces its own.

    Without automatic batching it says how many samples the data set puts into a batch.
    """
    from torch.utils.data import IterableDataset

    data, batching = loader.dataset, _batching(loader)
    kind = "stream" if isinstance(data, IterableDataset) else "dataloader"
    if batching in (Batching.BATCH_SAMPLER, Batching.SAMPLER) and batch_size is not None:
        raise UsageError(
            f"{what} has a sampler of its own that makes the batches; --batch-size cannot change"
            " their size.",
            "leave out --batch-size, or give a loader whose sampler makes batches of that size",
        )
    size = batch_size
    if batching is Batching.SIZE:
        size = batch_size or batch_sampler_of(loader).batch_size
    return Opened(data, loader, None, loader.collate_fn, size, kind, what, batching, named=named)


def _batching(loader: Any) -> Batching:
    if (batch_sampler := batch_sampler_of(loader)) is not None:
        plain = plain_kind(batch_sampler) == "BatchSampler"
        return Batching.SIZE if plain else Batching.BATCH_SAMPLER
    if plain_kind(loader.sampler) in ("RandomSampler", "SequentialSampler"):
        return Batching.DATASET
    entry = next(iter(loader.sampler), None)  # for a stream it is None every time
    lists = isinstance(entry, list | range) or getattr(entry, "ndim", 0) == 1
    return Batching.SAMPLER if lists else Batching.DATASET


def describe(opened: Opened, *, thoroughly: bool) -> Subject:
    """Return what is known of the opened thing; if ``thoroughly``, also whether it can be pickled.

    Raises ``Inconclusive`` if it is empty.
    """
    length = opened.length
    if length == 0 or opened.batches == 0:
        raise Inconclusive(f"{opened.description} is empty: it has no samples to time.")
    errors: dict[str, str] = {}
    sent = seconds = None
    if thoroughly and opened.dataset is not None:
        began = time.perf_counter()
        errors, sent = pickled(opened.dataset, opened.collate, opened.loader)
        seconds = time.perf_counter() - began
    loader = opened.loader
    cuda, cuda_error = _cuda()
    return Subject(
        kind=opened.kind,
        description=opened.description,
        length=length,
        batch_size=None if opened.dataset is None else opened.batch_size,
        shuffled=is_shuffled(loader),
        **current_settings(innermost(loader)),
        start_method=_start_method(loader),
        pickle_errors=errors,
        pickle_bytes=None if sent is None else sent.pickled_bytes,
        tensor_bytes=0 if sent is None else sent.tensor_bytes,
        pickle_seconds=seconds,
        opencv_threads=_opencv_threads(),
        torch_version=_torch_version(),
        cuda=cuda,
        cuda_error=cuda_error,
        batching=opened.batching,
        kept=kept_arguments(loader, opened.batching),
        kept_with_workers=kept_with_workers(loader),
        own_class=own_class(opened.named),
        own_iteration=has_own_way(opened.named),
    )


def _torch_version() -> str | None:
    try:
        import torch
    except ImportError:
        return None
    return str(torch.__version__)


def _cuda() -> tuple[bool, str | None]:
    """Return whether torch sees a GPU; looking does not start CUDA in this process.

    The fork-safe count goes through NVML: a child forked later must not find CUDA initialised.
    """
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    try:
        import torch
    except ImportError:
        return False, "torch is not installed"
    if torch.version.cuda is None and torch.version.hip is None:
        return False, "this torch is built for the CPU only"
    return (True, None) if torch.cuda.is_available() else (False, "torch sees no GPU here")


def _epoch(loader: Any, batching: Batching) -> int | None:
    """Return the samples that all ranks together take from a DataLoader in an epoch, if known."""
    sampler = inner_sampler(loader)
    drawn = None
    if batching in (Batching.SIZE, Batching.DATASET):
        drawn = _length(sampler)
    if drawn is None:
        return _length(loader.dataset)
    # A DistributedSampler draws what one of so many ranks trains on.
    return drawn * int(getattr(sampler, "num_replicas", 1))


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except (TypeError, NotImplementedError):
        return None


def _start_method(loader: Any) -> str:
    context = None if loader is None else loader.multiprocessing_context
    return str(context.get_start_method() if context is not None else get_start_method())


def _opencv_threads() -> int | None:
    """Return how many threads OpenCV would start here, None if the loader does not use OpenCV."""
    module = sys.modules.get("cv2")
    return None if module is None else int(module.getNumThreads())
