"""``hostprep restage``: what the service of a data set with ``at_boot: true`` runs."""

from __future__ import annotations

from typing import Annotated

import typer

from hostprep.cli.output import emit_text, printable
from hostprep.units import format_seconds


def restage(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set with `at_boot: true`.")],
) -> None:
    """Stage a data set again as `hostprep apply` recorded it; mount and ask nothing."""
    from hostprep.cli.progress import ProgressReporter
    from hostprep.converging.restage import restage as carry_out

    with ProgressReporter() as reporter:
        done = carry_out(name, reporter)
    result = done.result
    how = "was there already" if not result.changed else f"in {format_seconds(result.seconds)}"
    emit_text(printable(f"{result.dataset} is ready at {result.target} ({how}): {done.summary}"))
