"""Trains nothing: if importing or calling for a loader begins a training, that is ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hostprep.errors import HostprepError, UsageError


@contextmanager
def ended(what: str, refuse: Callable[[HostprepError], object]) -> Iterator[None]:
    """End this process at the first step that a torch optimizer would make meanwhile.

    ``refuse`` is told why first. Each measurement opens the loader anew, which would mean one
    training after the other. The process ends without an exception, because what a training does
    after one, or in a ``finally``, may be to write its model over the checkpoints of a real one.
    Without torch there is nothing to watch.
    """
    try:
        from torch.optim.optimizer import register_optimizer_step_pre_hook
    except ImportError:
        yield
        return

    def end(optimizer: Any, *_: Any) -> None:
        refuse(
            UsageError(
                f"{what} trains while the loader is made: it was ended before the first step of"
                f" its optimizer ({type(optimizer).__name__}); nothing was measured.",
                "put what trains below `if __name__ == '__main__':`, or into a function that is"
                " not called when the module is imported, and name what only makes the loader",
            )
        )
        os._exit(0)

    hook = register_optimizer_step_pre_hook(end)
    try:
        yield
    finally:
        hook.remove()
