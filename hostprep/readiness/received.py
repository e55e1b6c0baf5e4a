"""Whether a report that came from another host can be shown and reckoned with. Pure.

Its hostprep may be of another version, or the host in somebody else's hands: what one says must not
end the run of all. docs/check.schema.json has the same for others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hostprep.readiness.model import Level, Severity, Status
from hostprep.readiness.report import CLASS_FIELDS, ORDER

# What can be shown as a date, and what a float can hold; more in a report is damage.
_END_OF_TIME = 1e11
_GREATEST = 2**64

Kind = Callable[[Any], bool]


def is_whole(report: Any) -> bool:
    """Return whether all is in ``report`` that one of our own has, and of its kind."""
    return _REPORT(report)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    # Not a number, or infinite, is not within bounds either.
    return isinstance(value, int | float) and -_GREATEST <= value <= _GREATEST


def _is_moment(value: Any) -> bool:
    return _is_number(value) and 0 <= value < _END_OF_TIME


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= _GREATEST


def _is_anything(value: Any) -> bool:
    return True


def _of(*values: str | None) -> Kind:
    return lambda value: (value is None or isinstance(value, str)) and value in values


def _or_none(kind: Kind) -> Kind:
    return lambda value: value is None or kind(value)


def _all(kind: Kind) -> Kind:
    return lambda value: isinstance(value, list) and all(map(kind, value))


def _with(fields: Mapping[str, Kind]) -> Kind:
    return lambda value: (
        isinstance(value, dict)
        and value.keys() >= fields.keys()
        and all(kind(value[name]) for name, kind in fields.items())
    )


_MEASURED = _with(
    {
        "text": _is_text,
        "value": lambda value: value is None or _is_text(value) or _is_number(value),
        "unit": _or_none(_is_text),
        "better": _of(None, "higher", "lower"),
    }
)
_CHECK = _with(
    {
        "code": _is_text,
        "title": _is_text,
        "status": _of(*Status),
        "subject": _is_text,
        "severity": _of(*Severity),
        "message": _is_text,
        "measured": _or_none(_MEASURED),
        "threshold": _or_none(_is_text),
        "threshold_value": _or_none(_is_number),
        "threshold_from": _or_none(_is_text),
        "remedy": _or_none(_with({"commands": _all(_is_text), "hint": _or_none(_is_text)})),
    }
)
_REPORT = _with(
    {
        "verdict": _of(*Status),
        "exit_code": _is_number,
        "host": _is_text,
        "level": _of(*Level),
        "spec": _or_none(_is_text),
        "unix_seconds": _is_moment,
        "seconds": _is_number,
        "version": _is_text,
        "counts": _with(dict.fromkeys(ORDER, _is_count)),
        "checks": _all(_CHECK),
        "left_out": _all(_with({"code": _is_text, "reason": _is_text})),
        "host_class": _with(dict.fromkeys(CLASS_FIELDS, _is_anything)),
        "measurements": _with({}),
        "baseline": _of(None),  # each host is asked without one
    }
)
