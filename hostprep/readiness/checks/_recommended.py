"""What the last recommended loader uses, as `hostprep recommend` recorded it."""

from __future__ import annotations

from typing import Any

from hostprep.dataclass import dataclass
from hostprep.kinds import is_count
from hostprep.readiness.context import Context


@dataclass(frozen=True, slots=True)
class Recommended:
    """Each is None if it was not recorded, or is not a number, for instance in a damaged file.

    ``workers`` is for one rank, ``tensors`` how many tensors a batch had.
    """

    workers: int | None
    ranks: int | None
    prefetch_factor: int | None
    tensors: int | None
    shm_bytes: int | None


def recommended(context: Context) -> Recommended:
    """Read the last recommendation."""
    kept = context.last("recommend")
    evidence = _part(kept, "evidence")
    return Recommended(
        _count(kept, "num_workers"),
        _count(_part(evidence, "host"), "ranks"),
        _count(kept, "prefetch_factor"),
        _count(_part(evidence, "sample"), "tensors_per_batch"),
        _count(kept, "shm_bytes"),
    )


def _part(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _count(document: Any, name: str) -> int | None:
    value = _part(document, name)
    return int(value) if is_count(value) else None
