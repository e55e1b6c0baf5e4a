"""What ``hostprep check`` says of the services that stage at boot, where systemd runs."""

from __future__ import annotations

from typing import Any

from tests.fleet.conftest import Lab
from tests.fleet.kit.host import Host
from tests.fleet.test_scenario import SERVICE, SPEC


def boot_service(host: Host) -> dict[str, Any]:
    (found,) = host.hostprep("check --only HP013")["checks"]
    return dict(found)


def cure(host: Host) -> None:
    for command in boot_service(host)["remedy"]["commands"]:
        host.ssh(command)
    assert boot_service(host)["status"] == "PASS"


def test_a_service_that_would_not_run_at_the_next_boot_is_named_and_mended(lab: Lab) -> None:
    lab.controller.write_spec(SPEC)
    lab.controller.provision()
    host = lab.fleet["alpha"]
    assert boot_service(host)["status"] == "PASS"

    host.ssh(f"systemctl disable {SERVICE}")
    found = boot_service(host)
    assert (found["status"], found["measured"]["value"]) == ("WARN", "not enabled")
    cure(host)

    host.ssh(f"rm /etc/systemd/system/{SERVICE} && systemctl daemon-reload")
    found = boot_service(host)
    assert (found["status"], found["measured"]["value"]) == ("WARN", "not installed")
    cure(host)


def test_a_service_that_failed_at_this_boot_is_named_and_mended(lab: Lab) -> None:
    host = lab.fleet["alpha"]
    where = f"/etc/systemd/system/{SERVICE}.d"
    host.ssh(f"mkdir -p {where} && printf '[Service]\\nExecStartPre=false\\n' > {where}/fail.conf")
    assert host.reboot() in ("running", "degraded")
    host.ssh("hostprep wait birds --timeout 60", check=False)
    found = boot_service(host)
    assert (found["status"], found["measured"]["value"]) == ("WARN", "failed")
    host.ssh(f"rm -r {where} && systemctl daemon-reload")
    cure(host)
    assert host.hostprep("wait birds --timeout 60")["ok"]
