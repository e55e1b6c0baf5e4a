"""What a DataLoader was given: how it draws samples, and what stays as it is in the call to paste.

Runs in the measuring child only, where torch is.
"""

from __future__ import annotations

from typing import Any

from hostprep.loading.model import Batching


def is_shuffled(loader: Any) -> bool:
    """Return whether a DataLoader draws samples in random order; where there is none, one would."""
    if loader is None:
        return True
    from torch.utils.data import SequentialSampler

    return not isinstance(inner_sampler(loader), SequentialSampler)


def inner_sampler(loader: Any) -> Any:
    """Return what draws the samples one by one, also where a batch sampler groups them."""
    return getattr(loader.batch_sampler, "sampler", loader.sampler)


def draws_plainly(loader: Any) -> bool:
    """Return whether a DataLoader draws indices from 0 on, in their order or at random.

    Any other sampler knows what the data set can be asked for: some of the indices, or names.
    """
    from torch.utils.data import RandomSampler, SequentialSampler

    return loader is None or type(inner_sampler(loader)) in (RandomSampler, SequentialSampler)


def kept_arguments(loader: Any, batching: Batching) -> tuple[str, ...]:
    """Return what a DataLoader was given beside its batches, as words of a call.

    What has no words of its own is named as the argument is: ``collate_fn=collate_fn``.
    """
    from torch.utils.data import default_collate, default_convert

    if loader is None:
        return ()
    words = []
    if batching in (Batching.SIZE, Batching.DATASET):
        words += _drawing(loader)
    if batching is Batching.SIZE and loader.batch_sampler.drop_last:
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
    if not getattr(loader, "in_order", True):  # torch before 2.6 has none
        words.append("in_order=False")
    return tuple(words)


def _drawing(loader: Any) -> list[str]:
    """Return the words for how a DataLoader draws its samples."""
    from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler

    sampler = inner_sampler(loader)
    # A stream has its own order, and its DataLoader a sampler that says nothing.
    if isinstance(loader.dataset, IterableDataset) or type(sampler) is SequentialSampler:
        return []
    plain = type(sampler) is RandomSampler and not sampler.replacement
    if plain and sampler.data_source is loader.dataset and len(sampler) == len(loader.dataset):
        return ["shuffle=True"]
    return ["sampler=sampler"]
