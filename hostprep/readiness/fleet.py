"""Many hosts' reports together: hosts by verdict, and which ones are unlike the rest. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.kinds import is_number
from hostprep.readiness.model import EXIT_CODES, Finding, Level, Remedy, Result, Severity, Status
from hostprep.readiness.received import is_whole
from hostprep.readiness.report import CLASS_FIELDS, SCHEMA, document
from hostprep.readiness.shell import quote
from hostprep.units import format_bytes, format_seconds

# The code of the only finding about a host that sent no report; it is not a check.
NO_REPORT = "HP000"
NO_REPORT_TITLE = "the host gives a report"
NO_REPORT_PAGE = """\
`hostprep check -i` got no report from this host, so nothing is known about it, not even whether it
is well. No host reports this about itself, and `--only` and `--skip` do not accept the code.

**UNKNOWN**: the host cannot be reached, has no hostprep, or its hostprep ended without a report
(because of a mistake in its spec, for instance). The message says which.

`hostprep check` on the host itself says more; `hostprep provision` installs hostprep there."""
# The check that reports the version of the GPU driver when it passes.
_DRIVER = "HP050"
# Worst first. A host about which nothing is known comes before those that passed.
_ORDER = ("FAIL", "UNKNOWN", "SKIP", "WARN", "PASS")
# A median means something from this number on.
_LEAST_HOSTS = 3
# A value is far off if it is more than three standard deviations from the median, estimated by the
# median absolute deviation (x 1.4826 for a normal distribution), and by more than a fifth.
_DEVIATIONS = 3 * 1.4826
_LEAST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class HostReport:
    """The outcome for one host: its report, or why there is none."""

    host: str
    report: Mapping[str, Any] | None
    error: str | None = None


def fleet_document(
    outcomes: Iterable[HostReport], *, unix_seconds: float, seconds: float
) -> dict[str, Any]:
    """Return the fields of a fleet's document, worst host first, with each host's own report.

    The names are the inventory's. A host without a readable report is UNKNOWN.
    """
    hosts = [_host(outcome, unix_seconds) for outcome in outcomes]
    hosts.sort(key=lambda host: (_ORDER.index(host["verdict"]), host["host"]))
    for number, host in enumerate(hosts):
        host["anchor"] = f"host-{number}"
    counts = Counter(host["verdict"] for host in hosts)
    worst = next((name for name in _ORDER if counts[name]), Status.SKIP.value)
    return {
        "verdict": worst,
        "exit_code": EXIT_CODES[Status(worst)],
        "unix_seconds": round(unix_seconds, 3),
        "seconds": round(seconds, 3),
        "counts": {name: counts[name] for name in _ORDER},
        "hosts": hosts,
        "outliers": outliers([host["report"] for host in hosts if host["reached"]]),
    }


def outliers(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what is unlike the rest of the fleet; there must be at least three hosts.

    For values that have a better direction: those far from the median in the bad one. For the
    hosts' classes (processor, RAM, GPUs and their driver), whether they have a spec, and their
    version of hostprep: what differs from most of the hosts.
    """
    if len(reports) < _LEAST_HOSTS:
        return []
    return [*_values(reports), *_classes(reports)]


def _values(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str, str | None], list[tuple[str, Mapping[str, Any]]]] = {}
    for report in reports:
        for check in report["checks"]:
            measured = check["measured"]
            if measured and measured["better"] and is_number(measured["value"]):
                key = (check["code"], check["subject"], measured["unit"])
                rows.setdefault(key, []).append((report["host"], measured))
    found = []
    for (code, subject, unit), row in sorted(rows.items(), key=lambda item: item[0][:2]):
        if len(row) < _LEAST_HOSTS:
            continue
        middle = median(measured["value"] for _, measured in row)
        spread = median(abs(measured["value"] - middle) for _, measured in row)
        limit = max(_DEVIATIONS * spread, _LEAST_SHARE * abs(middle))
        for host, measured in row:
            behind = middle - measured["value"]
            if (behind if measured["better"] == "higher" else -behind) > limit:
                found.append(
                    {
                        "host": host,
                        "code": code,
                        "subject": subject,
                        "text": measured["text"],
                        "value": measured["value"],
                        "fleet_text": f"the median of {len(row)} hosts is {_shown(middle, unit)}",
                        "fleet_value": middle,
                    }
                )
    return found


def _classes(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    classes = [{**report["host_class"], **_beside(report)} for report in reports]
    for name in (*CLASS_FIELDS, "gpu_driver", "spec", "hostprep"):
        values = [_plain(each.get(name)) for each in classes]
        usual, many = Counter(values).most_common(1)[0]
        if many <= len(reports) / 2:
            continue
        for report, traits, value in zip(reports, classes, values, strict=True):
            if value != usual:
                found.append(
                    {
                        "host": report["host"],
                        "code": None,
                        "subject": name,
                        "text": value,
                        "value": traits.get(name),
                        "fleet_text": f"{many} of {len(reports)} hosts have {usual}",
                        "fleet_value": None,
                    }
                )
    return found


def _beside(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else hosts have in common that are set up alike.

    A host without a spec passes, because nothing is wanted of it: a run that should have written
    one may have failed, or left it out.
    """
    return {
        "gpu_driver": _gpu_driver(report),
        "spec": "none" if report.get("spec") is None else "one",
        "hostprep": report.get("version"),
    }


def _host(outcome: HostReport, unix_seconds: float) -> dict[str, Any]:
    report, error = outcome.report, outcome.error
    if report is not None and not _is_report(report):
        error = f"its report is not understood: its schema is {report.get('schema')}"
        report = None
    elif report is not None and not is_whole(report):
        error = "its report lacks what belongs to one: its hostprep may be of another version"
        report = None
    reached = report is not None
    if report is None:
        report = _no_report(outcome.host, error or "it gave no report", unix_seconds)
    return {
        "host": outcome.host,
        "reached": reached,
        "verdict": report["verdict"],
        "counts": report["counts"],
        "gpus": gpus if isinstance(gpus := report["host_class"].get("gpus"), list) else None,
        "gpu_driver": _gpu_driver(report),
        # The admin knows the host by its name in the inventory.
        "report": {**report, "host": outcome.host},
    }


def gpu_words(host: Mapping[str, Any]) -> str:
    """Return the GPUs and their driver of a host in the fleet's document; ``""`` for none."""
    words = [_plain(host["gpus"])] if host["gpus"] else []
    return ", ".join([*words, f"driver {host['gpu_driver']}"] if host["gpu_driver"] else words)


def _gpu_driver(report: Mapping[str, Any]) -> str | None:
    """Return the version of the GPU driver, None if none answered or it was not asked."""
    for check in report["checks"]:
        if (check["code"], check["status"]) == (_DRIVER, "PASS") and check["measured"]:
            return str(check["measured"]["value"])
    return None


def _no_report(host: str, error: str, unix_seconds: float) -> dict[str, Any]:
    """Return a stand-in for the report of a host that sent none: every format shows the host."""
    error, _, cure = error.partition(" -> ")
    message = error if error.endswith(".") else f"{error}."
    remedy = Remedy(
        () if cure else (f"ssh {quote(host)} hostprep check",),
        cure or "hostprep provision -i INVENTORY installs hostprep there",
    )
    finding = Finding(Status.UNKNOWN, host, message, remedy=remedy)
    result = Result(NO_REPORT, NO_REPORT_TITLE, Severity.CRITICAL, finding)
    return document(
        [result],
        level=Level.QUICK,
        host=host,
        host_class=dict.fromkeys(CLASS_FIELDS),
        spec=None,
        unix_seconds=unix_seconds,
        seconds=0.0,
    )


def _is_report(report: Mapping[str, Any]) -> bool:
    return report.get("schema") == SCHEMA and report.get("verdict") in _ORDER


def _plain(value: Any) -> str:
    if isinstance(value, list):
        counts = Counter(map(str, value))
        return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "none"
    return "unknown" if value is None else str(value)


def _shown(value: float, unit: str | None) -> str:
    if unit == "bytes":
        return format_bytes(value)
    if unit == "seconds":
        return format_seconds(value)
    return f"{value:g}{f' {unit}' if unit and unit != 'ratio' else ''}"
