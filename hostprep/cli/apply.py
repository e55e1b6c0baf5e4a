"""``hostprep apply``: make this host match the spec, then check whether it does."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.host_plan import (
    converging_options,
    host_plan_fields,
    lacking_objects,
    refused_exit,
    show_host_plan,
)
from hostprep.cli.options import DryRunOption, JsonOption, PruneOption, ReserveOption, SpecArgument
from hostprep.cli.output import (
    emit_json,
    emit_text,
    error_fields,
    printable,
    say,
    say_error,
    say_problem,
)
from hostprep.errors import HostprepError, Interrupted, UsageError
from hostprep.units import format_count

if TYPE_CHECKING:
    from hostprep.converging.apply import Applied
    from hostprep.converging.model import HostPlan


def apply(
    spec: SpecArgument = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    prune: PruneOption = False,
    reserve: ReserveOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make this host match the spec, then look at it again.

    Shows the plan and asks for confirmation first, unless --yes is given. At the end, it says what
    is still to be done.
    """
    from hostprep.cli.progress import ProgressReporter
    from hostprep.cli.spec import wanted_spec
    from hostprep.converging.apply import apply_plan
    from hostprep.converging.plan import look_and_plan
    from hostprep.converging.sources import SilentOnes

    wanted, options = wanted_spec(spec), converging_options(prune=prune, reserve=reserve)
    silent = SilentOnes()  # it is looked twice: what does not answer is waited for once
    with ProgressReporter() as reporter:

        def look() -> HostPlan:
            return look_and_plan(wanted, options, reporter, silent)

        plan = look()
        if not as_json:
            show_host_plan(plan)
        if plan.refusals or dry_run or not plan.changes:
            if as_json:
                fields = {
                    **host_plan_fields(plan),
                    "dry_run": dry_run,
                    "changed": False,
                    "done": [],
                    "staged": [],
                    "failed": [],
                    "not_tried": [],
                    "pending": [asdict(change) for change in plan.changes],
                }
                emit_json("apply", fields, ok=not plan.refusals)
            if plan.refusals:
                raise refused_exit(plan, as_json=as_json)
            if plan.changes and not as_json:
                emit_text("dry run: nothing was changed")
            return
        if not yes and (as_json or not sys.stdin.isatty()):
            raise UsageError(
                "there is nobody to ask here; nothing was changed.",
                "--yes goes ahead without asking; --dry-run only shows the plan",
            )
        if not yes and not _is_agreed_to():
            raise HostprepError("the plan was declined; nothing was changed.")
        applied = apply_plan(plan, look, reporter)
    _conclude(applied, as_json=as_json)


def _is_agreed_to() -> bool:
    try:
        return typer.confirm("Do this?", err=True)
    except (typer.Abort, KeyboardInterrupt):  # Ctrl-D, Ctrl-C
        say()  # end the line of the question
        raise Interrupted("interrupted; nothing was changed.") from None


def _conclude(applied: Applied, *, as_json: bool) -> None:
    from hostprep.converging.volume_changes import came_true

    error = _error(applied)
    if as_json:
        fields = _fields(applied)
        if error is not None:
            fields["error"] = error_fields(error)
        emit_json("apply", fields, ok=applied.ok)
    else:
        for change in filter(None, map(came_true, applied.done)):
            emit_text(printable(f"done: {change.kind} {change.subject}: {change.action}"))
    for problem in (*applied.failed, *applied.refusals):
        say_problem(f"failed: {problem.kind} {problem.subject}", problem.message, problem.hint)
    for each in applied.not_tried:
        say(printable(f"not done: {each.kind} {each.subject}: {each.reason}"))
    for change in applied.after.changes:
        say(printable(f"pending: {change.kind} {change.subject}: {change.action}"))
    if error is not None:
        say_error(error)  # the document already contains it
        raise typer.Exit(error.exit_code)
    if not as_json:
        for each in applied.after.lacking:
            say(printable(f"left: {each.kind} {each.subject}: {each.reason}"))
        but = f", but for {lacking_objects(applied.after)}" if applied.after.lacking else ""
        emit_text(f"looked at again: the host is as the spec says{but}")


def _fields(applied: Applied) -> dict[str, Any]:
    fields = host_plan_fields(applied.plan)
    # Objects that the plan meant to change, but that still do not match the spec.
    left = [each for each in applied.after.lacking if each not in applied.plan.unchanged]
    return fields | {
        "unchanged": [*fields["unchanged"], *map(asdict, left)],
        "dry_run": False,
        "changed": bool(applied.done),
        "done": [asdict(change) for change in applied.done],
        "staged": [asdict(staged) for staged in applied.staged],
        "failed": [asdict(problem) for problem in applied.failed],
        "not_tried": [asdict(each) for each in applied.not_tried],
        "pending": [asdict(change) for change in applied.after.changes],
        "refusals": [asdict(refusal) for refusal in applied.refusals],
    }


def _error(applied: Applied) -> HostprepError | None:
    if applied.ok:
        return None
    pending = len({(change.kind, change.subject) for change in applied.after.changes})
    # Refusals that only came up during the run are listed with the failures.
    problems = (*applied.failed, *applied.refusals)
    failed = len({(problem.kind, problem.subject) for problem in problems})
    hint = "fix what failed and run the same command again"
    if not failed:
        hint = (
            "something else changed it meanwhile, such as another `hostprep apply` or a program"
            " that writes to a source: find and stop that, and run the same command again"
        )
    return HostprepError(
        f"the host is not as the spec says: {format_count(failed, 'object')} failed,"
        f" {pending} still to be done.",
        hint,
    )
