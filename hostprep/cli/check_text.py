"""The report of ``hostprep check`` as text: the findings, worst first, then the remedies."""

from __future__ import annotations

import os
import time
from typing import Any

from hostprep.cli.output import painted, printable
from hostprep.readiness.report import (
    code_and_subject,
    side_of_change,
    subject_and_message,
    tally,
    wanted,
)
from hostprep.units import format_seconds

_COLOURS = {"PASS": "32", "WARN": "33", "FAIL": "1;31", "UNKNOWN": "35", "SKIP": "2"}
_INDENT = " " * 4
_FOR_ROOT = (
    "# commands that change the host need a root shell (sudo -i); ulimit and taskset belong in the"
    " shell that starts the training"
)


def report_text(report: dict[str, Any], *, colours: bool) -> str:
    """Return the report; the verdict is its last line."""
    lines = []
    for status, said, (code, *others) in _findings(report["checks"]):
        likewise = f" Likewise {', '.join(others)}." if others else ""
        lines.append(f"{_painted(f'{status:<8}', status, colours)}{code}  {said}{likewise}")
    cured = [check for check in report["checks"] if check["status"] in ("FAIL", "UNKNOWN", "WARN")]
    if os.geteuid() != 0 and any((check["remedy"] or {}).get("commands") for check in cured):
        lines += ["", _FOR_ROOT]
    for check in cured:
        lines += ["", *_remedy(check)]
    if report["baseline"]:
        lines += ["", *_baseline(report["baseline"])]
    counts = tally(report["counts"])
    if report["verdict"] == "SKIP":
        counts = f"{counts}; nothing was checked, which is not a pass".removeprefix("; ")
    lines += [
        *([""] if cured or report["baseline"] else []),
        f"{_painted(report['verdict'], report['verdict'], colours)}: {counts};"
        f" took {format_seconds(report['seconds'])}",
    ]
    return "\n".join(lines)


def _findings(checks: list[dict[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """Return each line's status, sentence and codes; checks with the same SKIP share a line."""
    found: list[tuple[str, str, list[str]]] = []
    skips: dict[str, list[str]] = {}
    for check in checks:
        said = _one_line(subject_and_message(check))
        if check["status"] == "SKIP" and said in skips:
            skips[said].append(check["code"])
            continue
        codes = [check["code"]]
        if check["status"] == "SKIP":
            skips[said] = codes
        found.append((check["status"], said, codes))
    return found


def _remedy(check: dict[str, Any]) -> list[str]:
    """Return a finding's remedy as a block to paste into a shell; explanations are comments."""
    # The title states what should be true, and here it is not.
    failed = f'{check["status"]} of "{check["title"]}"'
    lines = [f"# {check['code']} {_one_line(check['subject'])}: {failed}"]
    if threshold := wanted(check):
        lines.append(f"# wanted: {_one_line(threshold)}")
    remedy = check["remedy"] or {"commands": [], "hint": None}
    if remedy["hint"]:
        lines.append(f"# {_one_line(remedy['hint'])}")
    return lines + [f"{_INDENT}{_one_line(command)}" for command in remedy["commands"]]


def _baseline(baseline: dict[str, Any]) -> list[str]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(baseline["unix_seconds"]))
    lines = [f"since the baseline of {when}:"]
    for name in ("worse", "better"):
        for change in baseline[name]:
            lines.append(
                f"{_INDENT}{name}: {_one_line(code_and_subject(change))}:"
                f" {_one_line(side_of_change(change['before']))}"
                f" -> {_one_line(side_of_change(change['now']))}"
            )
    if len(lines) == 1:
        lines.append(f"{_INDENT}nothing changed")
    for name, words in (("only_then", "not looked at now"), ("only_now", "not looked at then")):
        if baseline[name]:
            codes = sorted({each["code"] for each in baseline[name]})
            lines.append(f"{_INDENT}{words}: {_one_line(', '.join(codes))}")
    return lines


def _one_line(text: str) -> str:
    return printable(text.replace("\n", " "))


def _painted(text: str, status: str, colours: bool) -> str:
    return painted(text, _COLOURS[status], colours=colours)
