"""A DataLoader class of somebody's own that goes through its batches in its own way.

What such a class does with batches it does in the main process, where no worker takes it over:
fetching the features of sampled nodes, augmenting on another device, merging batches. A plain
DataLoader in its place would show another rate, so its own ``__iter__`` runs, over torch's iterator
as hostprep sets it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hostprep.loading.child.delivery import Delivery, NotThisWay

# More loaders around each other are no wish, but a circle.
_DEEP = 16


def has_own_way(loader: Any) -> bool:
    """Return whether a DataLoader's class, or a chain, changes how its batches are gone through."""
    if loader is None:
        return False
    from torch.utils.data import DataLoader

    kind = type(loader)
    if not issubclass(kind, DataLoader):
        # Accelerate's only say that they are one; webdataset's chain may have stages after it.
        return isinstance(loader, DataLoader) or len(loader.pipeline) > 1
    return (
        kind.__iter__ is not DataLoader.__iter__
        or kind._get_iterator is not DataLoader._get_iterator
    )


def innermost(loader: Any) -> Any:
    """Return the DataLoader that makes the batches: of one that goes over another, that other one.

    Its workers are set there, as Accelerate's are; with several inside nobody knows.
    """
    if loader is None:  # as where there is no torch
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
    """Raise ``NotThisWay`` where it cannot lead over another iterator than the one it has.

    Some keep one from the start, over all epochs: its workers are those that were set first.
    """
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    if any(isinstance(value, _BaseDataLoaderIter) for value in vars(loader).values()):
        raise NotThisWay("it keeps the workers that it was made with")


class InItsOwnWay:
    """What the class of ``theirs`` makes of what ``loader`` gives, passed on by ``delivery``.

    Its attributes stay, but for torch's own, which are ``loader``'s: the samples, the workers.
    Raises ``NotThisWay``, like any error of its code, before or with the first batch.
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

        # An override calls it by super(): there is no place nearer than torch's class. This process
        # does nothing else, and ends with its one measurement.
        DataLoader._get_iterator = get_iterator  # type: ignore[method-assign, assignment]

    def _twin_of(self, theirs: Any, loader: Any) -> Any:
        twin = object.__new__(type(theirs))
        self._twins.append(twin)
        inside = {}
        for name, value in vars(theirs).items():
            if _is_loader(value):
                # Accelerate's goes over the one that it was made of, which may have its own way.
                nested = value is not theirs and has_own_way(value) and len(self._twins) < _DEEP
                inside[name] = self._twin_of(value, loader) if nested else loader
        # DataLoader lets nobody set most of these.
        twin.__dict__.update({**vars(theirs), **inside, **vars(loader)})
        return twin

    def __iter__(self) -> Iterator[Any]:
        for batch in self._twin:
            if not self._delivery.came:
                raise NotThisWay("it takes batches from elsewhere")
            self._delivery.allow_any_number()
            yield batch
