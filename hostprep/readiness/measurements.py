"""The figures behind the plots: what the last probe, recommend and verify on this host measured.

A part that was never measured is None, in every format.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from hostprep.errors import HostprepError
from hostprep.readiness.context import Context


def measurements(context: Context) -> dict[str, Any]:
    """Return the parts ``storage``, ``epoch``, ``loader`` and ``overlap`` with their ages.

    Rates are bytes or samples per second, times are seconds. A result that is kept in an unknown
    form, or that this user may not read, counts as not measured; the checks report it.
    """
    parts = {"storage": _storage, "epoch": _epoch, "loader": _loader, "overlap": _overlap}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            found[name] = part(context)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, HostprepError):
            found[name] = None
    return found


def _storage(context: Context) -> list[dict[str, Any]] | None:
    rows = [
        {
            "path": probe["path"],
            "class": probe["device"]["class"],
            "age_seconds": context.age_of(probe),
            "valid": probe["valid"],
            "sequential_bytes_per_s": _of(probe["sequential"], "bytes_per_s"),
            "small_files_bytes_per_s": _of(probe["small_files"], "bytes_per_s"),
            "small_files_per_s": _of(probe["small_files"], "files_per_s"),
        }
        for probe in context.probes
    ]
    return rows or None


def _epoch(context: Context) -> dict[str, Any] | None:
    for probe in context.probes:
        if (epoch := probe.get("epoch")) and probe["valid"]:
            return {
                "path": probe["path"],
                "age_seconds": context.age_of(probe),
                "files": epoch["files"],
                "size_bytes": epoch["size_bytes"],
                "cold_seconds": epoch["cold_seconds"],
                "next_low_seconds": epoch["next_low_seconds"],
                "next_high_seconds": epoch["next_high_seconds"],
                "staged_seconds": epoch["staged_seconds"],
            }
    return None


def _loader(context: Context) -> dict[str, Any] | None:
    kept = context.last("recommend")
    if kept is None or not kept["evidence"]["points"]:
        return None
    return {
        "age_seconds": context.age_of(kept),
        "num_workers": kept["num_workers"],
        "binding": kept["binding"],
        "gpu_rate_samples_per_s": kept["evidence"]["gpu_rate_samples_per_s"],
        "points": [
            {
                "workers": point["workers"],
                "samples_per_s": point["rate"],
                "relative_error": point["relative_error"],
            }
            for point in sorted(kept["evidence"]["points"], key=lambda point: point["workers"])
        ],
    }


def _overlap(context: Context) -> dict[str, Any] | None:
    kept = context.last("verify")
    if kept is None:
        return None
    shares = {
        (check["subject"], check["name"]): check["measured"]
        for check in kept["checks"]
        if check["name"].startswith("overlap.")
    }
    rows = [
        {
            "device": trace["subject"],
            "kind": overlap["kind"],
            "copy_seconds": median(overlap["copy_seconds"]),
            "compute_seconds": median(overlap["compute_seconds"]),
            "both_seconds": median(overlap["both_seconds"]),
            "phi": shares.get((trace["subject"], f"overlap.{overlap['kind']}")),
        }
        for trace in kept["traces"]
        for overlap in trace["overlaps"]
        if overlap["kind"] in ("spin", "matmul", "prefetcher")
    ]
    if not rows:
        return None
    return {"age_seconds": context.age_of(kept), "verdict": kept["verdict"], "rows": rows}


def _of(part: dict[str, Any] | None, name: str) -> float | None:
    return None if part is None else part[name]
