"""How a host's plan is shown, to people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from hostprep.cli.options import size_in_bytes
from hostprep.cli.output import emit_text, error_fields, printable, say_error, say_problem, warn
from hostprep.cli.plans import tell_of_root

if TYPE_CHECKING:
    from hostprep.converging.model import HostPlan
    from hostprep.converging.plan import Options


def converging_options(*, prune: bool, reserve: str | None) -> Options:
    """Return the options in the form that the core takes; ``reserve`` is a size as written."""
    from hostprep.converging.plan import Options

    return Options(prune, None if reserve is None else size_in_bytes(reserve))


def host_plan_fields(plan: HostPlan) -> dict[str, Any]:
    """Return a host's plan for JSON."""
    from hostprep.converging.apply import refusal_of

    return {
        "spec": plan.spec_path,
        "changes": [asdict(change) for change in plan.changes],
        "unchanged": [asdict(each) for each in plan.unchanged],
        "warnings": list(plan.warnings),
        "refusals": [asdict(refusal) for refusal in plan.refusals],
        **({"error": error_fields(refusal_of(plan))} if plan.refusals else {}),
    }


def show_host_plan(plan: HostPlan) -> None:
    """Print a host's plan for people: results on stdout, warnings and refusals on stderr."""
    from hostprep.converging.model import Kind

    for warning in plan.warnings:
        warn(warning)
    for change in plan.changes:
        line = f"would: {change.kind} {change.subject}: {change.action} ({change.reason})"
        emit_text(printable(line))
    for each in plan.unchanged:
        emit_text(printable(f"unchanged: {each.kind} {each.subject}: {each.reason}"))
    for refusal in plan.refusals:
        say_problem(f"refused: {refusal.kind} {refusal.subject}", refusal.message, refusal.hint)
    if plan.refusals:
        emit_text(f"refused: {len(plan.refusals)}; apply changes nothing until that is fixed")
    elif plan.changes:
        emit_text(f"changes: {len(plan.changes)}")
        if any(change.kind is not Kind.DATASET for change in plan.changes):
            tell_of_root()
    elif plan.lacking:
        emit_text(f"nothing to do; not as the spec says, and left so: {lacking_objects(plan)}")
    else:
        emit_text("nothing to do")


def lacking_objects(plan: HostPlan) -> str:
    """Name the objects that do not match the spec and that the plan leaves as they are."""
    named = dict.fromkeys(f"{each.kind} {each.subject}" for each in plan.lacking)
    return printable(", ".join(named))


def refused_exit(plan: HostPlan, *, as_json: bool) -> typer.Exit:
    """Return the exit of a command whose plan is refused and has already been shown.

    With ``--json``, also say on stderr that it is refused.
    """
    from hostprep.converging.apply import refusal_of

    refusal = refusal_of(plan)
    if as_json:
        say_error(refusal)
    return typer.Exit(refusal.exit_code)
