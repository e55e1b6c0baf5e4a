"""``hostprep check`` on booted hosts: all of them over SSH, and the units of docs/check.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.test_check import blocks
from tests.fleet.conftest import NAMES, Lab
from tests.fleet.test_scenario import SPEC, VOLUME

# What a container of a host cannot have otherwise says nothing of the units: these two it can.
ONLY = "HP001,HP010"
EXPORTED = "/var/lib/prometheus/node-exporter/hostprep.prom"


def check(lab: Lab, *words: str, expect: int) -> dict[str, Any]:
    """Run ``hostprep check -i`` from the controller; insist on its exit code."""
    started = lab.controller.start("check", "-i", str(lab.controller.inventory), "--json", *words)
    return lab.controller.finish(started, expect)


@pytest.fixture(scope="module", autouse=True)
def converged(lab: Lab) -> None:
    """Have every host as the spec says, whether or not the scenario went before."""
    lab.controller.write_spec(SPEC)
    lab.controller.provision()
    # Ours is found before the machine's, and judges by the same checks whatever the host is.
    (only,) = (f'#!/bin/sh\nexec /opt/hostprep/bin/hostprep "$@" --only {ONLY}\n',)
    for host in lab.fleet.hosts:
        host.write("/usr/local/bin/hostprep-two", only, "0755")


def verdicts(fleet: dict[str, Any]) -> dict[str, str]:
    return {host["host"]: host["verdict"] for host in fleet["hosts"]}


def test_a_fleet_is_judged_and_mended_by_what_the_check_says(lab: Lab, tmp_path: Path) -> None:
    page = tmp_path / "lab.html"
    fleet = check(lab, f"--only={ONLY}", expect=0)
    assert verdicts(fleet) == dict.fromkeys(NAMES, "PASS")

    beta, gamma = lab.fleet["beta"], lab.fleet["gamma"]
    beta.ssh(f"umount {VOLUME}")
    gamma.power_off()
    words = (f"--only={ONLY}", "--format", "html", "--output", str(page))
    fleet = check(lab, *words, expect=3)
    assert verdicts(fleet) == {"beta": "FAIL", "gamma": "UNKNOWN", "alpha": "PASS"}
    failed = fleet["hosts"][0]["report"]["checks"]
    assert ("HP001", "FAIL") in {(each["code"], each["status"]) for each in failed}
    assert "cannot be reached" in fleet["hosts"][1]["report"]["checks"][0]["message"]
    assert all(f">{name}<" in page.read_text() for name in NAMES)

    for each in failed:
        for command in (each["remedy"] or {"commands": ()})["commands"]:
            if each["status"] == "FAIL":
                beta.ssh(command)
    gamma.start()
    gamma.wait_until_up()
    gamma.ssh("hostprep wait birds --timeout 60")
    assert verdicts(check(lab, f"--only={ONLY}", expect=0)) == dict.fromkeys(NAMES, "PASS")


def test_the_documented_units_run(lab: Lab) -> None:
    host = lab.fleet["alpha"]
    for containing, path in (
        ("Type=oneshot", "hostprep-check.service"),
        ("OnBootSec", "hostprep-check.timer"),
        ("ExecStartPre", "train.service.d/check.conf"),
    ):
        (unit,) = blocks("ini", containing)
        unit = unit.replace("/usr/local/bin/hostprep", "/usr/local/bin/hostprep-two")
        host.write(f"/etc/systemd/system/{path}", unit)
    host.write(
        "/etc/systemd/system/train.service", "[Service]\nType=oneshot\nExecStart=echo trained\n"
    )
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
    journal = host.ssh("systemctl status train.service", check=False).stdout
    assert "HP001" in journal and journal.count("trained") == 0
    host.ssh("hostprep apply --yes /etc/hostprep/hostprep.yml && systemctl start train.service")


def exported(text: str) -> str:
    """Return the verdict that a Prometheus would read."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families["hostprep_check_verdict"].samples
    return next(sample.labels["status"] for sample in samples if sample.value == 1)


def test_show(lab):
    for host in lab.fleet.hosts[:1]:
        print(host.ssh("time hostprep check", check=False).stdout)
    assert 0
