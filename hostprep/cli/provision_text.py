"""How a run over many hosts is shown: each change, then a table, then the totals."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hostprep.cli.output import emit_text, error_fields, printable
from hostprep.errors import HostprepError
from hostprep.fleet.model import FleetRun, HostOutcome
from hostprep.fleet.results import (
    Staged,
    changes_of,
    left_on,
    prunable_on,
    staged_by,
    total_rate,
    warnings_of,
)
from hostprep.units import format_bytes, format_count, format_rate, format_seconds

_HEADINGS = ("host", "changed", "failed", "staged")


def show_run(run: FleetRun, *, check: bool, diff: bool) -> None:
    """Print a finished run."""
    for hosts, lines in _alike(run, check=check, diff=diff):
        emit_text(f"{printable(', '.join(hosts))}:")
        for line in lines:
            emit_text(printable(f"  {line}"))
        emit_text("")
    rows = [_HEADINGS, *(tuple(map(printable, _row(outcome))) for outcome in run.hosts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        emit_text("  ".join(cells).rstrip())
    emit_text("")
    emit_text(_totals(run, check=check))


def run_fields(run: FleetRun, *, check: bool, error: HostprepError | None) -> dict[str, Any]:
    """Return a run for JSON."""
    rate = total_rate(run)
    totals = {
        "hosts": len(run.hosts),
        "changed": sum(outcome.changed for outcome in run.hosts),
        "failed": len(run.failed),
        "seconds": round(run.seconds, 3),
        "copied_bytes": 0 if rate is None else rate.copied_bytes,
        "staging_seconds": None if rate is None else round(rate.seconds, 3),
        "bytes_per_s": None if rate is None else rate.bytes_per_s,
    }
    return {
        "check": check,
        "hosts": [_host_fields(outcome) for outcome in run.hosts],
        "totals": totals,
        **({} if error is None else {"error": error_fields(error)}),
    }


def _host_fields(outcome: HostOutcome) -> dict[str, Any]:
    return {
        "host": outcome.host,
        "changed": outcome.changed,
        "failed": outcome.failed,
        "unreachable": outcome.unreachable,
        "predicted": outcome.predicted,
        "message": outcome.message,
        "changes": [asdict(change) for change in changes_of(outcome)],
        "left": [asdict(left) for left in left_on(outcome)],
        "prunable": [asdict(left) for left in prunable_on(outcome)],
        "warnings": list(warnings_of(outcome)),
        "staged": [asdict(staged) for staged in staged_by(outcome)],
        "started_at": outcome.started_at,
        "ended_at": outcome.ended_at,
        "diffs": list(outcome.diffs),
    }


def _alike(run: FleetRun, *, check: bool, diff: bool) -> list[tuple[list[str], tuple[str, ...]]]:
    """Group the hosts that have the same lines to show; hosts that have none are left out.

    In a lab most hosts are alike, and nobody reads the same lines fifty times.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for outcome in run.hosts:
        if lines := tuple(_details(outcome, check=check, diff=diff)):
            found.setdefault(lines, []).append(outcome.host)
    return [(hosts, lines) for lines, hosts in found.items()]


def _details(outcome: HostOutcome, *, check: bool, diff: bool) -> list[str]:
    verb = "would" if check else "done"
    lines = [f"warning: {warning}" for warning in warnings_of(outcome)]
    for change in changes_of(outcome):
        words = change.subject
        if change.action is not None:
            words += f": {change.action} ({change.reason})"
        lines.append(f"{verb}: {words}")
    lines += [f"left: {each.subject}: {each.reason}" for each in left_on(outcome)]
    # Memory that a data set takes which nobody wants any more would go unnoticed on many hosts.
    lines += [f"stays: {each.subject}: {each.reason}" for each in prunable_on(outcome)]
    if outcome.message:
        label = "failed" if outcome.failed else "not known"
        lines += [f"{label}: {line}" for line in outcome.message.splitlines() if line.strip()]
    if diff:
        lines += [line for text in outcome.diffs for line in text.rstrip("\n").split("\n")]
    return lines


def _row(outcome: HostOutcome) -> tuple[str, str, str, str]:
    changed = str(len(changes_of(outcome))) if outcome.changed else "nothing"
    failed = "unreachable" if outcome.unreachable else "yes" if outcome.failed else "no"
    staged = [
        f"{each.dataset}: {format_rate(each.copied_bytes / each.seconds)}{_bound(each)}"
        for each in staged_by(outcome)
        if each.copied_bytes and each.seconds > 0
    ]
    if not outcome.predicted:
        changed += " or more"
    return outcome.host, changed, failed, "; ".join(staged) or "-"


def _bound(staged: Staged) -> str:
    if staged.bound_by is None:
        return ""
    words = {"storage": "the source or the target", "other programs": "other programs"}
    return f", bound by {words.get(staged.bound_by, f'the {staged.bound_by}')}"


def _totals(run: FleetRun, *, check: bool) -> str:
    changed = sum(outcome.changed for outcome in run.hosts)
    left = sum(bool(left_on(outcome)) for outcome in run.hosts)
    words = (
        f"{format_count(len(run.hosts), 'host')}:"
        f" {format_count(changed)} {'would change' if check else 'changed'},"
        f" {format_count(len(run.failed))} failed,"
        f"{f' {format_count(left)} not all as the spec says,' if left else ''}"
        f" in {format_seconds(run.seconds)}"
    )
    rate = total_rate(run)
    if rate is not None:
        words += (
            f"; staged {format_bytes(rate.copied_bytes)} in {format_seconds(rate.seconds)},"
            f" {format_rate(rate.bytes_per_s)} in all"
        )
    return words
