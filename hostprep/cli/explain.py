"""``hostprep explain``: what a check looks at, why it matters, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.options import JsonOption
from hostprep.cli.output import emit_json, emit_text

if TYPE_CHECKING:
    from hostprep.readiness.model import Check


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]", help="A check's code, such as HP001. If not given, all are listed."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what a check looks at, and why; or list all checks."""
    from hostprep.readiness.registry import all_checks, find

    checks = all_checks()
    shown = checks if code is None else (find(checks, code.upper()),)
    if as_json:
        emit_json("explain", {"checks": [_fields(check) for check in shown]})
    elif code is None:
        for check in checks:
            level = "" if check.level == "quick" else " (--full)"
            emit_text(f"{check.code}  {check.severity:<8}  {check.title}{level}")
    else:
        emit_text(_page(shown[0]))


def _page(check: Check[Any]) -> str:
    verdicts = ", ".join(_verdicts(check))
    return (
        f"# {check.code}: {check.title}\n\n"
        f"Runs with `--{check.level}`; severity {check.severity}; it can say {verdicts}.\n\n"
        f"{check.page.rstrip()}"
    )


def _verdicts(check: Check[Any]) -> list[str]:
    return [status.value for status in type(next(iter(check.verdicts))) if status in check.verdicts]


def _fields(check: Check[Any]) -> dict[str, Any]:
    return {
        "code": check.code,
        "title": check.title,
        "level": check.level.value,
        "severity": check.severity.value,
        "verdicts": _verdicts(check),
        "page": check.page,
    }
