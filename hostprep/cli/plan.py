"""``hostprep plan``: what applying the spec would change on this host, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from hostprep.cli.host_plan import (
    converging_options,
    host_plan_fields,
    refused_exit,
    show_host_plan,
)
from hostprep.cli.options import JsonOption, PruneOption, ReserveOption, SpecArgument
from hostprep.cli.output import emit_json
from hostprep.errors import Inconclusive


def plan(
    spec: SpecArgument = None,
    prune: PruneOption = False,
    reserve: ReserveOption = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with status 4 if changes are pending.")
    ] = False,
    as_json: JsonOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="No effect: plan changes nothing.", hidden=True)
    ] = False,
) -> None:
    """Show what applying the spec would change here, and why.

    Changes nothing.
    """
    from hostprep.cli.progress import ProgressReporter
    from hostprep.cli.spec import wanted_spec
    from hostprep.converging.plan import look_and_plan

    wanted, options = wanted_spec(spec), converging_options(prune=prune, reserve=reserve)
    with ProgressReporter() as reporter:
        found = look_and_plan(wanted, options, reporter)
    if as_json:
        emit_json("plan", host_plan_fields(found), ok=not found.refusals)
    else:
        show_host_plan(found)
    if found.refusals:
        raise refused_exit(found, as_json=as_json)
    if exit_code and found.changes:
        raise typer.Exit(Inconclusive.exit_code)
