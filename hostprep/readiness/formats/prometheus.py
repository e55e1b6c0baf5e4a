"""The text format that node_exporter's textfile collector reads.

The file stays as it was if the check no longer runs, so alert on the age of
``hostprep_check_last_run_timestamp_seconds``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hostprep.readiness.formats import printed
from hostprep.readiness.report import ORDER


def prometheus(reports: Sequence[dict[str, Any]]) -> str:
    """Return the reports as gauges; the label ``host`` distinguishes several hosts."""
    families: list[tuple[str, str, list[tuple[dict[str, str], float]]]] = [
        ("hostprep_check_verdict", "1 for the verdict over all checks.", []),
        ("hostprep_check_status", "1 for the status of the check's finding.", []),
        ("hostprep_check_value", "What the check measured, in the unit of its label.", []),
        ("hostprep_check_threshold", "What the measured value is compared with.", []),
        ("hostprep_check_last_run_timestamp_seconds", "When the checks began.", []),
        ("hostprep_check_duration_seconds", "How long the checks took.", []),
    ]
    verdicts, statuses, values, thresholds, moments, durations = (each[2] for each in families)
    for report in reports:
        host = {"host": str(report["host"])} if len(reports) > 1 else {}
        verdicts += _states(host, report["verdict"])
        moments.append((host, report["unix_seconds"]))
        durations.append((host, report["seconds"]))
        for check in report["checks"]:
            labels = host | {"code": check["code"], "subject": check["subject"]}
            statuses += _states(labels | {"severity": check["severity"]}, check["status"])
            measured = check["measured"]
            if measured and isinstance(measured["value"], int | float):
                unit = {"unit": measured["unit"] or ""}
                values.append((labels | unit, float(measured["value"])))
                if check["threshold_value"] is not None:
                    thresholds.append((labels | unit, float(check["threshold_value"])))
    return "".join(_family(*family) for family in families if family[2])


def _states(labels: dict[str, str], status: str) -> Iterable[tuple[dict[str, str], float]]:
    return [(labels | {"status": name}, float(name == status)) for name in ORDER]


def _family(name: str, text: str, samples: list[tuple[dict[str, str], float]]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    series: dict[str, float] = {}
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escape(said)}"' for key, said in labels.items())
        # A collector rejects duplicate series; the first of a host's findings is the worst one.
        series.setdefault(f"{name}{{{inside}}}" if inside else name, value)
    lines += [f"{written} {value:.15g}" for written, value in series.items()]
    return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    # Bytes that are not UTF-8 stay distinct: a collector rejects the whole file if two series have
    # the same labels.
    return printed(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
