"""Every check against captured hosts: each verdict that it can give, and what it says then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Result, Status
from hostprep.readiness.registry import all_checks, find
from hostprep.readiness.runner import run_check
from hostprep.system.python import pip_line
from tests.unit.readiness.captured import FIXTURES, captured

CHECKS = all_checks()
CASES = sorted(path for path in FIXTURES.glob("HP[0-9][0-9][0-9]/*") if path.is_dir())
_NEED_A_REMEDY = (Status.WARN, Status.FAIL, Status.UNKNOWN)


def results_of(case: Path) -> list[dict[str, Any]]:
    check = find(CHECKS, case.parent.name)
    return [
        Result(check.code, check.title, check.severity, finding).fields()
        for finding in run_check(check, captured(case))
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_a_captured_host(case: Path) -> None:
    found = results_of(case)
    expected = yaml.safe_load((case / "expected.yml").read_text())
    assert len(found) == len(expected), found
    pairs = zip(found, expected, strict=True)
    assert [{key: each.get(key) for key in want} for each, want in pairs] == expected
    subjects = [each["subject"] for each in found]
    assert len(subjects) == len(set(subjects)), "Prometheus takes no two series of one name"
    statuses = {each["status"] for each in found}
    named = case.name.partition("-")[0].upper()
    assert named in statuses, f"the case is called {named}"
    declared = {status.value for status in find(CHECKS, case.parent.name).verdicts}
    assert statuses <= declared, "a verdict that the check does not declare"
    for each in found:
        if each["status"] in _NEED_A_REMEDY:
            remedy = each["remedy"]
            assert remedy and (remedy["commands"] or remedy["hint"]), each
        assert each["message"][0:1] and each["message"].endswith("."), "a whole sentence"
        assert (each["threshold"] is None) == (each["threshold_from"] is None), each
        if each["status"] == "PASS":
            assert meets_its_threshold(each), "what watches the figures would raise an alarm"


def test_of_a_user_that_nobody_made_it_is_told_which_volume_wants_it() -> None:
    context = captured(FIXTURES / "HP003" / "pass")
    assert context.spec is not None
    (volume,) = context.spec.volumes
    volumes = (replace(volume, owner="nobody-of-that-name"),)
    context.spec = replace(context.spec, volumes=volumes)
    for code in ("HP003", "HP004"):
        (finding,) = run_check(find(CHECKS, code), context)
        assert finding.status is Status.UNKNOWN and finding.remedy is not None
        assert finding.message == "/mnt/ram: there is no user 'nobody-of-that-name'."
        assert "name one that is there" in finding.remedy.hint
    for code in ("HP002", "HP005", "HP006"):  # which are not about that
        (finding,) = run_check(find(CHECKS, code), context)
        assert finding.status is Status.PASS, code


@pytest.mark.parametrize(
    ("case", "kept"),
    [
        ("HP063/pass", ("probes",)),
        ("HP064/pass", ("last", "recommend")),
        ("HP065/pass", ("last", "verify")),
    ],
)
def test_what_a_check_has_measured_is_what_later_ones_judge(
    case: str, kept: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_again: list[tuple[str, ...]] = []
    monkeypatch.setattr(Context, "forget", lambda _self, *name: asked_again.append(name))
    results_of(FIXTURES / case)
    assert asked_again == [kept]


def meets_its_threshold(found: dict[str, Any]) -> bool:
    """Whether the value that passes is on the good side of the limit that is exported with it."""
    measured, limit = found["measured"], found["threshold_value"]
    if limit is None or measured["value"] is None or measured["better"] is None:
        return True
    higher = measured["better"] == "higher"
    return bool(measured["value"] >= limit if higher else measured["value"] <= limit)


def test_a_package_is_installed_beside_hostprep_by_the_line_that_is_printed() -> None:
    (found,) = results_of(FIXTURES / "HP050" / "unknown")
    assert found["remedy"]["commands"] == [pip_line("nvidia-ml-py")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
def test_every_verdict_of_a_check_has_a_captured_host(check: Check[Any]) -> None:
    shown = {
        case.name.partition("-")[0].upper() for case in CASES if case.parent.name == check.code
    }
    assert shown == {status.value for status in check.verdicts}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
def test_every_check_has_a_page(check: Check[Any]) -> None:
    assert len(check.page.split()) > 30 and check.page.endswith("\n")
    assert check.title[0].islower() or check.title[0] == "/" or check.title.split()[0].isupper()
    for status in check.verdicts - {Status.PASS, Status.SKIP}:
        assert f"**{status.value}**" in check.page, f"the page does not explain {status.value}"
    assert all(len(line) <= 100 for line in check.page.splitlines())


def test_fixtures_belong_to_checks() -> None:
    assert {case.parent.name for case in CASES} == {check.code for check in CHECKS}
