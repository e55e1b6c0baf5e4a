"""What got worse since a saved report, and which reports may not be compared."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError, Refused, UsageError
from hostprep.readiness.baseline import compare, load_baseline, refuse_unlike, save_baseline
from hostprep.readiness.model import Measured, Status
from tests.unit.readiness.samples import HOST_CLASS, free, report, result


def one(status: str = "PASS", **fields: Any) -> dict[str, Any]:
    return report([result("HP041", Status(status), "/", "so it is.", **fields)])


def changes(before: dict[str, Any], now: dict[str, Any]) -> tuple[list[str], list[str]]:
    found = compare(before, now)
    return [each["code"] for each in found["worse"]], [each["code"] for each in found["better"]]


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("PASS", "WARN"), ("PASS", "SKIP"), ("PASS", "UNKNOWN"), ("WARN", "FAIL"),
        ("WARN", "UNKNOWN"), ("UNKNOWN", "FAIL"), ("SKIP", "FAIL"),
    ],
)  # fmt: skip
def test_a_status_gets_worse_and_better(then: str, now: str) -> None:
    assert changes(one(then), one(now)) == (["HP041"], [])
    assert changes(one(now), one(then)) == ([], ["HP041"])
    assert changes(one(now), one(now)) == ([], [])


def test_a_value_counts_by_its_direction_and_beyond_noise() -> None:
    assert changes(one(**free(100, 10)), one(**free(70, 10))) == (["HP041"], [])
    assert changes(one(**free(100, 10)), one(**free(130, 10))) == ([], ["HP041"])
    assert changes(one(**free(100, 10)), one(**free(90, 10))) == ([], [])
    slow, fast = (one(measured=Measured(f"{s} s", s, "s", "lower")) for s in (2.0, 1.0))
    assert changes(fast, slow) == (["HP041"], [])
    assert changes(slow, fast) == ([], ["HP041"])
    aimless = [one(measured=Measured(f"{value} s", value, "s")) for value in (1, 5)]
    assert changes(*aimless) == ([], [])
    timed = one(measured=Measured("x", 1, "s", "lower"))
    for other in (one(), one(measured=Measured("y", 9, "files", "lower"))):
        assert changes(timed, other) == changes(other, timed) == ([], [])
    words = one(measured=Measured("y", "many", "s", "lower"))  # type: ignore[arg-type]
    assert changes(timed, words) == changes(words, timed) == ([], [])


def waited(percent: float, status: str = "PASS", limit: float | None = 20.0) -> dict[str, Any]:
    measured = Measured(f"{percent:.1f} %", percent, "percent", "lower")
    return one(status, measured=measured, threshold_value=limit)


@pytest.mark.parametrize(
    ("then", "now", "worse"),
    [
        (0.0, 0.2, False),  # seconds apart, on a machine that does nothing
        (0.04, 1.9, False),
        (0.0, 2.1, True),
        (10.0, 11.9, False),
        (10.0, 12.5, True),
    ],
)
def test_what_passes_is_worse_once_it_nears_its_threshold(
    then: float, now: float, worse: bool
) -> None:
    found = ["HP041"] if worse else []
    assert changes(waited(then), waited(now)) == (found, [])
    # Of what does not pass, and of what has no threshold, the part of the value counts as before.
    assert changes(waited(1.0, "WARN"), waited(1.5, "WARN")) == (["HP041"], [])
    assert changes(waited(1.0, limit=None), waited(1.5, limit=None)) == (["HP041"], [])


@pytest.mark.parametrize("status", ["PASS", "WARN"])
def test_two_values_that_look_the_same_are_no_change(status: str) -> None:
    for limit in (20.0, 0.0, None):
        sides = waited(0.01, status, limit), waited(0.04, status, limit)
        assert changes(*sides) == changes(*reversed(sides)) == ([], [])


def test_what_only_one_has_is_said() -> None:
    gone = [result("HP001", Status.PASS, f"/mnt/{name}", "fine.") for name in "dcba"]
    before = report(gone)
    now = report([result("HP001", Status.PASS, f"/mnt/{name}", "fine.") for name in "de"])
    found = compare(before, now)
    assert [each["subject"] for each in found["only_then"]] == ["/mnt/a", "/mnt/b", "/mnt/c"]
    assert found["only_now"] == [{"code": "HP001", "subject": "/mnt/e"}]
    assert not found["worse"] and not found["better"]


def test_saved_and_loaded(tmp_path: Path) -> None:
    file = tmp_path / "base.json"
    save_baseline(file, report())
    loaded = load_baseline(file)
    refuse_unlike(loaded, HOST_CLASS)
    assert loaded["checks"] == report()["checks"]


def test_another_kind_of_host_is_refused() -> None:
    with pytest.raises(Refused, match=r"machine \('x86_64' then, 'aarch64' now\)"):
        refuse_unlike(report(), {**HOST_CLASS, "machine": "aarch64"})
    with pytest.raises(Refused, match="cpu_model"):
        refuse_unlike(report(), {**HOST_CLASS, "cpu_model": "AMD EPYC 9654"})


H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("lost", "subject", "then", "now"),
    [
        ({"gpus": [H100]}, "GPUs", f"2 x {H100}", f"1 x {H100}"),
        ({"gpus": []}, "GPUs", f"2 x {H100}", "none"),
        ({"ram_gib": 480}, "RAM", "512 GiB", "480 GiB"),
        ({"cpus": 32}, "processors", "64 processors", "32 processors"),
    ],
)
def test_what_the_host_has_lost_is_worse_and_no_refusal(
    lost: dict[str, Any], subject: str, then: str, now: str
) -> None:
    poor = {**HOST_CLASS, **lost}
    refuse_unlike(report(), poor)
    (change,) = compare(report(), report(host_class=poor))["worse"]
    assert (change["code"], change["subject"]) == (None, subject)
    sides = change["before"], change["now"]
    assert [side["measured"]["text"] for side in sides] == [then, now]
    assert [side["status"] for side in sides] == [None, None]
    back = compare(report(host_class=poor), report())
    assert not back["worse"] and len(back["better"]) == 1


def test_what_the_host_has_is_compared_where_both_know_it() -> None:
    for other in (
        {"gpus": None},
        {"ram_gib": None},
        {"ram_gib": 505},
        {"cpus": "many"},
        {"cpus": None},
    ):
        odd = report(host_class={**HOST_CLASS, **other})
        for found in (compare(report(), odd), compare(odd, report())):
            assert not found["worse"] and not found["better"]
    # A baseline of before had the limit of the cgroup that it was saved in.
    old = {key: value for key, value in HOST_CLASS.items() if key != "gpus"} | {"ram_gib": 16}
    (change,) = compare(report(host_class=old), report())["better"]
    assert change["subject"] == "RAM"


def edited(**fields: Any) -> dict[str, Any]:
    """Return a report of which somebody edited a result."""
    changed = report()
    changed["checks"][0] = {**changed["checks"][0], **fields}
    return changed


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        ("{", UsageError, "not a JSON document"),
        ("[" * 100_000, UsageError, "not a JSON document"),
        (json.dumps({"schema": "hostprep.check/2", "checks": []}), Refused, "its schema is"),
        (json.dumps([]), Refused, "its schema is"),
        (json.dumps({"schema": "hostprep.check/1", "ok": False}), UsageError, "failed"),
        *(
            (json.dumps({"schema": "hostprep.check/1", **wrong}), UsageError, "as it was saved")
            for wrong in (
                {"checks": []},
                {**report(), "checks": 5},
                {**report(), "checks": [{"code": "HP001"}]},
                {**report(), "host_class": None},
                {**report(), "host": 5},
                {**report(), "level": ["quick"]},
                {**report(), "unix_seconds": "yesterday"},
                {**report(), "unix_seconds": 1e300},
                edited(status=5),
                edited(status="GOOD"),
                edited(status=["PASS"]),
                edited(code={}),
                edited(code="HP001\x1b[2J"),
                edited(subject=[]),
                edited(title=None),
                edited(measured="x"),
                edited(measured={"value": 5}),
                edited(measured={"text": 5, "value": 5, "unit": "s", "better": None}),
                edited(measured={"text": "", "value": [], "unit": "s", "better": "lower"}),
                edited(measured={"text": "", "value": 10**400, "unit": "s", "better": "lower"}),
            )
        ),
        (None, UsageError, "cannot be read"),
    ],
)
def test_what_is_no_baseline(
    tmp_path: Path, content: str | None, kind: type[Exception], said: str
) -> None:
    file = tmp_path / "base.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(kind, match=said):
        load_baseline(file)


def test_what_no_report_is_as_large_as_is_not_read_into_the_memory(tmp_path: Path) -> None:
    file = tmp_path / "disk.img"
    file.touch()
    os.truncate(file, 1 << 40)
    with pytest.raises(UsageError, match="too large"):
        load_baseline(file)


def test_a_place_that_takes_no_baseline_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostprepError, match="no baseline was saved"):
        save_baseline(tmp_path / "missing" / "base.json", report())
