"""Views of a report's document: each takes it as plain data and returns a text."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from hostprep.errors import one_line


class Format(StrEnum):
    """How a report is written. JSON is the contract, and text belongs to the command line."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    MARKDOWN = "markdown"
    NAGIOS = "nagios"
    JUNIT = "junit"
    PROMETHEUS = "prometheus"


def render(form: Format, report: dict[str, Any]) -> str:
    """Return the report in a format that is a file, not text for a terminal or JSON."""
    return printed(_render(form, report))


def printed(text: str) -> str:
    """Return ``text`` as a file can hold it and a terminal show it.

    Names come from strangers: bytes that are no UTF-8 appear as ``\\udcXX``, control characters and
    what turns the direction of a line as escapes too.
    """
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else one_line(line) for line in lines)


def _render(form: Format, report: dict[str, Any]) -> str:
    match form:
        case Format.HTML:
            from hostprep.readiness.formats.html import html

            return html([report])
        case Format.MARKDOWN:
            from hostprep.readiness.formats.markdown import markdown

            return markdown(report)
        case Format.NAGIOS:
            from hostprep.readiness.formats.nagios import nagios

            return nagios(report)
        case Format.JUNIT:
            from hostprep.readiness.formats.junit import junit

            return junit([report])
        case Format.PROMETHEUS:
            from hostprep.readiness.formats.prometheus import prometheus

            return prometheus([report])
    raise ValueError(form)
