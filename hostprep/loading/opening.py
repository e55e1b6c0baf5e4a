"""Opening what the user named, in a process of its own: a Dataset, a DataLoader, or any iterable.

Runs in the measuring child only: importing somebody's module runs their code.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import get_start_method
from multiprocessing.reduction import ForkingPickler
from typing import Any

from hostprep.errors import HostprepError, Inconclusive, UsageError
from hostprep.loading.files import FileSamples, collate_tensors, in_memory
from hostprep.loading.model import Subject


class TorchMissing(HostprepError):
    """The loader mode needs torch, which is an extra."""

    code = "torch_missing"

    def __init__(self) -> None:
        super().__init__(
            "torch is not installed in the Python that runs hostprep; DataLoaders cannot be timed.",
            "pip install 'hostprep[torch]', or run hostprep in your training's environment",
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """What was opened. ``loader`` is the DataLoader that was given, if it was one.

    ``dataset`` is None for an iterable of unknown make, which is then ``iterable``.
    """

    dataset: Any
    loader: Any
    iterable: Any
    collate: Callable[[Any], Any] | None
    batch_size: int
    kind: str
    description: str

    @property
    def length(self) -> int | None:
        """Return the number of samples; of an iterable whatever it says of itself, if anything."""
        counted = self.iterable if self.dataset is None else self.dataset
        if self.kind == "stream":
            return None
        try:
            return len(counted)
        except TypeError:
            if self.dataset is not None:
                raise
            return None


def open_source(source: dict[str, Any], batch_size: int | None) -> Opened:
    """Open ``{"loader": "MODULE:NAME"}`` or ``{"files": PATH_OF_JSON}``; torch must be there.

    With ``form`` and ``decoder`` a few of the files are read into memory, in that form, first.
    """
    if "files" in source:
        with open(source["files"], encoding="ascii") as file:
            told = json.load(file)
        samples = FileSamples(told["names"], told["kind"], told["decoder"], told["side"])
        if "form" in source:
            samples = in_memory(samples, source["form"], source["decoder"])
        size = batch_size or 32
        return Opened(samples, None, None, collate_tensors, size, "dataset", told["directory"])
    return _classify(_named(source["loader"]), source["loader"], batch_size)


def _named(spec: str) -> Any:
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise UsageError(f"{spec!r} names no loader.", "accepted: package.module:name")
    sys.path.insert(0, os.getcwd())  # as `python train.py` has it
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise UsageError(
                f"there is no module {error.name} in {os.getcwd()} or the Python path.",
                "run hostprep where `python -c 'import ...'` of it works",
            ) from None
        raise
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"module {module_name} has no {name}.", "accepted: MODULE:NAME")
        found = getattr(found, part)
    return found


def _classify(found: Any, spec: str, batch_size: int | None) -> Opened:
    try:
        from torch.utils.data import DataLoader, Dataset, IterableDataset
    except ImportError:
        raise TorchMissing from None

    def is_data(thing: Any) -> bool:
        return isinstance(thing, DataLoader | Dataset) or (
            hasattr(thing, "__getitem__") and hasattr(thing, "__len__")
        )

    if isinstance(found, type) or (callable(found) and not is_data(found)):
        found = found()
    what = f"{spec} ({type(found).__module__}.{type(found).__qualname__})"
    if isinstance(found, DataLoader):
        kind = "stream" if isinstance(found.dataset, IterableDataset) else "dataloader"
        size = batch_size or found.batch_size or getattr(found.batch_sampler, "batch_size", None)
        return Opened(found.dataset, found, None, found.collate_fn, size or 1, kind, what)
    if isinstance(found, IterableDataset):
        return Opened(found, None, None, None, batch_size or 32, "stream", what)
    if is_data(found):
        return Opened(found, None, None, None, batch_size or 32, "dataset", what)
    if isinstance(found, Iterable):
        return Opened(None, None, found, None, batch_size or 1, "iterable", what)
    raise UsageError(
        f"{what} is no loader.",
        "accepted: a Dataset, a DataLoader, an iterable, or a callable that returns one",
    )


def describe(opened: Opened, *, thoroughly: bool) -> Subject:
    """Return what is known of the opened thing; ``thoroughly`` tries to pickle it, too.

    Raises ``Inconclusive`` where it is empty.
    """
    import torch

    length = opened.length
    if length == 0:
        raise Inconclusive(f"{opened.description} is empty: it has no samples to time.")
    error, size = (None, None)
    if thoroughly and opened.dataset is not None:
        error, size = _pickled(opened.dataset, opened.collate, opened.loader)
    loader = opened.loader
    cuda, cuda_error = _cuda()
    return Subject(
        kind=opened.kind,
        description=opened.description,
        length=length,
        batch_size=None if opened.dataset is None else opened.batch_size,
        shuffled=is_shuffled(loader),
        current_workers=None if loader is None else loader.num_workers,
        current_prefetch=None if loader is None else loader.prefetch_factor,
        start_method=_start_method(loader),
        pickle_error=error,
        pickle_bytes=size,
        opencv_threads=_opencv_threads(),
        torch_version=str(torch.__version__),
        cuda=cuda,
        cuda_error=cuda_error,
    )


def _cuda() -> tuple[bool, str | None]:
    """Return whether there is a GPU that torch sees; looking does not start CUDA in this process.

    Its fork-safe count goes through NVML: a child forked later must not find CUDA initialised.
    """
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return False, "this torch is built for the CPU alone"
    return (True, None) if torch.cuda.is_available() else (False, "torch sees no GPU here")


def is_shuffled(loader: Any) -> bool:
    """Return whether a DataLoader draws samples in random order; where there is none, one would."""
    if loader is None:
        return True
    from torch.utils.data import SequentialSampler

    inner = getattr(loader.batch_sampler, "sampler", loader.sampler)
    return not isinstance(inner, SequentialSampler)


def _start_method(loader: Any) -> str:
    context = None if loader is None else loader.multiprocessing_context
    return str(context.get_start_method() if context is not None else get_start_method())


class _Counting:
    """A file that counts what is written and keeps nothing: the pickle of a data set may be big."""

    def __init__(self) -> None:
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.size_bytes += size
        return size


def _pickled(dataset: Any, collate: Any, loader: Any) -> tuple[str | None, int | None]:
    target = _Counting()
    init = None if loader is None else loader.worker_init_fn
    try:
        ForkingPickler(target, pickle.HIGHEST_PROTOCOL).dump((dataset, collate, init))
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0], None
    return None, target.size_bytes


def _opencv_threads() -> int | None:
    """Return how many threads OpenCV would start here, None where the loader does not use it."""
    module = sys.modules.get("cv2")
    return None if module is None else int(module.getNumThreads())
