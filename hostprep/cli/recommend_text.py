"""A recommendation for people: the verdict, the code to paste, the evidence, the warnings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hostprep.cli.output import drawable, printable
from hostprep.units import format_bytes, format_count, format_number

if TYPE_CHECKING:
    from hostprep.loading.files.model import Stage
    from hostprep.loading.measuring.variants import Lead
    from hostprep.loading.report import Report


def report_text(report: Report) -> str:
    """Return the whole report."""
    made = report.recommendation
    lines = [made.verdict]
    if made.code:
        lines += ["", f"    {made.code}", ""]
    lines += _expectation(report)
    if made.remedy:
        what_for = "to go faster" if report.undecoded is None else "to measure all of it"
        lines.append(f"{what_for}: {made.remedy}")
    lines += [f"why: {reason}" for reason in made.reasons]
    if report.gpu_rate is not None:
        lines.append(f"GPU: {format_number(report.gpu_rate)} samples/s ({report.gpu_rate_from})")
    lines += _stage_lines(report)
    lines += _point_lines(report)
    lines += _variant_lines(report)
    for hazard in report.hazards:
        lines += [f"beware: {hazard.message}", f"  -> {hazard.cure}"]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(printable(line) for line in lines)


def _expectation(report: Report) -> list[str]:
    made = report.recommendation
    if made.expected_samples_per_s is None:
        return []
    how = "measured" if made.confirmed else "by the model, not confirmed"
    at_best = [probe for probe in report.probes if probe.workers == made.num_workers]
    if made.confirmed and any(probe.disturbed for probe in at_best):
        how = "estimated from a measurement beside other programs"
    error = _give_or_take(made.relative_error)
    if made.relative_error is None:
        how += ", with an unknown error"
    each, of_all = (" per rank", " for all ranks") if report.host.ranks > 1 else ("", "")
    expected = f"expected: {format_number(made.expected_samples_per_s)} samples/s{each}"
    lines = [f"{expected}{error}, {how}"]
    point = next((p for p in report.points if p.workers == made.num_workers), None)
    if report.gpu_rate is not None and point is not None and point.rate > report.gpu_rate:
        lines = [
            f"{expected}, since the GPU takes no more;"
            f" the loader gives {format_number(point.rate)}{error}, {how}"
        ]
    if made.num_workers and made.memory_bytes is not None and made.shm_bytes is not None:
        lines.append(
            f"it takes {format_bytes(made.memory_bytes)} of memory{of_all},"
            f" {format_bytes(made.shm_bytes)} of it in /dev/shm"
        )
    return lines


def _give_or_take(relative_error: float | None) -> str:
    return "" if relative_error is None else f", {drawable('±', sys.stdout)}{relative_error:.0%}"


def _stage_lines(report: Report) -> list[str]:
    stages = report.stages
    if stages is None:
        return []

    def line(stage: Stage) -> str:
        rate = 1 / stage.seconds if stage.seconds else float("inf")
        told = format_number(rate)
        return f"  {stage.name:<12} {1e3 * stage.seconds:8.3f} ms   {told:>11} {unit}/s"

    unit = "samples" if report.undecoded is None else "files"
    files, made = format_count(stages.samples, f"{stages.kind} file"), list(stages.stages)
    if stages.kind == "bytes":  # nothing is decoded or resized then
        files = f"{format_count(stages.samples, 'file')}, read and not decoded"
        made = [stage for stage in made if stage.name not in ("decode", "resize")]
    with_decoder = f" by {stages.decoder}" if stages.decoder else ""
    return [
        f"stages, one core, {files}{with_decoder}, on {stages.storage} ({stages.storage_reason}):",
        *(line(stage) for stage in made if stage.seconds),
    ]


def _point_lines(report: Report) -> list[str]:
    if not report.points:
        return []
    rows = [("workers", "samples/s", "by the model", "")]
    for point in report.points:
        model = format_number(report.curve.rate(point.workers)) if report.curve else ""
        mark = "  <-" if point.workers == report.recommendation.num_workers else ""
        error = _give_or_take(point.relative_error).removeprefix(",")
        rate = f"{format_number(point.rate)}{error}"
        rows.append((f"{point.workers}", rate, model, mark))
    # Samples that need hardly any work have rates of any number of digits.
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "   ".join(f"{cell:>{width}}" for cell, width in zip(row[:3], widths, strict=True)) + row[3]
        for row in rows
    ]


def _variant_lines(report: Report) -> list[str]:
    if not report.variants:
        return []
    names = [f"  {variant.group} {variant.name}" for variant in report.variants]
    width = max(30, *map(len, names))
    lines = [f"{'side by side, samples/s':<{width}}   {'no workers':>10}   {'at the peak':>13}"]
    for name, variant in zip(names, report.variants, strict=True):
        if variant.peak_samples_per_s is None:
            lines.append(f"{name}: {variant.problem}")
            continue
        cells = [
            "-" if rate is None else format_number(rate)
            for rate in (variant.alone_samples_per_s, variant.peak_samples_per_s)
        ]
        failed = "" if variant.problem is None else f"  then: {variant.problem}"
        lines.append(f"{name:<{width}}   {cells[0]:>10}   {cells[1]:>13}{failed}")
    return [*lines, *(_lead_line(lead) for lead in report.leads)]


def _lead_line(lead: Lead) -> str:
    error = _give_or_take(lead.relative_error)
    if not lead.rivals:
        ahead = f"{lead.factor:.2f} times as fast as the next at the peak{error}"
        return f"  {lead.group}: {lead.name}, {ahead}"
    names = "; ".join((lead.name, *lead.rivals))
    return f"  {lead.group}: no clear winner ({lead.factor:.2f} times{error}): {names}"
