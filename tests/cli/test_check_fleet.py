"""``hostprep check -i``: real Ansible over hosts that are wrappers on this one, and one without.

The booted hosts of tests/fleet are reached over SSH; here it is the collecting and showing.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.check_fleet import check_fleet
from hostprep.cli.fleet_progress import FleetProgress
from hostprep.fleet import FleetRun, HostOutcome
from hostprep.fleet.events import Event
from tests.cli.test_check import ENOUGH, TOO_MUCH, Done, hostprep

pytest.importorskip("ansible", reason="needs ansible-core: pip install '.[fleet]'")

LONG_NAME = "some-node-of-the-lab-that-was-sold-last-year-and-stands-elsewhere-now"
_VARIABLES = f"""
[all:vars]
ansible_connection=local
ansible_become=false
ansible_python_interpreter={sys.executable}
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """Return an inventory of hosts that find enough, too little, and one without hostprep."""
    lines = []
    for name, wanted in (("fine", ENOUGH), ("poor", TOO_MUCH)):
        state = tmp_path / name / "last"
        state.mkdir(parents=True)
        kept = {"schema": "hostprep.recommend/1", "unix_seconds": 0, "shm_bytes": wanted}
        (state / "recommend.json").write_text(json.dumps(kept))
        wrapper = tmp_path / f"{name}.sh"
        wrapper.write_text(
            f"#!/bin/sh\nexport HOSTPREP_STATE_DIR={state.parent}\n"
            f'exec {shlex.quote(sys.executable)} -m hostprep "$@"\n'
        )
        wrapper.chmod(0o755)
        lines.append(f"{name} hostprep_executable={wrapper}")
    lines.append("bare hostprep_executable=/no/such/hostprep")
    (tmp_path / "hosts").write_text("\n".join(lines) + _VARIABLES)
    return tmp_path / "hosts"


def test_reports_are_collected_and_the_worst_counts(inventory: Path, tmp_path: Path) -> None:
    page = tmp_path / "all.html"
    done = hostprep(
        *("check", "-i", str(inventory), "--only", "HP020", "--json"),
        *("--format", "html", "--output", str(page)),
    )
    fleet = json.loads(done.stdout)
    assert done.returncode == 3, done.stderr
    assert fleet["schema"] == "hostprep.check-fleet/1" and fleet["ok"] is True
    verdicts = {each["host"]: each["verdict"] for each in fleet["hosts"]}
    assert verdicts == {"poor": "FAIL", "bare": "UNKNOWN", "fine": "PASS"}
    assert [each["code"] for each in fleet["hosts"][2]["report"]["checks"]] == ["HP020"]
    text = page.read_text()
    assert all(name in text for name in verdicts)


def test_of_an_inventory_only_the_hosts_of_a_limit_are_asked(inventory: Path) -> None:
    done = hostprep("check", "-i", str(inventory), "--limit", "fi*", "--only", "HP020", "--json")
    assert [each["host"] for each in json.loads(done.stdout)["hosts"]] == ["fine"]
    assert done.returncode == 0


def test_a_limit_that_names_nobody_beside_others_is_told_and_spoils_no_json(
    inventory: Path,
) -> None:
    only = f"fine,{LONG_NAME},nobody"
    done = hostprep("check", "-i", str(inventory), "--limit", only, "--only", "HP020", "--json")
    assert [each["host"] for each in json.loads(done.stdout)["hosts"]] == ["fine"]
    assert done.stderr.splitlines()[0] == (
        f"hostprep: warning: --limit names {LONG_NAME}, nobody, and the inventory has no such host"
        " or group: that part of it was ignored"
    )
    assert "[WARNING]" not in done.stderr


def test_a_variable_that_is_misspelt_is_told_of_its_host_alone(inventory: Path) -> None:
    text = inventory.read_text().replace("poor ", "poor hostprep_volums=[] ")
    inventory.write_text(text)
    done = hostprep("check", "-i", str(inventory), "--only", "HP020", "--json")
    hosts = {each["host"]: each for each in json.loads(done.stdout)["hosts"]}
    assert done.returncode == 4 and hosts["fine"]["verdict"] == "PASS"
    (found,) = hosts["poor"]["report"]["checks"]
    assert found["message"].startswith("the variable hostprep_volums of this host is not one of")
    assert found["remedy"]["hint"] == "did you mean hostprep_volumes?"
    assert found["remedy"]["commands"] == []


def test_who_does_not_answer_is_named_while_others_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(*_: Any, observer: FleetProgress, **__: Any) -> FleetRun:
        observer.event(Event("start", 0.0, "stuck", "Check"))
        now = time.monotonic() + 60
        monkeypatch.setattr("hostprep.cli.fleet_progress.time.monotonic", lambda: now)
        observer.waiting()
        return FleetRun((HostOutcome("stuck"),), 1.0)

    monkeypatch.setattr("hostprep.fleet.run_playbook", answer)
    check_fleet(["a,"], [])
    assert capsys.readouterr().err == "Check: at work for up to 1 min 00 s: stuck\n"


@pytest.mark.parametrize(
    "args",
    [
        ("-i", "/no/such/inventory"),
        ("-i", "hosts,", "--only", "HP999"),
        ("-i", "hosts,", "spec.yml"),
        ("-i", "hosts,", "--limit", " ,"),
        ("--limit", "hosts"),
        ("-i", "hosts,", "--format", "nagios"),
    ],
)
def test_what_cannot_be_is_said_before_any_host_is_reached(args: tuple[str, ...]) -> None:
    done: Done = hostprep("check", *args)
    assert done.returncode == 2
    assert done.stdout == "" or done.stdout.startswith("HOSTPREP UNKNOWN - "), "no report"
