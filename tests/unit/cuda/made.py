"""Traces that are made up, and say so: a good run, for tests to spoil one thing at a time."""

from __future__ import annotations

from hostprep.cuda.traces import (
    ControlTrace,
    CopyPoint,
    DeliveryTrace,
    DeviceTrace,
    EpochTrace,
    OverlapTrace,
    Trace,
    TrainingTrace,
)
from hostprep.units import KIB, MIB

ORIGIN = "made"


def device(**changes: object) -> DeviceTrace:
    facts: dict[str, object] = {
        "name": "Made GPU",
        "capability": "8.6",
        "total_bytes": 24 << 30,
        "utilisation_percent": 0,
        "others": 0,
        "link_generation": 4,
        "link_width": 16,
        "max_link_generation": 4,
        "max_link_width": 16,
        "clock_reasons": ("power cap",),
        "persistence": True,
        "ecc_uncorrected": 0,
        "pinned": True,
        "contiguous": True,
        "own_stream": True,
    }
    return DeviceTrace(**{**facts, **changes})  # type: ignore[arg-type]


def overlap(
    kind: str,
    phi: float,
    *,
    copy: float = 0.0075,
    compute: float = 0.0075,
    call: float = 1e-5,
    repeats: int = 7,
) -> OverlapTrace:
    """Return an overlap whose medians give ``phi``; the repeats scatter around them."""
    both = copy + compute - phi * min(copy, compute)
    scatter = [1 + 0.02 * ((number % 3) - 1) for number in range(repeats)]
    scatter[repeats // 2] = 1.0
    scatter.sort()
    return OverlapTrace(
        kind,
        tuple(copy * factor for factor in scatter),
        tuple(compute * factor for factor in scatter),
        tuple(both * factor for factor in scatter),
        (call,) * repeats,
    )


OVERLAPS = {
    "same_stream": overlap("same_stream", 0.01),
    "spin": overlap("spin", 0.97),
    "matmul": overlap("matmul", 0.85),
    "pageable": overlap("pageable", 0.02, call=0.007),
    "prefetcher": overlap("prefetcher", 0.88, copy=0.075, compute=0.075),
}


def training(**changes: object) -> TrainingTrace:
    facts: dict[str, object] = {
        "storage": "/dev/shm (ram)",
        "samples": 4096,
        "rounds": 5,
        "seconds": 1.0,
        "first_batch_seconds": 0.0,
        "gaps_seconds": 0.03,
        "resident_seconds": 0.95,
        "resident_gaps_seconds": 0.02,
        "samples_per_s": 4096.0,
        "loader_samples_per_s": 9000.0,
        "step_samples_per_s": 4300.0,
        "bus_samples_per_s": 400_000.0,
    }
    return TrainingTrace(**{**facts, **changes})  # type: ignore[arg-type]


def trace(**changes: object) -> Trace:
    """Return a good run with some of it changed; ``None`` or ``()`` leaves a part out."""
    parts: dict[str, object] = {
        "subject": "cuda:0",
        "origin": ORIGIN,
        "quick": False,
        "device": device(),
        "copies": (
            CopyPoint(4 * KIB, 5e-6, 4e-6),
            CopyPoint(64 * MIB, 64 * MIB / 25e9, 6e-6),
            CopyPoint(256 * MIB, 256 * MIB / 25.2e9, 6e-6),
        ),
        "overlaps": tuple(OVERLAPS.values()),
        "deliveries": (
            DeliveryTrace("tensors", 54, 54, 14_000_000, 0),
            DeliveryTrace("early_end", 3, 3, 2_000_000, 0),
        ),
        "controls": (ControlTrace("NoWaitBack", 12345),),
        "epochs": tuple(EpochTrace(64 * MIB, 20, 30) for _ in range(5)),
        "training": training(),
    }
    return Trace(**{**parts, **changes})  # type: ignore[arg-type]
