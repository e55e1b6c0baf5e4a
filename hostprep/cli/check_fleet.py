"""``hostprep check -i INVENTORY``: the reports of many hosts, collected by Ansible."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hostprep.cli.fleet_progress import FleetProgress
from hostprep.cli.output import printable, warn
from hostprep.units import format_count, format_seconds

if TYPE_CHECKING:
    from hostprep.fleet import HostOutcome
    from hostprep.readiness.fleet import HostReport

# A check takes seconds (with --full, minutes): a host that is named after this time is slow.
_PATIENCE_SECONDS = 60.0
_NAMED = ("FAIL", "UNKNOWN", "WARN")
_MOST_NAMED = 3


def check_fleet(
    inventories: list[str], arguments: list[str], limit: list[str] | None = None
) -> dict[str, Any]:
    """Run `hostprep check` with ``arguments`` on all hosts, or those of ``limit``.

    Returns the fleet's document.
    """
    from hostprep.fleet import run_playbook
    from hostprep.fleet.inventory import limits, only_one
    from hostprep.readiness.fleet import fleet_document

    began = time.time()
    run = run_playbook(
        "readiness",
        only_one(inventories),
        {"hostprep_check_arguments": arguments},
        limit=limits(limit),
        observer=FleetProgress(_PATIENCE_SECONDS),
    )
    for warning in run.warnings:
        warn(warning)
    reports = [_report(outcome) for outcome in run.hosts]
    return fleet_document(reports, unix_seconds=began, seconds=run.seconds)


def fleet_text(fleet: dict[str, Any]) -> str:
    """Return the fleet's report as text: hosts by verdict, problems and their hosts, outliers."""
    from hostprep.readiness.fleet import gpu_words
    from hostprep.readiness.report import code_and_subject, tally

    lines = [
        f"{host['verdict']:<8}{host['host']}: "
        + "; ".join(filter(None, (tally(host["counts"]), gpu_words(host))))
        for host in fleet["hosts"]
    ]
    lines += _findings(fleet["hosts"])
    if fleet["outliers"]:
        lines += ["", "unlike the others:"]
    for outlier in fleet["outliers"]:
        what = code_and_subject(outlier)
        lines.append(f"    {outlier['host']}: {what}: {outlier['text']}; {outlier['fleet_text']}")
    counts = ", ".join(f"{count} {name}" for name, count in fleet["counts"].items() if count)
    lines += [
        "",
        f"{fleet['verdict']}: {format_count(len(fleet['hosts']), 'host')}, {counts};"
        f" took {format_seconds(fleet['seconds'])}",
    ]
    return "\n".join(printable(line.replace("\n", " ")) for line in lines)


def _findings(hosts: list[dict[str, Any]]) -> list[str]:
    """Return the problems, worst first, each once with all the hosts that have it."""
    from hostprep.readiness.report import subject_and_message

    found: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for host in hosts:
        for check in host["report"]["checks"]:
            if check["status"] in _NAMED:
                words = subject_and_message(check)
                key = (check["status"], check["code"], words, _cure(check["remedy"]))
                found.setdefault(key, []).append(host["host"])
    lines: list[str] = []
    for key in sorted(found, key=lambda key: _NAMED.index(key[0])):
        status, code, words, remedy = key
        names = found[key]
        everywhere = len(names) == len(hosts) and len(names) > _MOST_NAMED
        where = f"all {len(names)} hosts" if everywhere else ", ".join(sorted(names))
        lines += ["", f"{status:<8}{code}  {words}", f"{'':8}on {where}"]
        lines += [f"{'':8}{'  ' if number else '->'} {line}" for number, line in enumerate(remedy)]
    return lines


def _cure(remedy: dict[str, Any] | None) -> tuple[str, ...]:
    """Return all commands of a remedy, or its description if it has no commands.

    The first command alone could do harm: it may remove what the later ones bring back.
    """
    if remedy is None:
        return ()
    return tuple(remedy["commands"]) or tuple(filter(None, [remedy["hint"]]))


def _report(outcome: HostOutcome) -> HostReport:
    from hostprep.readiness.fleet import HostReport

    report = outcome.documents[-1] if outcome.documents else None
    error = None if report is None else report.get("error")
    if isinstance(error, dict):  # the host's own hostprep reported it, and knows the remedy
        said = " -> ".join(str(error[name]) for name in ("message", "hint") if error.get(name))
        return HostReport(outcome.host, None, said or None)
    return HostReport(outcome.host, report, outcome.message)
