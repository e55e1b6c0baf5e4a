"""One self-contained HTML file, for a host, or for a fleet with a section for each host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hostprep.readiness.fleet import gpu_words
from hostprep.readiness.formats.plots import plots
from hostprep.readiness.report import ORDER, moment, subject_and_message, tally
from hostprep.system.resources import data_path


def html(reports: Sequence[dict[str, Any]], fleet: dict[str, Any] | None) -> str:
    """Return the page. It has no script, and its policy forbids it to load anything.

    ``fleet`` is the summary of several hosts (``hostprep.readiness.fleet``), which comes first.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    template = data_path("templates", "report.html.j2")
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "gpus": gpu_words,
        "moment": moment,
        "sentence": subject_and_message,
        "tally": tally,
    }
    return environment.get_template(template.name).render(
        reports=reports, fleet=fleet, order=ORDER, plots=plots
    )
