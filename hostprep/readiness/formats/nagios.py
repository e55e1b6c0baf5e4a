"""The one line that Nagios and similar tools read, with performance data.

The words are those of the Monitoring Plugins guidelines. The exit code stays hostprep's own;
docs/check.md has a wrapper that translates it.
"""

from __future__ import annotations

import re
from typing import Any

from hostprep.readiness.report import subject_and_message, tally

_WORDS = {
    "PASS": "OK",
    "WARN": "WARNING",
    "FAIL": "CRITICAL",
    "UNKNOWN": "UNKNOWN",
    "SKIP": "UNKNOWN",
}
_UNITS = {"bytes": "B", "seconds": "s", "percent": "%"}
_NAMED_AT_MOST = 3


def nagios(report: dict[str, Any]) -> str:
    """Return ``HOSTPREP CRITICAL - 1 FAIL, 9 PASS; HP001 ... | 'HP020 /dev/shm'=67108864B;...``."""
    bad = [check for check in report["checks"] if check["status"] not in ("PASS", "SKIP")]
    said = [
        f"{check['code']} {subject_and_message(check).removesuffix('.')}"
        for check in bad[:_NAMED_AT_MOST]
    ]
    if len(bad) > _NAMED_AT_MOST:
        said.append(f"and {len(bad) - _NAMED_AT_MOST} more")
    words = _line("; ".join([tally(report["counts"]) or "nothing was checked", *said]))
    line = f"HOSTPREP {_WORDS[report['verdict']]} - {words}"
    figures = [figure for check in report["checks"] if (figure := _figure(check))]
    return line + (" | " + " ".join(figures) if figures else "") + "\n"


def _figure(check: dict[str, Any]) -> str | None:
    """Return ``'label'=value[unit];[warn];[crit]``; a range that ends at infinity warns below."""
    measured = check["measured"]
    if not measured or isinstance(measured["value"], bool):
        return None
    if not isinstance(measured["value"], int | float):
        return None
    label = _line(f"{check['code']} {check['subject']}").replace("'", "").replace("=", "_")
    limit = ""
    if check["threshold_value"] is not None and measured["better"]:
        value = _plain(check["threshold_value"])
        limit = f";{value}:" if measured["better"] == "higher" else f";{value}"
    return f"'{label}'={_plain(measured['value'])}{_UNITS.get(measured['unit'] or '', '')}{limit}"


def _plain(value: float) -> str:
    """Return a number without an exponent, which the guidelines do not allow."""
    return str(value) if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")


def _line(text: str) -> str:
    """Return ``text`` as one line, without the bar, which would begin the performance data."""
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", text.replace("|", "/")).strip()
