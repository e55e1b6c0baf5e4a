"""What the user asked for, and everything that the answer was made from."""

from __future__ import annotations

from dataclasses import dataclass

from hostprep.loading.curve import Curve
from hostprep.loading.files import Listing
from hostprep.loading.model import (
    Bound,
    FailedProbe,
    Hazard,
    HostShare,
    Probe,
    Recommendation,
    SampleCost,
    Stages,
    Subject,
    Transport,
)
from hostprep.loading.search import Point
from hostprep.loading.variants import Variant, Winner


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked for. ``seconds`` is the budget of all measuring, comparing apart."""

    batch_size: int | None
    gpu_rate: float | None
    seconds: float
    image_side: int
    measure: bool
    compare: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The recommendation with everything that it was made from."""

    mode: str
    host: HostShare
    recommendation: Recommendation
    hazards: tuple[Hazard, ...] = ()
    bounds: tuple[Bound, ...] = ()
    subject: Subject | None = None
    listing: Listing | None = None
    stages: Stages | None = None
    cost: SampleCost | None = None
    transport: Transport | None = None
    curve: Curve | None = None
    model_agreed: bool | None = None
    gpu_rate: float | None = None
    gpu_rate_from: str | None = None
    points: tuple[Point, ...] = ()
    probes: tuple[Probe, ...] = ()
    failures: tuple[FailedProbe, ...] = ()
    variants: tuple[Variant, ...] = ()
    winners: tuple[Winner, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
