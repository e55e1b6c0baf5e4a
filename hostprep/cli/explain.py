"""``hostprep explain``: what a check looks at, why it matters, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.completion import check_codes
from hostprep.cli.options import JsonOption
from hostprep.cli.output import emit_json, emit_text

if TYPE_CHECKING:
    from hostprep.readiness.model import Check

_SEVERITIES = {
    "critical": "a run would end, or train on other data than intended",
    "major": "a run's GPUs would wait for data",
    "minor": "a run may suffer later",
}


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            help="A check's code, such as HP001. If not given, all checks are listed.",
            autocompletion=check_codes,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain what a check looks at and why, or list all checks."""
    from hostprep.readiness.fleet import NO_REPORT
    from hostprep.readiness.registry import all_checks, find

    checks = all_checks()
    if code is None:
        shown = [_fields(check) for check in checks]
    elif code.upper() == NO_REPORT:
        shown = [_no_report()]
    else:
        shown = [_fields(find(checks, code))]
    if as_json:
        emit_json("explain", {"checks": shown})
    elif code is None:
        for check in checks:
            level = "" if check.level == "quick" else " (--full)"
            emit_text(f"{check.code}  {check.severity:<8}  {check.title}{level}")
    else:
        emit_text(_page(shown[0]))


def _page(check: dict[str, Any]) -> str:
    level = "-i INVENTORY" if check["level"] is None else f"--{check['level']}"
    return (
        f"# {check['code']}: {check['title']}\n\n"
        f"Runs with `{level}`; it can say {', '.join(check['verdicts'])}."
        f" Severity {check['severity']}: {_SEVERITIES[check['severity']]}.\n\n"
        f"{check['page'].rstrip()}"
    )


def _fields(check: Check[Any]) -> dict[str, Any]:
    from hostprep.readiness.model import Status

    return {
        "code": check.code,
        "title": check.title,
        "level": check.level.value,
        "severity": check.severity.value,
        "verdicts": [status.value for status in Status if status in check.verdicts],
        "page": check.page,
    }


def _no_report() -> dict[str, Any]:
    """Return the pseudo-check that a fleet's report has for a host that sent no report."""
    from hostprep.readiness.fleet import NO_REPORT, NO_REPORT_PAGE, NO_REPORT_TITLE

    return {
        "code": NO_REPORT,
        "title": NO_REPORT_TITLE,
        "level": None,
        "severity": "critical",
        "verdicts": ["UNKNOWN"],
        "page": NO_REPORT_PAGE,
    }
