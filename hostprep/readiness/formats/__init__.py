"""Formats of a report: each takes the document as plain data and returns text."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from hostprep.errors import one_line


class Format(StrEnum):
    """How a report is written. JSON is the contract; TEXT is made by the command line."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    MARKDOWN = "markdown"
    NAGIOS = "nagios"
    JUNIT = "junit"
    PROMETHEUS = "prometheus"


def render(form: Format, report: dict[str, Any]) -> str:
    """Return a host's report, or a fleet's document, in a format for a file.

    That excludes text for a terminal and JSON. Nagios is for one host only.
    """
    fleet = report if "hosts" in report else None
    reports = [report] if fleet is None else [host["report"] for host in fleet["hosts"]]
    return printed(_rendered(form, reports, fleet))


def printed(text: str) -> str:
    """Return ``text`` in a form that a file can hold and a terminal can show.

    Names come from strangers: bytes that are not UTF-8 appear as ``\\udcXX``; control characters
    and those that change the direction of text are escaped too.
    """
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else one_line(line) for line in lines)


def _rendered(form: Format, reports: list[dict[str, Any]], fleet: dict[str, Any] | None) -> str:
    match form:
        case Format.HTML:
            from hostprep.readiness.formats.html import html

            return html(reports, fleet)
        case Format.MARKDOWN:
            from hostprep.readiness.formats.markdown import markdown

            return "\n".join(map(markdown, reports))
        case Format.NAGIOS if fleet is None:
            from hostprep.readiness.formats.nagios import nagios

            return nagios(reports[0])
        case Format.JUNIT:
            from hostprep.readiness.formats.junit import junit

            return junit(reports)
        case Format.PROMETHEUS:
            from hostprep.readiness.formats.prometheus import prometheus

            return prometheus(reports)
    raise ValueError(form)
