"""The report over all checks, as the document that every format shows."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import hostprep
from hostprep.readiness.context import Context
from hostprep.readiness.measurements import measurements
from hostprep.readiness.model import EXIT_CODES, Level, Result, Status, verdict
from hostprep.readiness.registry import Selection
from hostprep.readiness.runner import Observer, run_checks
from hostprep.units import GIB

SCHEMA = "hostprep.check/1"
# Worst first; a SKIP says least.
ORDER = ("FAIL", "UNKNOWN", "WARN", "PASS", "SKIP")
# The fields that describe the host, to tell it from others.
CLASS_FIELDS = ("machine", "cpu_model", "cpus", "ram_gib", "gpus")
_SEVERITIES = ("critical", "major", "minor")


def make_report(selection: Selection, context: Context, observer: Observer) -> dict[str, Any]:
    """Run the checks and return the document of ``hostprep check --json``, worst finding first."""
    began = time.monotonic()
    results = run_checks(selection.checks, context, observer)
    return document(
        results,
        level=context.level,
        host=os.uname().nodename,
        host_class=class_fields(context),
        spec=None if context.spec is None else context.spec.path,
        unix_seconds=context.now,
        seconds=time.monotonic() - began,
        left_out=selection.left_out,
        measured=measurements(context),
    )


def document(
    results: Iterable[Result],
    *,
    level: Level,
    host: str,
    host_class: Mapping[str, Any],
    spec: str | None,
    unix_seconds: float,
    seconds: float,
    left_out: Collection[tuple[str, str]] = (),
    measured: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a report's fields as plain data, ready for JSON.

    ``left_out`` are the codes that were not run, each with the reason.
    """
    results = sorted(results, key=_badness)
    found = verdict(result.status for result in results)
    return {
        "verdict": found.value,
        "exit_code": EXIT_CODES[found],
        "host": host,
        "level": level.value,
        "spec": spec,
        "unix_seconds": round(unix_seconds, 3),
        "seconds": round(seconds, 3),
        "version": hostprep.__version__,
        "counts": {name: sum(r.status == name for r in results) for name in ORDER},
        "checks": [result.fields() for result in results],
        "left_out": [{"code": code, "reason": reason} for code, reason in left_out],
        "host_class": dict(host_class),
        "measurements": dict(measured or {}),
        "baseline": None,
    }


def class_fields(context: Context) -> dict[str, Any]:
    """Return what the host has, however much of it this process may use; None means unknown.

    ``machine`` is the architecture, ``ram_gib`` the machine's RAM, ``gpus`` the names.
    """
    cpu, nvml = _or_none(lambda: context.cpu), _or_none(lambda: context.nvml)
    ram = _or_none(lambda: context.headroom)
    return {
        "machine": os.uname().machine,
        "cpu_model": cpu and cpu.model,
        "cpus": cpu and cpu.online,
        # The part that the firmware reserves differs by some MiB between equal machines.
        "ram_gib": ram and round((ram.machine or ram).ram_bytes / GIB),
        "gpus": None if nvml is None else [gpu.name for gpu in nvml.gpus],
    }


def moment(unix_seconds: float) -> str:
    """Return a time for people, by this machine's clock and time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(unix_seconds))


def tally(counts: Mapping[str, int]) -> str:
    """Return the counts in words, worst first: ``1 FAIL, 2 WARN, 20 PASS``."""
    return ", ".join(f"{counts[name]} {name}" for name in ORDER if counts.get(name))


def subject_and_message(result: Mapping[str, Any]) -> str:
    """Return what a result says, as one line that names its subject."""
    message, subject = str(result["message"]), str(result["subject"])
    named = subject == "host" or subject in message
    return message if named else f"{subject}: {message}"


def code_and_subject(entry: Mapping[str, Any]) -> str:
    """Return what a change since a baseline, or an outlier of a fleet, is about.

    That is a check's code and subject, or just the subject if it is about the host itself.
    """
    return " ".join(filter(None, (entry["code"], entry["subject"])))


def wanted(result: Mapping[str, Any]) -> str:
    """Return a result's threshold and its source, ``""`` if it has none."""
    threshold = result["threshold"]
    return f"{threshold} ({result['threshold_from']})" if threshold else ""


def side_of_change(side: Mapping[str, Any]) -> str:
    """Return what was found before or after: equal statuses differ by the measured value."""
    measured = str(side["measured"]["text"]) if side["measured"] else ""
    if side["status"] is None:
        return measured
    return f"{side['status']} ({measured})" if measured else str(side["status"])


def _badness(result: Result) -> tuple[int, int, str, str]:
    good = result.status in (Status.PASS, Status.SKIP)
    return (
        ORDER.index(result.status.value),
        0 if good else _SEVERITIES.index(result.severity.value),
        result.code,
        result.finding.subject,
    )


def _or_none(read: Any) -> Any:
    try:
        return read()
    except Exception:  # whatever it was, a check has reported it
        return None
