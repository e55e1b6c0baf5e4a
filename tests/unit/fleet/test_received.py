"""What hosts in somebody else's hands answer costs nobody's result but their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hostprep.cli.provision_text import run_fields, show_run
from hostprep.fleet.model import FleetRun, HostOutcome
from hostprep.fleet.received import understood
from tests.kit.oddities import with_oddities

STEP = {"kind": "volume", "subject": "/mnt/a", "action": "mount it", "reason": "it is not mounted"}
STAGED = {
    "dataset": "city", "copied_files": 1, "copied_bytes": 8, "seconds": 2.0, "digest": None,
    "bound": {"by": "source", "cores": 2},
}  # fmt: skip
KEPT = {"kind": "volume", "subject": "/mnt/c", "reason": "swap", "as_wanted": False}
REFUSAL = {"kind": "volume", "subject": "/mnt/b", "message": "no RAM.", "hint": None}
PLANNED = {
    "schema": "hostprep.plan/1", "ok": True, "changes": [STEP], "unchanged": [KEPT],
    "warnings": ["w"], "refusals": [],
}  # fmt: skip
APPLIED = {**PLANNED, "schema": "hostprep.apply/1", "done": [STEP], "staged": [STAGED]}
REFUSED = {**PLANNED, "ok": False, "refusals": [REFUSAL]}
BROKEN_OFF = {"schema": "hostprep.apply/1", "ok": False, "error": {"code": "usage"}}


def answering(document: Any, **fields: Any) -> HostOutcome:
    fields = {"changed_tasks": ("Converge",), "started_at": 1.0, "ended_at": 3.0, **fields}
    return HostOutcome("evil", documents=(document,), **fields)


@pytest.mark.parametrize("document", [PLANNED, APPLIED, REFUSED, BROKEN_OFF])
def test_what_hostprep_itself_answers_is_understood(document: dict[str, Any]) -> None:
    run = FleetRun((answering(document),), 1.0)
    assert understood(run) == run


@pytest.mark.parametrize(
    "document",
    [
        {"schema": "hostprep.apply/1", "done": [{}]},
        {**APPLIED, "done": None},
        {**APPLIED, "unchanged": [{**KEPT, "as_wanted": 0}]},
        {**APPLIED, "staged": [{}]},
        {**APPLIED, "warnings": 5},
        {**APPLIED, "staged": [{**STAGED, "copied_bytes": 10**30}]},
        {**APPLIED, "staged": [{**STAGED, "seconds": float("inf")}]},
        {**BROKEN_OFF, "warnings": 5},
        {"schema": "hostprep.check/1", "ok": True, "staged": [{}]},
        {"schema": ["hostprep.apply/1"], "ok": False},
        {},
    ],
)
def test_a_host_whose_answer_is_none_has_failed_and_the_others_are_shown(
    document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = understood(FleetRun((answering(document), HostOutcome("fine")), 1.0))
    assert run.failed == ("evil",)
    show_run(run, check=False, diff=False)
    out = capsys.readouterr().out
    assert "evil:\n  done: Converge\n  failed: its answer is not understood: " in out
    assert "\nfine  nothing  no " in out
    hosts = run_fields(run, check=False, error=None)["hosts"]
    assert [(each["host"], each["failed"]) for each in hosts] == [("evil", True), ("fine", False)]


def test_what_ansible_says_of_such_a_host_is_said_first() -> None:
    bad = answering({}, failed=True, message="no space left")
    (evil,) = understood(FleetRun((bad,), 1.0)).hosts
    assert evil.message is not None
    assert evil.message.startswith("no space left\nits answer is not understood")


@pytest.mark.parametrize("sound", [PLANNED, APPLIED, REFUSED])
def test_whatever_a_host_puts_anywhere_the_run_is_shown(
    sound: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    odd = (None, True, "\ud800\x1b", 1e300, -1, 10**400, float("nan"), [1], {"by": []})
    for path, value, sent in with_oddities(sound, odd):
        run = understood(FleetRun((answering(sent), HostOutcome("fine")), 1.0))
        show_run(run, check=False, diff=True)
        json.dumps(run_fields(run, check=False, error=None))
        out = capsys.readouterr().out
        assert "\nfine  nothing" in out, (path, value)
        assert all(line.isprintable() for line in out.splitlines()), (path, value)


def test_no_host_rewrites_the_terminal_or_adds_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "city\x1b[2J\nfine  nothing  no"
    staged = {**STAGED, "dataset": forged, "bound": {"by": "\x1b[31msource\nx"}}
    done = {**STEP, "subject": forged}
    sent = answering({**APPLIED, "done": [done], "staged": [staged], "warnings": [forged]})
    odd = HostOutcome("a\x1b[2J\nb", failed=True, message="as it must")
    show_run(understood(FleetRun((sent, odd), 1.0)), check=False, diff=False)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("fine ") for line in lines)
    headings, *rows = lines[-5:-2]
    column = headings.index("changed")
    assert [row[column:].split()[0] for row in rows] == ["1", "nothing"]
