"""What a DataLoader was given: how it draws samples, and what to keep in the call to paste.

Runs in the measuring child only, where torch is.
"""

from __future__ import annotations

from typing import Any

from hostprep.loading.model import Batching

# torch's own samplers, and what torchdata's StatefulDataLoader puts in their place.
_PLAIN = ("torch.utils.data.sampler", "torchdata.stateful_dataloader.sampler")


def plain_kind(sampler: Any) -> str | None:
    """Return the name of a sampler's class if that is one of torch's own, else None."""
    kind = type(sampler)
    return kind.__name__ if kind.__module__ in _PLAIN else None


def own_class(loader: Any) -> str | None:
    """Return the name of a DataLoader's or a chain's class if it is not torch's own DataLoader."""
    if loader is None:
        return None
    from torch.utils.data import DataLoader

    return None if type(loader) is DataLoader else type(loader).__name__


def is_shuffled(loader: Any) -> bool:
    """Return whether a DataLoader draws samples in random order; True if there is none yet."""
    if loader is None:
        return True
    from torch.utils.data import SequentialSampler

    return not isinstance(inner_sampler(loader), SequentialSampler)


def batch_sampler_of(loader: Any) -> Any:
    """Return a single epoch of what groups the samples, None if nothing does.

    timm's and Ultralytics' loaders repeat it without end, so that workers live on.
    """
    sampler = loader.batch_sampler
    repeats = type(sampler).__name__ == "_RepeatSampler"
    return getattr(sampler, "sampler", sampler) if repeats else sampler


def inner_sampler(loader: Any) -> Any:
    """Return what draws the samples one by one, even if a batch sampler groups them."""
    return getattr(batch_sampler_of(loader), "sampler", loader.sampler)


def draws_plainly(loader: Any) -> bool:
    """Return whether a DataLoader draws indices from 0 on, in order or at random.

    Any other sampler knows what the data set can be asked for: a subset of the indices, or names.
    """
    plain = ("RandomSampler", "SequentialSampler")
    return loader is None or plain_kind(inner_sampler(loader)) in plain


def current_settings(loader: Any) -> dict[str, Any]:
    """Return a DataLoader's present values of what is recommended, as fields of ``Subject``."""
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
    """Return what a DataLoader was given besides its batch settings, as arguments of a call.

    What cannot be written out is named after its argument: ``collate_fn=collate_fn``.
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
    """Return the arguments of a DataLoader that apply only with workers, as words of a call."""
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
    """Return whether a DataLoader gives batches in the order in which they were requested."""
    return bool(getattr(loader, "in_order", True))  # torch before 2.6 has none


def _drawing(loader: Any) -> list[str]:
    """Return the arguments that say how a DataLoader draws its samples."""
    from torch.utils.data import IterableDataset

    sampler = inner_sampler(loader)
    kind = plain_kind(sampler)
    # A stream has its own order, and the sampler of its DataLoader says nothing.
    if isinstance(loader.dataset, IterableDataset) or kind == "SequentialSampler":
        return []
    plain = kind == "RandomSampler" and not sampler.replacement
    if plain and sampler.data_source is loader.dataset and len(sampler) == len(loader.dataset):
        return ["shuffle=True"]
    return ["sampler=sampler"]
