"""What a DataLoader was given: how it draws samples, and what stays as it is in the call to paste.

Runs in the measuring child only, where torch is.
"""

from __future__ import annotations

from typing import Any

from hostprep.loading.model import Batching

# torch's own samplers, and what torchdata's StatefulDataLoader puts in their place.
_PLAIN = ("torch.utils.data.sampler", "torchdata.stateful_dataloader.sampler")


def plain_kind(sampler: Any) -> str | None:
    """Return the name of a sampler's class where that is torch's own, else None."""
    kind = type(sampler)
    return kind.__name__ if kind.__module__ in _PLAIN else None


def own_class(loader: Any) -> str | None:
    """Return the name of a DataLoader's class, or a chain's, where that is not torch's own."""
    if loader is None:
        return None
    from torch.utils.data import DataLoader

    return None if type(loader) is DataLoader else type(loader).__name__


def is_shuffled(loader: Any) -> bool:
    """Return whether a DataLoader draws samples in random order; where there is none, one would."""
    if loader is None:
        return True
    from torch.utils.data import SequentialSampler

    return not isinstance(inner_sampler(loader), SequentialSampler)


def batch_sampler_of(loader: Any) -> Any:
    """Return what groups the samples, None where nothing does; one epoch of it.

    timm's and Ultralytics' loaders repeat it without end, so that workers live on.
    """
    sampler = loader.batch_sampler
    repeats = type(sampler).__name__ == "_RepeatSampler"
    return getattr(sampler, "sampler", sampler) if repeats else sampler


def inner_sampler(loader: Any) -> Any:
    """Return what draws the samples one by one, also where a batch sampler groups them."""
    return getattr(batch_sampler_of(loader), "sampler", loader.sampler)


def draws_plainly(loader: Any) -> bool:
    """Return whether a DataLoader draws indices from 0 on, in their order or at random.

    Any other sampler knows what the data set can be asked for: some of the indices, or names.
    """
    plain = ("RandomSampler", "SequentialSampler")
    return loader is None or plain_kind(inner_sampler(loader)) in plain


def current_settings(loader: Any) -> dict[str, Any]:
    """Return what a DataLoader is set to of what is recommended, as fields of ``Subject``."""
    if loader is None:
        return {"current_workers": None, "current_prefetch": None}
    workers, ahead = int(loader.num_workers), loader.prefetch_factor  # numpy's, too
    return {
        "current_workers": workers,
        "current_prefetch": None if ahead is None else int(ahead),
        "current_persistent": bool(loader.persistent_workers) if workers else None,
        "current_pin": bool(loader.pin_memory),
    }


def kept_arguments(loader: Any, batching: Batching) -> tuple[str, ...]:
    """Return what a DataLoader was given beside its batches, as words of a call.

    What cannot be written out is named like its argument: ``collate_fn=collate_fn``.
    """
    if loader is None:
        return ()
    from torch.utils.data import default_collate, default_convert

    words = []
    if batching in (Batching.SIZE, Batching.DATASET):
        words += _drawing(loader)
    if batching is Batching.SIZE and batch_sampler_of(loader).drop_last:
        words.append("drop_last=True")
    if loader.collate_fn not in (default_collate, default_convert):
        words.append("collate_fn=collate_fn")
    words += [
        f"{name}={name}"
        for name in ("worker_init_fn", "generator")
        if getattr(loader, name) is not None
    ]
    return tuple(words)


def kept_with_workers(loader: Any) -> tuple[str, ...]:
    """Return what a DataLoader was given and takes with workers alone, as words of a call."""
    if loader is None:
        return ()
    words = []
    if loader.timeout:
        words.append(f"timeout={loader.timeout:g}")
    if (context := loader.multiprocessing_context) is not None:
        words.append(f"multiprocessing_context='{context.get_start_method()}'")
    if not in_order(loader):
        words.append("in_order=False")
    return tuple(words)


def in_order(loader: Any) -> bool:
    """Return whether a DataLoader gives batches in the order in which they were asked for."""
    return bool(getattr(loader, "in_order", True))  # torch before 2.6 has none


def _drawing(loader: Any) -> list[str]:
    """Return the words for how a DataLoader draws its samples."""
    from torch.utils.data import IterableDataset

    sampler = inner_sampler(loader)
    kind = plain_kind(sampler)
    # A stream has its own order, and its DataLoader a sampler that says nothing.
    if isinstance(loader.dataset, IterableDataset) or kind == "SequentialSampler":
        return []
    plain = kind == "RandomSampler" and not sampler.replacement
    if plain and sampler.data_source is loader.dataset and len(sampler) == len(loader.dataset):
        return ["shuffle=True"]
    return ["sampler=sampler"]
