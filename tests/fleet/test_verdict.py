"""``hostprep check`` on booted hosts: all of them over SSH, and the units of docs/check.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.test_check import blocks
from tests.fleet.conftest import NAMES, Lab
from tests.fleet.test_scenario import SPEC, VOLUME

# Of a host that is a container much cannot be read, and its load is that of all tests.
ONLY = "HP001,HP010"
SOME_CHECKS = "/usr/local/bin/hostprep-some-checks"
EXPORTED = "/var/lib/prometheus/node-exporter/hostprep.prom"


@pytest.fixture(scope="module", autouse=True)
def converged(lab: Lab) -> None:
    """Have every host as the spec says, whether or not the scenario went before."""
    lab.controller.write_spec(SPEC)
    lab.controller.provision()


def check(lab: Lab, *words: str, expect: int) -> dict[str, Any]:
    """Run ``hostprep check -i`` from the controller; insist on its exit code."""
    inventory = str(lab.controller.inventory)
    started = lab.controller.start("check", "-i", inventory, f"--only={ONLY}", "--json", *words)
    return lab.controller.finish(started, expect)


def verdicts(fleet: dict[str, Any]) -> dict[str, str]:
    return {host["host"]: host["verdict"] for host in fleet["hosts"]}


def test_a_fleet_is_judged_and_mended_by_what_the_check_says(lab: Lab, tmp_path: Path) -> None:
    assert verdicts(check(lab, expect=0)) == dict.fromkeys(NAMES, "PASS")

    beta = lab.fleet["beta"]
    beta.ssh(f"umount {VOLUME}")
    lab.fleet.fence.run("ip", "link", "set", "vb-gamma", "down")
    page = tmp_path / "lab.html"
    fleet = check(lab, "--format", "html", "--output", str(page), expect=3)
    lab.fleet.fence.run("ip", "link", "set", "vb-gamma", "up")
    assert verdicts(fleet) == {"beta": "FAIL", "gamma": "UNKNOWN", "alpha": "PASS"}
    failed = [each for each in fleet["hosts"][0]["report"]["checks"] if each["status"] == "FAIL"]
    assert "HP001" in {each["code"] for each in failed}
    assert "cannot be reached" in fleet["hosts"][1]["report"]["checks"][0]["message"]
    assert all(f">{name}<" in page.read_text() for name in NAMES)

    for each in failed:
        for command in each["remedy"]["commands"]:
            beta.ssh(command)
    assert verdicts(check(lab, expect=0)) == dict.fromkeys(NAMES, "PASS")


def test_the_documented_units_run(lab: Lab) -> None:
    host = lab.fleet["alpha"]
    script = f'#!/bin/sh\nexec /usr/local/bin/hostprep "$@" --only {ONLY}\n'
    host.write(SOME_CHECKS, script, "0755")
    for containing, path in (
        ("Type=oneshot", "hostprep-check.service"),
        ("OnBootSec", "hostprep-check.timer"),
        ("ExecStartPre", "train.service.d/check.conf"),
    ):
        (unit,) = blocks("ini", containing)
        unit = unit.replace("/usr/local/bin/hostprep", SOME_CHECKS)
        host.write(f"/etc/systemd/system/{path}", unit)
    train = "[Service]\nType=oneshot\nExecStart=echo trained\n"
    host.write("/etc/systemd/system/train.service", train)
    host.ssh(f"mkdir -p {Path(EXPORTED).parent} && systemctl daemon-reload")
    host.ssh("systemctl enable --now hostprep-check.timer && systemctl start train.service")
    assert "trained" in host.ssh("journalctl -b -u train.service").stdout

    host.ssh("systemctl start hostprep-check.service")
    assert exported(host.ssh(f"cat {EXPORTED}").stdout) == "PASS"
    host.ssh(f"umount {VOLUME}")
    host.ssh("systemctl start hostprep-check.service")
    assert exported(host.ssh(f"cat {EXPORTED}").stdout) == "FAIL"
    refused = host.ssh("systemctl start train.service", check=False)
    assert refused.returncode != 0
    why = host.ssh("journalctl -b -u train.service").stdout
    assert re.search(r"FAIL +HP001", why) and why.count("trained") == 1
    host.ssh("hostprep apply --yes /etc/hostprep/hostprep.yml && systemctl start train.service")


def exported(text: str) -> str:
    """Return the verdict that a Prometheus would read."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families["hostprep_check_verdict"].samples
    return next(sample.labels["status"] for sample in samples if sample.value == 1)


def test_an_ordinary_user_is_told_what_it_would_take(lab: Lab) -> None:
    done = lab.fleet["alpha"].ssh("runuser -u nobody -- hostprep check --json", check=False)
    report = json.loads(done.stdout)
    assert done.returncode == report["exit_code"], done.stderr
    assert ("HP001", "PASS") in {(each["code"], each["status"]) for each in report["checks"]}
    for each in report["checks"]:
        assert "the check failed with" not in each["message"], each
        if each["status"] == "UNKNOWN":
            assert each["remedy"]["commands"] or each["remedy"]["hint"], each
