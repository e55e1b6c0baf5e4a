"""``hostprep recommend``: the right ``num_workers``, measured, with what binds."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hostprep.cli.keeping import kept
from hostprep.cli.line import Line
from hostprep.cli.options import JsonOption
from hostprep.cli.output import (
    drawable,
    emit_json,
    emit_text,
    error_fields,
    printable,
    say,
    say_error,
)
from hostprep.errors import Inconclusive, UsageError
from hostprep.units import format_number

if TYPE_CHECKING:
    from hostprep.loading.files.model import Stage
    from hostprep.loading.report import Report


def recommend(
    dataset: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Measure the files below this directory."),
    ] = None,
    loader: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Measure this Dataset, DataLoader or iterable, or what this callable returns.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Samples in a batch; the loader's own, or 32."),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Training processes on this host; one for each GPU."),
    ] = None,
    gpu_rate: Annotated[
        float | None,
        typer.Option(metavar="SAMPLES_PER_S", help="What one GPU takes; more is not aimed at."),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option("--measure/--no-measure", help="Time real DataLoaders, or model alone."),
    ] = True,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Also time decoders, file formats and prefetching side by side."
        ),
    ] = False,
    image_size: Annotated[
        int,
        typer.Option(
            metavar="PIXELS", min=8, max=8192, help="Side to which --dataset resizes images."
        ),
    ] = 224,
    seconds: Annotated[
        float,
        typer.Option(metavar="N", min=5, max=3600, help="Time for measuring, --compare apart."),
    ] = 50,
    as_json: JsonOption = False,
) -> int:
    """Measure how many DataLoader workers to use, and what binds.

    Without --dataset and --loader it is a starting point, from the host alone. Exit status: 0
    answered, 4 inconclusive, as where nothing that decodes images is installed.
    """
    from hostprep.host.gpu_bounded import ask_nvml
    from hostprep.host.gpu_driver import read_driver
    from hostprep.loading.recommend import from_dataset, from_host, from_loader
    from hostprep.loading.report import Wish, report_fields
    from hostprep.loading.share import ranks_here, read_share, visible_gpus
    from hostprep.system.last_results import keep_last

    if dataset is not None and loader is not None:
        raise UsageError("--dataset and --loader are two ways to measure.", "leave one of them out")
    if loader is not None and not measure:
        raise UsageError(
            "--loader without measuring says nothing.", "leave out --loader, or --no-measure"
        )
    if compare and not measure:
        raise UsageError("--compare without measuring says nothing.", "leave one of them out")
    if compare and dataset is None and loader is None:
        raise UsageError(
            "--compare times a data set or a loader, and none is named.",
            "add --dataset DIR or --loader MODULE:NAME",
        )
    if not math.isfinite(seconds):
        raise UsageError(
            f"--seconds {seconds:g} is no time to measure for.", "give it seconds, such as 50"
        )
    if gpu_rate is not None and not 0 < gpu_rate < math.inf:
        raise UsageError(
            f"--gpu-rate {gpu_rate:g}: that is no rate of samples a second.",
            "give it a number above 0, such as 1800",
        )
    nvml = ask_nvml()
    count, count_from = (ranks, "--ranks") if ranks is not None else ranks_here(len(nvml.gpus))
    host = read_share(count, count_from)
    wish = Wish(batch_size, gpu_rate, seconds, image_size, measure, compare)
    with _Narrator(seconds, quiet=as_json) as narrator:
        if dataset is not None:
            report = from_dataset(dataset, host, wish, narrator)
        elif loader is not None:
            report = from_loader(loader, host, wish, narrator)
        else:
            report = from_host(host, wish, gpus=visible_gpus(len(nvml.gpus)))
    if nvml.problem is not None and read_driver().has_gpu:  # else there are none to be asked
        words = "GPUs that could not be asked are not counted; --ranks says how many train here"
        report = replace(report, notes=(*report.notes, f"{words} ({nvml.problem})"))
    fields = report_fields(report)
    if report.points:  # real DataLoaders, of samples as a training has them
        kept(lambda: keep_last("recommend", fields))
    error = _error(report)
    if not as_json:
        emit_text(report_text(report))
    elif error is None:
        emit_json("recommend", fields)
    else:
        say_error(error)
        emit_json("recommend", {"error": error_fields(error), **fields}, ok=False)
    return 0 if error is None else error.exit_code


def _error(report: Report) -> Inconclusive | None:
    """Return why a report is no answer, where samples are made of more than what was measured."""
    if report.undecoded is None:
        return None
    return Inconclusive(f"{report.recommendation.verdict}.", report.recommendation.remedy)


class _Narrator(Line):
    """Says on stderr what is being measured: on one line of a terminal, with how far it is.

    Elsewhere each measurement is a line; ``quiet`` leaves these out.
    """

    def __init__(self, seconds: float, *, quiet: bool) -> None:
        super().__init__()
        self._quiet = quiet
        self._seconds = seconds
        self._began = time.monotonic()
        self._message = ""

    def note(self, message: str) -> None:
        """Say what is measured from now on."""
        self._message = message
        if self.shown:
            self.going_on()
        elif not self._quiet:
            say(printable(message))

    def going_on(self) -> None:
        """Show how much of the time is over."""
        past = time.monotonic() - self._began
        of = f" of {self._seconds:.0f}" if past <= self._seconds else ""
        self.write(f"{past:.0f}{of} s  {self._message} ...")


def report_text(report: Report) -> str:
    """Return a report for people: the verdict, the code to paste, the evidence, what to beware."""
    made = report.recommendation
    lines = [made.verdict]
    if made.code:
        lines += ["", f"    {made.code}", ""]
    lines += _expectation(report)
    if made.remedy:
        what_for = "to go faster" if report.undecoded is None else "to measure the whole"
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
    from hostprep.units import format_bytes

    made = report.recommendation
    if made.expected_samples_per_s is None:
        return []
    how = "measured" if made.confirmed else "by the model, not confirmed"
    error = _give_or_take(made.relative_error)
    if made.relative_error is None:
        how += ", and nobody knows how far off that is"
    each, of_all = (" a rank", " for all ranks") if report.host.ranks > 1 else ("", "")
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
            f"it takes {format_bytes(made.memory_bytes)} of memory{of_all}, of which"
            f" {format_bytes(made.shm_bytes)} in /dev/shm"
        )
    return lines


def _plus_minus() -> str:
    return drawable("±", sys.stdout)


def _give_or_take(relative_error: float | None) -> str:
    return "" if relative_error is None else f", {_plus_minus()}{relative_error:.0%}"


def _stage_lines(report: Report) -> list[str]:
    stages = report.stages
    if stages is None:
        return []

    def line(stage: Stage) -> str:
        rate = 1 / stage.seconds if stage.seconds else float("inf")
        told = format_number(rate)
        return f"  {stage.name:<12} {1e3 * stage.seconds:8.3f} ms   {told:>11} samples/s"

    files, made = f"{stages.samples} {stages.kind} files", list(stages.stages)
    if stages.kind == "bytes":  # for those there is nothing else to do, and nothing to be told
        files = f"{stages.samples} files, read and not decoded"
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
    # Samples that are as good as ready come at rates of any length.
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
        if variant.problem is not None:
            lines.append(f"{name}: {variant.problem}")
            continue
        cells = [
            "-" if rate is None else format_number(rate)
            for rate in (variant.alone_samples_per_s, variant.peak_samples_per_s)
        ]
        lines.append(f"{name:<{width}}   {cells[0]:>10}   {cells[1]:>13}")
    lines += [
        f"  {winner.group}: {winner.name}, {winner.factor:.2f} times the next at the peak,"
        f" {_plus_minus()}{winner.relative_error:.0%}"
        for winner in report.winners
    ]
    return lines
