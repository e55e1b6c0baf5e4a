"""What is recommended for a loader, and what limits and endangers it; no code that decides."""

from __future__ import annotations

from hostprep.dataclass import dataclass
from hostprep.loading.model import Binding


@dataclass(frozen=True, slots=True)
class Bound:
    """The most workers that one resource allows, and why."""

    binding: Binding
    workers: int
    reason: str


@dataclass(frozen=True, slots=True)
class Hazard:
    """Something found here that is known to crash or slow down loaders; ``cure`` is the setting."""

    code: str
    message: str
    cure: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to set, what then binds, and why.

    ``num_workers`` is per rank; None for an iterable that has no such setting. ``prefetch_factor``
    is None without workers, as DataLoader requires. ``confirmed``: the rate was measured with this
    number of workers; otherwise it is the model's. ``change_needed`` is about the workers only,
    whatever else ``code`` changes; it is None if the present setting is not known, or if there was
    no time to try it, or to try what may be better. ``remedy`` says what would help if more workers
    do not.
    """

    num_workers: int | None
    prefetch_factor: int | None
    pin_memory: bool
    persistent_workers: bool
    verdict: str
    reasons: tuple[str, ...]
    code: str
    binding: Binding | None = None
    remedy: str | None = None
    expected_samples_per_s: float | None = None
    relative_error: float | None = None
    confirmed: bool = False
    change_needed: bool | None = None
    memory_bytes: int | None = None
    shm_bytes: int | None = None
