"""``hostprep recommend``: measures the right ``num_workers`` and names the bottleneck."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hostprep.cli.keeping import kept
from hostprep.cli.line import Line
from hostprep.cli.options import JsonOption
from hostprep.cli.output import emit_json, emit_text, error_fields, printable, say, say_error
from hostprep.errors import Inconclusive, UsageError

if TYPE_CHECKING:
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
        typer.Option(
            metavar="N", min=1, help="Samples per batch. If not given: the loader's own, or 32."
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Training processes on this host. If not given: one per GPU."
        ),
    ] = None,
    gpu_rate: Annotated[
        float | None,
        typer.Option(
            metavar="SAMPLES_PER_S", help="Rate of one GPU; the recommendation aims no higher."
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure/--no-measure", help="Time real DataLoaders, or only use the model."
        ),
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
            metavar="PIXELS", min=8, max=8192, help="Side length to which --dataset resizes images."
        ),
    ] = 224,
    seconds: Annotated[
        float,
        typer.Option(
            metavar="N", min=5, max=3600, help="Time for measuring, not counting --compare."
        ),
    ] = 50,
    as_json: JsonOption = False,
) -> int:
    """Measure how many DataLoader workers to use; name the bottleneck.

    Without --dataset and --loader, the answer is a starting point that is based on the host alone.
    Exit status: 0 if answered, 4 if inconclusive, for instance because nothing that decodes images
    is installed.
    """
    from hostprep.cli.recommend_text import report_text
    from hostprep.host.gpu_bounded import ask_nvml
    from hostprep.host.gpu_driver import read_driver
    from hostprep.loading.recommend import from_dataset, from_host, from_loader
    from hostprep.loading.report import Wish, report_fields
    from hostprep.loading.share import ranks_here, read_share, visible_gpus
    from hostprep.system.last_results import keep_last

    _check_options(dataset, loader, gpu_rate, seconds, measure=measure, compare=compare)
    nvml = ask_nvml()
    count, count_from = (ranks, "--ranks") if ranks is not None else ranks_here(len(nvml.gpus))
    gpus = visible_gpus(len(nvml.gpus))
    host = replace(read_share(count, count_from), gpus=gpus)
    wish = Wish(batch_size, gpu_rate, seconds, image_size, measure, compare)
    with _Narrator(seconds, quiet=as_json) as narrator:
        if dataset is not None:
            report = from_dataset(dataset, host, wish, narrator)
        elif loader is not None:
            report = from_loader(loader, host, wish, narrator)
        else:
            report = from_host(host, wish, gpus=gpus)
    if nvml.problem is not None and read_driver().has_gpu:  # otherwise there are no GPUs to ask
        words = "GPUs that could not be asked are not counted; --ranks says how many train here"
        report = replace(report, notes=(*report.notes, f"{words} ({nvml.problem})"))
    fields = report_fields(report)
    if report.points:  # measured with real DataLoaders and samples as a training uses them
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


def _check_options(
    dataset: str | None,
    loader: str | None,
    gpu_rate: float | None,
    seconds: float,
    *,
    measure: bool,
    compare: bool,
) -> None:
    """Raise ``UsageError`` for numbers that are none, and for options that exclude each other."""
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
            f"--seconds {seconds:g} is not a number of seconds.", "give it seconds, such as 50"
        )
    if gpu_rate is not None and not 0 < gpu_rate < math.inf:
        raise UsageError(
            f"--gpu-rate {gpu_rate:g}: that is not a rate of samples a second.",
            "give it a number above 0, such as 1800",
        )


def _error(report: Report) -> Inconclusive | None:
    """Return why a report is no answer: only part of making a sample could be measured."""
    if report.undecoded is None:
        return None
    return Inconclusive(f"{report.recommendation.verdict}.", report.recommendation.remedy)


class _Narrator(Line):
    """Says on stderr what is being measured, on a terminal in one line with the time it takes.

    Elsewhere each measurement gets a line of its own, or none with ``quiet``.
    """

    def __init__(self, seconds: float, *, quiet: bool) -> None:
        super().__init__()
        self._quiet = quiet
        self._seconds = seconds
        self._began = time.monotonic()
        self._message = ""

    def note(self, message: str) -> None:
        """Name the measurement that begins."""
        self._message = message
        if self.shown:
            self.going_on()
        elif not self._quiet:
            say(printable(message))

    def going_on(self) -> None:
        """Show how much of the time has passed."""
        past = time.monotonic() - self._began
        of = f" of {self._seconds:.0f}" if past <= self._seconds else ""
        self.write(f"{past:.0f}{of} s  {self._message} ...")
