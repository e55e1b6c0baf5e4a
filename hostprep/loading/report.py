"""What the user asked for, and everything that the answer was made from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.loading.curve import Curve
from hostprep.loading.files.listing import Listing
from hostprep.loading.files.model import Stages, Undecoded
from hostprep.loading.measuring.variants import Lead, Variant
from hostprep.loading.model import (
    FailedProbe,
    HostShare,
    Pipeline,
    Probe,
    SampleCost,
    Subject,
    Transport,
)
from hostprep.loading.recommendation import Bound, Hazard, Recommendation
from hostprep.loading.search import Point


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked for. ``seconds`` is the budget for all measuring except comparisons."""

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
    pipeline: Pipeline | None = None
    listing: Listing | None = None
    stages: Stages | None = None
    undecoded: Undecoded | None = None
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
    leads: tuple[Lead, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def report_fields(report: Report) -> dict[str, Any]:
    """Return a report for JSON: first the contract's fields, then all measurements as evidence."""
    made = report.recommendation
    listing = report.listing
    return {
        "mode": report.mode,
        "num_workers": made.num_workers,
        "prefetch_factor": made.prefetch_factor,
        "pin_memory": made.pin_memory,
        "persistent_workers": made.persistent_workers,
        "binding": made.binding,
        "remedy": made.remedy,
        "expected_samples_per_s": made.expected_samples_per_s,
        "relative_error": made.relative_error,
        "confirmed": made.confirmed,
        "change_needed": made.change_needed,
        "verdict": made.verdict,
        "code": made.code,
        "memory_bytes": made.memory_bytes,
        "shm_bytes": made.shm_bytes,
        "hazards": [asdict(hazard) for hazard in report.hazards],
        "notes": list(report.notes),
        "seconds": report.seconds,
        "evidence": {
            "reasons": list(made.reasons),
            "host": asdict(report.host),
            "bounds": [asdict(bound) for bound in report.bounds],
            "gpu_rate_samples_per_s": report.gpu_rate,
            "gpu_rate_from": report.gpu_rate_from,
            "loader": None if report.subject is None else asdict(report.subject),
            "pipeline": None if report.pipeline is None else asdict(report.pipeline),
            "files": None
            if listing is None
            else {
                "count": len(listing.names),
                "kind": listing.kind,
                "others": listing.others,
                "all_listed": listing.whole,
                "mean_file_bytes": round(listing.mean_bytes),
                "undecoded": None if report.undecoded is None else report.undecoded.why,
            },
            "stages": None if report.stages is None else asdict(report.stages),
            "sample": None if report.cost is None else asdict(report.cost),
            "transport": None if report.transport is None else asdict(report.transport),
            "model": _model_fields(report),
            "points": [asdict(point) for point in report.points],
            "probes": [asdict(probe) for probe in report.probes],
            "failed_probes": [asdict(failure) for failure in report.failures],
            "comparison": [asdict(variant) for variant in report.variants],
            "winners": [asdict(lead) for lead in report.leads if not lead.rivals],
            "undecided": [asdict(lead) for lead in report.leads if lead.rivals],
        },
    }


def _model_fields(report: Report) -> dict[str, Any] | None:
    curve = report.curve
    if curve is None:
        return None
    workers = {point.workers for point in report.points} | {report.recommendation.num_workers or 0}
    return {
        "proposed_workers": curve.proposal(report.gpu_rate),
        "agreed": report.model_agreed,
        "worker_samples_per_s": curve.worker,
        "ceiling_samples_per_s": curve.ceiling,
        "ceiling_from": curve.ceiling_from,
        "predicted": [
            {"workers": number, "samples_per_s": curve.rate(number)} for number in sorted(workers)
        ],
    }
