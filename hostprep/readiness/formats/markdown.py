"""Markdown, for a ticket or a job summary."""

from __future__ import annotations

import re
from typing import Any

from hostprep.readiness.report import (
    code_and_subject,
    moment,
    side_of_change,
    subject_and_message,
    tally,
    wanted,
)

# CommonMark's code span begins and ends with the same number of backticks; a single one is text.
_CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")


def markdown(report: dict[str, Any]) -> str:
    """Return the report as GitHub-flavoured Markdown: a table, worst first, then the remedies."""
    when = moment(report["unix_seconds"])
    lines = [
        f"# {_text(report['host'])}: {report['verdict']}",
        "",
        f"{tally(report['counts'])}. `hostprep check --{report['level']}`, {when}.",
        "",
        "| | check | finding | wanted |",
        "|---|---|---|---|",
    ]
    for check in report["checks"]:
        cells = (
            f"**{check['status']}**"
            if check["status"] not in ("PASS", "SKIP")
            else check["status"],
            _text(check["code"], cell=True),
            _text(subject_and_message(check), cell=True),
            _text(wanted(check), cell=True),
        )
        lines.append("| " + " | ".join(cells) + " |")
    for check in report["checks"]:
        if check["remedy"] and check["status"] not in ("PASS", "SKIP"):
            lines += _remedy(check)
    if report["baseline"]:
        lines += _baseline(report["baseline"])
    return "\n".join(lines) + "\n"


def _remedy(check: dict[str, Any]) -> list[str]:
    lines = ["", f"### {_text(check['code'])} {_text(check['subject'])}", ""]
    commands = check["remedy"]["commands"]
    if commands:
        # One backtick more than the longest run in it, or a command could end its own block.
        longest = max(map(len, re.findall(r"`+", "\n".join(commands))), default=0)
        fence = "`" * max(3, longest + 1)
        lines += [f"{fence}sh", *commands, fence]
    if check["remedy"]["hint"]:
        lines += [""] * bool(commands) + [_text(check["remedy"]["hint"])]
    return lines


def _baseline(baseline: dict[str, Any]) -> list[str]:
    lines = ["", "## Since the baseline", ""]
    for name in ("worse", "better"):
        lines += [
            f"- {name}: {_text(code_and_subject(change))}:"
            f" {_text(side_of_change(change['before']))} → {_text(side_of_change(change['now']))}"
            for change in baseline[name]
        ]
    return lines if lines[-1] else [*lines, "nothing changed"]


def _text(text: str, *, cell: bool = False) -> str:
    """Escape ``text`` for Markdown, because file names may contain anything.

    Backticks stay, because messages mark commands with them. Inside such a code span escapes would
    be visible, except for the bar: it would end a ``cell`` of a table even there, and the table
    removes its backslash.
    """
    flat = " ".join(str(text).split())
    escaped, end = "", 0
    for span in _CODE.finditer(flat):
        code = re.sub(r"(\\*)\|", r"\1\1\\|", span[0]) if cell else span[0]
        escaped += _escaped(flat[end : span.start()]) + code
        end = span.end()
    return escaped + _escaped(flat[end:])


def _escaped(text: str) -> str:
    return re.sub(r"([\\|*_<>\[\]#&])", r"\\\1", text)
