"""Whether a report from another host can be shown and used in calculations. Pure.

A malformed report from one host must not end the run over all of them. docs/check.schema.json
specifies the same for other programs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hostprep.kinds import (
    all_of,
    is_anything,
    is_count,
    is_flag,
    is_number,
    is_text,
    one_of,
    or_none,
    with_fields,
)
from hostprep.readiness.model import EXIT_CODES, Level, Severity, Status, verdict
from hostprep.readiness.report import CLASS_FIELDS, ORDER

_CODE = re.compile(r"HP[0-9]{3}", re.ASCII)
_END_OF_TIME = 1e11  # the latest time that can be shown as a date


def is_whole(report: Any) -> bool:
    """Return whether ``report`` has all fields of our own reports, well-formed and consistent."""
    return _REPORT(report) and _adds_up(report)


def is_code(value: Any) -> bool:
    """Return whether it is the code of a check; only those are printed unescaped."""
    return is_text(value) and _CODE.fullmatch(value) is not None


def _adds_up(report: Mapping[str, Any]) -> bool:
    """Return whether verdict, exit code and counts match the checks, so that none is hidden."""
    statuses = [Status(check["status"]) for check in report["checks"]]
    found = verdict(statuses)
    return (
        report["verdict"] == found
        and report["exit_code"] == EXIT_CODES[found]
        and all(report["counts"][name] == statuses.count(Status(name)) for name in ORDER)
    )


def is_moment(value: Any) -> bool:
    """Return whether it is a time in seconds since the epoch."""
    return is_number(value) and 0 <= value < _END_OF_TIME


def _is_value(value: Any) -> bool:
    return value is None or is_flag(value) or is_text(value) or is_number(value)


is_measured = with_fields(
    {
        "text": is_text,
        "value": _is_value,
        "unit": or_none(is_text),
        "better": one_of(None, "higher", "lower"),
    }
)
_CHECK = with_fields(
    {
        "code": is_code,
        "title": is_text,
        "status": one_of(*Status),
        "subject": is_text,
        "severity": one_of(*Severity),
        "message": is_text,
        "measured": or_none(is_measured),
        "threshold": or_none(is_text),
        "threshold_value": or_none(is_number),
        "threshold_from": or_none(is_text),
        "remedy": or_none(with_fields({"commands": all_of(is_text), "hint": or_none(is_text)})),
    }
)
_REPORT = with_fields(
    {
        "verdict": one_of(*Status),
        "exit_code": is_count,
        "host": is_text,
        "level": one_of(*Level),
        "spec": or_none(is_text),
        "unix_seconds": is_moment,
        "seconds": is_number,
        "version": is_text,
        "counts": with_fields(dict.fromkeys(ORDER, is_count)),
        "checks": all_of(_CHECK),
        "left_out": all_of(with_fields({"code": is_code, "reason": is_text})),
        "host_class": with_fields(dict.fromkeys(CLASS_FIELDS, is_anything)),
        "measurements": with_fields({}),
        "baseline": one_of(None),  # hosts are asked without one
    }
)
