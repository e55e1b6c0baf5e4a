"""What a verdict is made from, once everything is measured."""

from __future__ import annotations

from hostprep.dataclass import dataclass
from hostprep.loading.bounds import PROBE_PREFETCH
from hostprep.loading.curve import Curve
from hostprep.loading.files.model import Stages
from hostprep.loading.model import FailedProbe, HostShare, Probe, SampleCost, Subject
from hostprep.loading.recommendation import Bound
from hostprep.loading.search import Point


@dataclass(frozen=True, slots=True)
class Known:
    """Everything that a verdict is made from. ``points`` is empty if there is only the model.

    ``untried``: a number of workers that there was no time for gives clearly more than all that was
    measured, by the model or, if that was wrong, by how the rate rose. If there was no time for any
    workers, they may give more, whatever the model says. ``failed`` are the probes that the host's
    limits stopped. ``ahead`` is the prefetch factor of the probes, and ``bounds_now`` are the
    bounds at the present one.
    """

    host: HostShare
    subject: Subject | None
    length: int | None
    cost: SampleCost
    curve: Curve
    points: tuple[Point, ...]
    probes: tuple[Probe, ...]
    bounds: tuple[Bound, ...]
    stages: Stages | None
    gpu_rate: float | None
    cuda: bool
    data_bytes: float | None
    untried: int | None = None
    failed: tuple[FailedProbe, ...] = ()
    ahead: int = PROBE_PREFETCH
    bounds_now: tuple[Bound, ...] = ()
