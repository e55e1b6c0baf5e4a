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


def has_own_way(loader: Any) -> bool:
    """Return whether a DataLoader's class, or a chain, changes how its batches are gone through."""
    if loader is None:
        return False
    from torch.utils.data import DataLoader

    kind = type(loader)
    if not issubclass(kind, DataLoader):
        return len(loader.pipeline) > 1  # as webdataset's WebLoader, with stages after it
    return (
        kind.__iter__ is not DataLoader.__iter__
        or kind._get_iterator is not DataLoader._get_iterator
    )


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
        self._twin = twin = object.__new__(type(theirs))
        # Accelerate's goes over the one that it was made of.
        inside = {
            name: loader for name, value in vars(theirs).items() if isinstance(value, DataLoader)
        }
        # DataLoader lets nobody set most of these.
        twin.__dict__.update({**vars(theirs), **inside, **vars(loader)})
        as_torch_does = DataLoader._get_iterator

        def get_iterator(of: Any) -> Any:
            made = as_torch_does(of)
            return delivery.of(made) if of is twin or of is loader else made

        # An override calls it by super(): there is no place nearer than torch's class. This process
        # does nothing else, and ends with its one measurement.
        DataLoader._get_iterator = get_iterator  # type: ignore[method-assign, assignment]

    def __iter__(self) -> Iterator[Any]:
        for batch in self._twin:
            if not self._delivery.came:
                raise NotThisWay("it takes batches from elsewhere")
            self._delivery.allow_any_number()
            yield batch
