"""A report compared with an earlier one: what got worse since, what got better."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hostprep.errors import HostprepError, Refused, UsageError
from hostprep.kinds import all_of, is_number, is_text, one_of, or_none, with_fields
from hostprep.readiness.model import Measured
from hostprep.readiness.received import is_code, is_measured, is_moment
from hostprep.readiness.report import SCHEMA

# From good to bad. A check that now skips a subject tells less than when it passed.
_RANK = {"PASS": 0, "SKIP": 1, "WARN": 2, "UNKNOWN": 3, "FAIL": 4}
# Smaller relative changes count as noise. While a value passes both before and after, so do changes
# that are smaller than this part of its threshold: 0.002 is as good as 0.001 then.
NOTABLE_CHANGE = 0.2
NOTABLE_PART_OF_THRESHOLD = 0.1
# If these differ it is another host; if it has less of anything else, this host got worse.
_ALIKE = ("machine", "cpu_model")
# Kernels reserve varying amounts of RAM; a memory module is more than this share.
_NOTABLE_RAM = 0.02
# A report has some dozens of kilobytes; anything larger, or endless, was named by mistake.
_MOST_BYTES = 1 << 24
# The fields that a comparison reads: an earlier hostprep may have saved fewer others.
_is_whole = with_fields(
    {
        "host": is_text,
        "level": is_text,
        "unix_seconds": is_moment,
        "host_class": with_fields({}),
        "checks": all_of(
            with_fields(
                {
                    "code": is_code,
                    "subject": is_text,
                    "title": is_text,
                    "status": one_of(*_RANK),
                    "measured": or_none(is_measured),
                }
            )
        ),
    }
)


def load_baseline(path: Path) -> dict[str, Any]:
    """Return a saved report; raise ``UsageError`` if the file is not one."""
    from hostprep.system.named_files import read_named

    try:
        content = read_named(path, _MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"the baseline {path} cannot be read: {error.strerror}.",
            "name a saved report: hostprep check --save-baseline FILE writes one",
        ) from None
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{path} is too large for a saved report.", "is it the right file?")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(
            f"the baseline {path} is not a JSON document.",
            "name a saved report: hostprep check --save-baseline FILE writes one",
        ) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        said = document.get("schema") if isinstance(document, dict) else None
        raise Refused(
            f"{path} is not comparable: its schema is {said}, here it is {SCHEMA}.",
            "save a new baseline: hostprep check --save-baseline FILE",
        )
    if "checks" not in document:
        raise UsageError(f"{path} is the report of a check that failed.", "save another")
    if not _is_whole(document):
        raise UsageError(f"{path} is not a report as it was saved.", "save another")
    return document


def save_baseline(path: Path, fields: dict[str, Any]) -> None:
    """Write the report; raise ``HostprepError`` if that fails."""
    from hostprep.system.files import writing_hint
    from hostprep.system.named_files import write_named

    text = json.dumps({"schema": SCHEMA, "ok": True, **fields}, indent=2) + "\n"
    try:
        write_named(path, text.encode(), durable=True)
    except OSError as error:
        raise HostprepError(
            f"{path} cannot be written: {error.strerror}; no baseline was saved.",
            writing_hint(error, "name another file"),
        ) from None


def refuse_unlike(before: dict[str, Any], host_class: dict[str, Any]) -> None:
    """Raise ``Refused`` if the two reports are of hosts with different processors.

    Things that a host can lose (a GPU, a memory module) are no reason: ``compare`` reports them.
    """
    theirs = before["host_class"]
    unlike = [
        f"{name} ({theirs.get(name)!r} then, {host_class[name]!r} now)"
        for name in _ALIKE
        if theirs.get(name) != host_class[name]
    ]
    if unlike:
        raise Refused(
            f"the two reports are not comparable: {', '.join(unlike)} differ.",
            "take a baseline of this host's own: hostprep check --save-baseline FILE",
        )


def compare(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return what changed between two reports of the same class of host.

    ``worse`` and ``better``: entries with the code, the subject and both statuses and values. For
    what the host itself has more or less of (GPUs, RAM, processors), code and statuses are None.
    ``only_then`` and ``only_now``: codes with subjects that the other report does not have.
    """
    old = {(check["code"], check["subject"]): check for check in before["checks"]}
    new = {(check["code"], check["subject"]): check for check in now["checks"]}
    found: dict[str, Any] = {
        "host": before["host"],
        "unix_seconds": before["unix_seconds"],
        "level": before["level"],
        "worse": [],
        "better": [],
        "only_then": _named(old.keys() - new.keys()),
        "only_now": _named(new.keys() - old.keys()),
    }
    for direction, change in _equipment(before["host_class"], now["host_class"]):
        found["worse" if direction < 0 else "better"].append(change)
    for key in sorted(old.keys() & new.keys()):
        direction = _direction(old[key], new[key])
        if direction:
            found["worse" if direction < 0 else "better"].append(_change(old[key], new[key]))
    return found


def _named(checks: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"code": code, "subject": what} for code, what in sorted(checks)]


def _equipment(then: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what the host has less (-1) or more (1) of; unknowns in either report are left out."""
    had = then.get("gpus")
    if isinstance(had, list) and now["gpus"] is not None:
        old, new = Counter(map(str, had)), Counter(map(str, now["gpus"]))
        if old != new:
            yield -1 if old - new else 1, _had("GPUs", "GPUs", _gpus(old), _gpus(new))
    for name, subject, unit, noise in (
        ("ram_gib", "RAM", "GiB", _NOTABLE_RAM),
        ("cpus", "processors", "processors", 0.0),
    ):
        was: Any = then.get(name)
        here: Any = now[name]
        if not (is_number(was) and is_number(here)):
            continue
        if abs(here - was) > noise * was:
            sides = (was, f"{was} {unit}"), (here, f"{here} {unit}")
            yield 1 if here > was else -1, _had(subject, unit, *sides)


def _gpus(names: Counter[str]) -> tuple[int, str]:
    words = ", ".join(f"{count} x {name}" for name, count in sorted(names.items()))
    return names.total(), words or "none"


def _had(
    subject: str, unit: str, then: tuple[float, str], now: tuple[float, str]
) -> dict[str, Any]:
    before, here = (
        {"status": None, "measured": asdict(Measured(text, value, unit, "higher"))}
        for value, text in (then, now)
    )
    return {
        "code": None,
        "subject": subject,
        "title": f"the {subject} of this host",
        "before": before,
        "now": here,
    }


def _direction(old: dict[str, Any], new: dict[str, Any]) -> int:
    """Return -1 for worse, 1 for better, 0 for no change."""
    step = _RANK[old["status"]] - _RANK[new["status"]]
    if step:
        return 1 if step > 0 else -1
    then, here = old["measured"], new["measured"]
    if not then or not here or not here["better"] or then["unit"] != here["unit"]:
        return 0
    if not (is_number(then["value"]) and is_number(here["value"])):
        return 0
    change = here["value"] - then["value"]
    if abs(change) <= NOTABLE_CHANGE * abs(then["value"]) or then["text"] == here["text"]:
        return 0
    threshold: Any = new["threshold_value"] if new["status"] == "PASS" else None
    if is_number(threshold) and abs(change) < NOTABLE_PART_OF_THRESHOLD * abs(threshold):
        return 0
    return 1 if (change > 0) == (here["better"] == "higher") else -1


def _change(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {
        "code": new["code"],
        "subject": new["subject"],
        "title": new["title"],
        "before": {"status": old["status"], "measured": old["measured"]},
        "now": {"status": new["status"], "measured": new["measured"]},
    }
