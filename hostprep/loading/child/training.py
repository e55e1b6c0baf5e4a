"""Nothing is trained: what begins to, where a loader is imported or called for, is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hostprep.errors import UsageError


class _Stepped(BaseException):
    """An optimizer is about to make a step; no ``except Exception`` of a training keeps it."""


@contextmanager
def stopped(what: str) -> Iterator[None]:
    """Raise ``UsageError`` at the first step that an optimizer of torch would make meanwhile.

    At the end it is raised for one that was kept from it before, too: a training that goes on
    after every exception, or runs in a thread. Each measurement opens the loader anew: it would be
    one training after the other, each of which may write over the checkpoints of a real one.
    Without torch there is nothing to look at.
    """
    try:
        from torch.optim.optimizer import register_optimizer_step_pre_hook
    except ImportError:
        yield
        return

    stepped: list[str] = []

    def stop(optimizer: Any, *_: Any) -> None:
        stepped.append(type(optimizer).__name__)
        raise _Stepped

    hook = register_optimizer_step_pre_hook(stop)
    try:
        yield
    except BaseException:  # what a training made of it, as an exit in its `finally`
        if not stepped:
            raise
    finally:
        hook.remove()
    if stepped:
        raise UsageError(
            f"{what} trains where the loader is made: it was stopped before the first step of its"
            f" optimizer ({stepped[0]}); nothing was measured.",
            "put what trains below `if __name__ == '__main__':`, or into a function that is not"
            " called when the module is imported, and name what makes the loader alone",
        )
