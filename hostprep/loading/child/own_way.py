"""A user's DataLoader class that iterates over its batches in its own way.

Such a class processes batches in the main process, and no worker can take that over: fetching the
features of sampled nodes, augmenting on another device, merging batches. A plain DataLoader in its
place would show a different rate, so the class's own ``__iter__`` runs, over torch's iterator with
hostprep's settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hostprep.loading.child.delivery import Delivery, NotThisWay

# If more loaders are nested in each other, nobody intended that: they refer to each other.
_DEEP = 16


def has_own_way(loader: Any) -> bool:
    """Return whether a DataLoader's class, or a chain, changes how batches are iterated over."""
    if loader is None:
        return False
    from torch.utils.data import DataLoader

    kind = type(loader)
    if not issubclass(kind, DataLoader):
        # Accelerate's only claim to be a DataLoader; webdataset's chain may have more stages.
        return isinstance(loader, DataLoader) or len(loader.pipeline) > 1
    return (
        kind.__iter__ is not DataLoader.__iter__
        or kind._get_iterator is not DataLoader._get_iterator
    )


def innermost(loader: Any) -> Any:
    """Return the DataLoader that makes the batches: the inner one if the loader wraps another.

    Its workers are set there, as with Accelerate's; with several inside nobody knows which.
    """
    if loader is None:  # for instance without torch
        return None
    from torch.utils.data import DataLoader

    seen: list[Any] = []
    while isinstance(loader, DataLoader) and has_own_way(loader) and loader not in seen:
        seen.append(loader)
        inside = {id(value): value for value in vars(loader).values() if _is_loader(value)}
        if len(inside) == 1:
            (loader,) = inside.values()
    return loader


def _is_loader(value: Any) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(value, DataLoader)


def check_own_way(loader: Any) -> None:
    """Raise ``NotThisWay`` if the class cannot be made to use another iterator than its own.

    Some keep one from the start, across all epochs: its workers are those that were set first.
    """
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    if any(isinstance(value, _BaseDataLoaderIter) for value in vars(loader).values()):
        raise NotThisWay("it keeps the workers that it was made with")


class InItsOwnWay:
    """What the class of ``theirs`` makes of the batches of ``loader``, passed on by ``delivery``.

    It keeps its attributes except torch's own, which are ``loader``'s: the samples, the workers.
    Raises ``NotThisWay``, or any error of the class's code, before or with the first batch.
    """

    def __init__(self, theirs: Any, loader: Any, delivery: Delivery) -> None:
        from torch.utils.data import DataLoader

        self._delivery = delivery
        self._twins: list[Any] = []
        self._twin = self._twin_of(theirs, loader)
        as_torch_does = DataLoader._get_iterator

        def get_iterator(of: Any) -> Any:
            made = as_torch_does(of)
            ours = of is loader or any(of is twin for twin in self._twins)
            return delivery.of(made) if ours else made

        # An override calls it through super(), so torch's class is the nearest place to set it.
        # This process does nothing else, and ends after its one measurement.
        DataLoader._get_iterator = get_iterator  # type: ignore[method-assign, assignment]

    def _twin_of(self, theirs: Any, loader: Any) -> Any:
        twin = object.__new__(type(theirs))
        self._twins.append(twin)
        inside = {}
        for name, value in vars(theirs).items():
            if _is_loader(value):
                # Accelerate's wraps the one it was made from, which may have its own way too.
                nested = value is not theirs and has_own_way(value) and len(self._twins) < _DEEP
                inside[name] = self._twin_of(value, loader) if nested else loader
        # DataLoader's __setattr__ forbids setting most of these.
        twin.__dict__.update({**vars(theirs), **inside, **vars(loader)})
        return twin

    def __iter__(self) -> Iterator[Any]:
        for batch in self._twin:
            if not self._delivery.came:
                raise NotThisWay("it takes batches from elsewhere")
            self._delivery.allow_any_number()
            yield batch
