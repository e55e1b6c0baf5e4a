"""``hostprep verify``: does the GPU compute while the next batch is copied, intact?"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from hostprep.cli.keeping import kept
from hostprep.cli.line import Line
from hostprep.cli.options import JsonOption
from hostprep.cli.output import (
    emit_json,
    emit_text,
    error_fields,
    painted,
    printable,
    say_error,
    wants_colour,
)
from hostprep.errors import HostprepError
from hostprep.units import format_seconds

if TYPE_CHECKING:
    from hostprep.cuda.results import Check
    from hostprep.cuda.session import Report

_COLOURS = {"PASS": "32", "WARN": "33", "INCONCLUSIVE": "33", "SKIP": "33"}


def verify(
    device: Annotated[
        str | None,
        typer.Option(metavar="cuda:N", help="Test only this device. If not given: each in turn."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Take under 20 seconds per device instead of two minutes."),
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Feed the end-to-end pass from this directory; from RAM if not given.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Test on the GPU that prefetching overlaps and loses no data.

    Changes nothing; sample files are removed again. Exit status: 0 for PASS, 3 for FAIL, 4 for SKIP
    (no GPU, no torch, or torch without CUDA: nothing was tested) or INCONCLUSIVE, 1 for ERROR.
    """
    from hostprep.cuda import session
    from hostprep.cuda.results import EXIT_CODES
    from hostprep.system.last_results import keep_last

    index = None if device is None else session.parse_device(device)
    with _Progress() as observer:
        report = session.verify(device=index, quick=quick, folder=data, observer=observer)
    fields = session.report_fields(report)
    if report.traces:
        kept(lambda: keep_last("verify", fields))
    if as_json:
        error = _error(report)
        if error is None:
            emit_json("verify", fields)
        else:
            say_error(error)
            emit_json("verify", {"error": error_fields(error), **fields}, ok=False)
    else:
        emit_text(_render(report))
    return EXIT_CODES[report.verdict]


def _error(report: Report) -> HostprepError | None:
    """Return the error if the measurement itself is broken and its report means nothing."""
    if report.verdict.value != "ERROR":
        return None
    first = next(check for check in report.checks if check.status is report.verdict)
    message = f"the test itself is broken ({first.name} of {first.subject}): {first.message}"
    return HostprepError(message.rstrip(".") + ".", first.remedy)


def _render(report: Report) -> str:
    """Return the report for people: a line per check, what to do below it, the verdict last."""
    colours = wants_colour(sys.stdout)
    lines: list[str] = []
    subject = None
    for check in report.checks:
        if check.subject != subject:
            subject = check.subject
            lines.append(subject)
        lines += _lines(check, colours)
    lines += [
        f"{trace.subject}: {printable(trace.origin)}{' (--quick)' if trace.quick else ''}"
        for trace in report.traces
    ]
    counts = Counter(check.status for check in report.checks)
    tally = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    verdict = report.verdict.value
    if verdict == "SKIP":
        tally += "; nothing was tested, which is not a pass"
    lines.append(
        f"{_in_colour(verdict, verdict, colours)}: {tally}; took {format_seconds(report.seconds)}"
    )
    return "\n".join(lines)


def _lines(check: Check, colours: bool) -> list[str]:
    name = f"{check.status.value:<12}"
    lines = [
        f"  {_in_colour(name, check.status, colours)} {printable(check.name)}: "
        f"{printable(check.message)}"
    ]
    if check.status.value == "PASS":
        return lines
    if check.threshold is not None:
        lines.append(f"{'':15}wanted: {check.threshold.text} ({check.threshold.source})")
    if check.remedy is not None:
        lines.append(f"{'':15}-> {printable(check.remedy)}")
    return lines


def _in_colour(text: str, status: str, colours: bool) -> str:
    return painted(text, _COLOURS.get(status, "31"), colours=colours)


class _Progress(Line):
    """An observer that shows the current stage on one line of a terminal; silent elsewhere."""

    def stage(self, subject: str, name: str) -> None:
        """Show the stage."""
        self.write(f"{subject}: {name} ...")
