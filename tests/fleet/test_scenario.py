"""One spec, three hosts: predicted, converged, rebooted, broken and mended, in this order.

The tests build upon each other, as a lab does: each takes the hosts as the one before left them.
"""

from __future__ import annotations

import subprocess
from itertools import pairwise
from typing import Any

import pytest

from tests.fleet.conftest import NAMES, Lab
from tests.fleet.kit.host import Host
from tests.kit.stagecraft import make_source

VOLUME = "/mnt/ram"
SERVICE = "hostprep-stage-birds.service"
BIRDS = {
    "name": "birds", "source": "/srv/datasets/birds", "volume": VOLUME, "at_boot": True
}  # fmt: skip
SPEC = {
    "volumes": [{"path": VOLUME, "size": "64M", "owner": "root"}],
    "datasets": [BIRDS],
    "packages": ["fio"],
}
FISH = {"name": "fish", "source": "/srv/slow/fish", "volume": VOLUME, "at_boot": True}
PLANTS = {"name": "plants", "source": "/srv/datasets/plants", "volume": VOLUME}


def by_host(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {host["host"]: host for host in document["hosts"]}


def content_of(host: Host, folder: str) -> str:
    """Return one hash of all files below a folder of the host, their names and links."""
    return host.ssh(_CONTENT.format(folder)).stdout


_CONTENT = (
    "cd {} && (find . -type f -exec sha256sum {{}} + ; find . -type l -printf '%p %l\\n';"
    " find . -printf '%p %m %TY%Tm%Td%TH%TM%TS\\n') | LC_ALL=C sort | sha256sum"
)


def dataset(host: Host, name: str = "birds") -> dict[str, Any]:
    """Return what ``hostprep status`` says of a data set."""
    found = host.hostprep("status")["datasets"]
    (one,) = (each for each in found if each["name"] == name)
    return dict(one)


def mount_options(host: Host) -> set[str]:
    found = host.ssh(f"findmnt --kernel --noheadings -o FSTYPE,OPTIONS {VOLUME}").stdout.split()
    assert found[0] == "tmpfs"
    return set(found[1].split(","))


def test_check_predicts_exactly_what_bare_hosts_then_get(lab: Lab) -> None:
    lab.controller.write_spec(SPEC)
    before = {host.name: host.traces() for host in lab.fleet.hosts}
    predicted = by_host(lab.controller.provision("--check"))
    assert {host.name: host.traces() for host in lab.fleet.hosts} == before

    done = by_host(lab.controller.provision())
    for name in NAMES:
        assert predicted[name]["predicted"]
        assert predicted[name]["changes"] == done[name]["changes"]
        assert {"Install hostprep", "Write the spec", f"volume {VOLUME}", "boot birds"} <= {
            change["subject"] for change in done[name]["changes"]
        }
    after = {host.name: host.traces() for host in lab.fleet.hosts}
    assert all(after[name] != before[name] for name in NAMES)
    for host in lab.fleet.hosts:
        assert host.ssh("stat -c '%U %a' /opt/hostprep").stdout == "root 755\n"
        assert host.ssh("command -v hostprep").stdout == "/usr/local/bin/hostprep\n"
        unit = host.ssh(f"cat /etc/systemd/system/{SERVICE}").stdout
        assert 'ExecStart="/opt/hostprep/bin/hostprep" ' in unit

    again = by_host(lab.controller.provision())
    assert {name: host["changed"] for name, host in again.items()} == dict.fromkeys(NAMES, False)
    assert {host.name: host.traces() for host in lab.fleet.hosts} == after


def test_check_plans_with_the_build_that_would_replace_an_older_one(lab: Lab) -> None:
    beta = lab.fleet["beta"]
    beta.ssh("cd /opt/hostprep && mv build-* build-0123456789abcdef")
    before = beta.traces()
    predicted = by_host(lab.controller.provision("--check", "--limit", "beta"))
    assert beta.traces() == before
    done = by_host(lab.controller.provision("--limit", "beta"))
    assert predicted["beta"]["changes"] == done["beta"]["changes"]
    assert [change["subject"] for change in done["beta"]["changes"]] == ["Install hostprep"]


def test_a_folder_that_is_somebody_elses_is_left_and_named(lab: Lab) -> None:
    beta = lab.fleet["beta"]
    beta.ssh("mv /opt/hostprep /opt/kept && mkdir /opt/hostprep && touch /opt/hostprep/build-notes")
    try:
        for words in (["--check"], []):
            document = lab.controller.provision("--limit", "beta", *words, expect=1)
            message = by_host(document)["beta"]["message"]
            assert message.startswith("/opt/hostprep is there and is not a virtual environment")
        assert beta.ssh("ls -A /opt/hostprep").stdout == "build-notes\n"
    finally:
        beta.ssh("rm -r /opt/hostprep && mv /opt/kept /opt/hostprep")


def test_what_the_server_holds_is_on_each_host(lab: Lab) -> None:
    found = [dataset(host) for host in lab.fleet.hosts]
    assert [one["state"] for one in found] == ["staged"] * 3
    assert all(one["verified_at"] for one in found)
    assert len({one["digest"] for one in found} - {None}) == 1
    for host in lab.fleet.hosts:
        assert content_of(host, f"{VOLUME}/birds") == content_of(host, "/srv/datasets/birds")
        assert mount_options(host) >= {"size=65536k", "nosuid", "nodev", "noexec", "mode=755"}


def test_a_reboot_brings_volume_and_data_set_back(lab: Lab) -> None:
    alpha = lab.fleet["alpha"]
    before, content, options = (
        dataset(alpha),
        content_of(alpha, f"{VOLUME}/birds"),
        mount_options(alpha),
    )
    assert alpha.reboot() == "running"
    waited = alpha.hostprep("wait birds --timeout 60")
    assert waited["ok"]
    assert alpha.ssh(f"systemctl is-active {SERVICE}").stdout == "active\n"
    assert mount_options(alpha) == options
    after = dataset(alpha)
    assert (after["state"], after["freshness"]) == ("staged", "fresh")
    assert after["digest"] == before["digest"]
    assert after["verified_at"] > before["verified_at"]
    assert content_of(alpha, f"{VOLUME}/birds") == content
    assert alpha.hostprep("plan --exit-code")["changes"] == []


def test_without_its_source_a_host_boots_and_says_why_the_volume_is_empty(lab: Lab) -> None:
    alpha = lab.fleet["alpha"]
    shared = dict(alpha.shared)
    # What was below the mount point all along is another file system's: not to be staged.
    alpha.shared.clear()
    alpha.write("/srv/datasets/birds/decoy", "not the data set")
    try:
        assert alpha.reboot() in ("running", "degraded")
        waited = alpha.hostprep("wait birds --timeout 30", expect=1)
        assert "/srv/datasets" in waited["error"]["message"]
        assert alpha.ssh(f"ls -A {VOLUME}").stdout == ""
        assert "size=65536k" in mount_options(alpha)
        found = dataset(alpha)
        assert found["state"] == "missing"
        assert "/srv/datasets" in found["reason"]
        assert "/srv/datasets" in alpha.ssh("hostprep status").stdout
        journal = alpha.ssh(f"journalctl --boot --unit {SERVICE} --output cat").stdout
        assert "/srv/datasets" in journal
        # Nothing else of the machine is any worse for it.
        failed = alpha.ssh("systemctl --failed --no-legend --plain").stdout.split("\n")
        assert [line.split()[0] for line in failed if line] == [SERVICE]
        # As where a server comes up after its clients: who mounts it need not know of hostprep.
        alpha.ssh("mkdir -p /var/late/birds && echo it > /var/late/birds/one")
        alpha.ssh("mount --bind /var/late /srv/datasets")
        assert alpha.hostprep("wait birds --timeout 60")["ok"]
        assert alpha.ssh(f"cat {VOLUME}/birds/one").stdout == "it\n"
    finally:
        alpha.ssh("umount /srv/datasets; rm -r /srv/datasets/birds", check=False)
        alpha.shared.update(shared)
        alpha.reboot()
    assert alpha.hostprep("wait birds --timeout 60")["ok"]


def test_without_its_volume_nothing_is_staged_to_the_disk_below(lab: Lab) -> None:
    gamma = lab.fleet["gamma"]
    gamma.ssh("cp -p /etc/fstab /etc/fstab.kept && sed -i '/X-hostprep/d' /etc/fstab")
    assert gamma.reboot() in ("running", "degraded")
    refused = gamma.hostprep("wait birds --timeout 30", expect=1)
    assert VOLUME in refused["error"]["message"]
    assert gamma.ssh(f"ls -A {VOLUME}").stdout == ""
    found = gamma.hostprep("plan --exit-code", expect=4)["changes"]
    assert {change["kind"] for change in found} == {"volume", "fstab", "dataset", "boot"}
    assert gamma.hostprep("apply --yes")["changed"]
    assert dataset(gamma)["state"] == "staged"
    assert gamma.ssh("diff /etc/fstab /etc/fstab.kept && rm /etc/fstab.kept").stdout == ""


@pytest.mark.parametrize(
    ("drift", "kinds"),
    [
        (f"mount -o remount,size=32M {VOLUME}", {"volume"}),
        ("sed -i 's/size=67108864/size=33554432/' /etc/fstab", {"fstab"}),
        (f"rm {VOLUME}/birds/class-0/images/005.bin", {"dataset"}),
        (f"systemctl disable {SERVICE}", {"boot"}),
    ],
)
def test_drift_is_found_by_plan_and_mended_by_apply(lab: Lab, drift: str, kinds: set[str]) -> None:
    beta = lab.fleet["beta"]
    assert beta.hostprep("plan --exit-code")["changes"] == []
    right = state_of(beta)
    beta.ssh(drift)
    found = beta.hostprep("plan --exit-code", expect=4)["changes"]
    assert {change["kind"] for change in found} == kinds
    assert all(change["reason"] for change in found)

    applied = beta.hostprep("apply --yes")
    assert applied["changed"]
    assert applied["done"] == found
    assert applied["pending"] == applied["failed"] == []
    assert beta.hostprep("plan --exit-code")["changes"] == []
    assert state_of(beta) == right


def state_of(host: Host) -> tuple[str, set[str], str]:
    """Return the lines of fstab, the options of the volume and what it holds."""
    fstab = host.ssh("cat /etc/fstab").stdout
    return fstab, mount_options(host), content_of(host, f"{VOLUME}/birds")


def test_a_host_that_dies_stops_no_other_and_a_later_run_completes_it(lab: Lab) -> None:
    make_source(lab.data / "fish", directories=10, files=60, seed=2)
    lab.controller.write_spec({**SPEC, "datasets": [BIRDS, FISH]})
    gamma = lab.fleet["gamma"]
    with lab.controller.start_provision() as run:
        copying_begins(gamma, run)
        gamma.power_off()
        said = lab.controller.said_by(run, expect=1)
    table = {words[0]: words[1:] for line in said.splitlines() if (words := line.split())}
    assert {name: table[name][1] for name in NAMES} == {
        "alpha": "no",
        "beta": "no",
        "gamma": "unreachable",
    }
    assert "the connection to it was lost in the step `Converge`: " in said
    for name in ("alpha", "beta"):
        assert dataset(lab.fleet[name], "fish")["state"] == "staged"

    gamma.start()
    gamma.wait_until_up()
    retried = by_host(lab.controller.provision("--retry-failed"))
    assert list(retried) == ["gamma"]
    assert retried["gamma"]["changed"] and not retried["gamma"]["failed"]
    assert dataset(gamma, "fish")["state"] == "staged"
    assert content_of(gamma, f"{VOLUME}/fish") == content_of(gamma, "/srv/datasets/fish")


def copying_begins(host: Host, run: subprocess.Popen[str]) -> None:
    """Wait until the host has some of the data set, and the run is not over."""
    count = f"find {VOLUME} -type f | wc -l"
    before = int(host.ssh(count).stdout)
    while run.poll() is None:
        if int(host.ssh(count).stdout) > before + 10:
            return
    raise AssertionError("the run was over before the host was seen staging")


def test_a_power_cut_while_staging_at_boot_is_made_up_for_by_the_next_boot(lab: Lab) -> None:
    alpha = lab.fleet["alpha"]
    before = dataset(alpha, "fish")
    alpha.restart()
    alpha.wait_for_ssh()
    while (state := dataset(alpha, "fish")["boot"]["state"]) != "staging":
        assert state == "waiting", "status never told that it was still coming up"
    alpha.power_off()

    alpha.start()
    alpha.wait_for_ssh()
    assert alpha.hostprep("wait fish birds --timeout 60")["ok"]
    after = dataset(alpha, "fish")
    assert (after["boot"]["state"], after["digest"]) == ("ready", before["digest"])
    assert content_of(alpha, f"{VOLUME}/fish") == content_of(alpha, "/srv/datasets/fish")
    assert alpha.hostprep("plan --exit-code")["changes"] == []


def test_waves_have_one_host_after_the_other_pull_from_the_server(lab: Lab) -> None:
    make_source(lab.data / "plants", directories=10, files=40, seed=3)
    lab.controller.write_spec({**SPEC, "datasets": [BIRDS, FISH, PLANTS]})
    done = lab.controller.provision("--waves", "3")
    assert not any(host["failed"] for host in done["hosts"])
    assert done["totals"]["bytes_per_s"] > 0
    digests = {dataset(host, "plants")["digest"] for host in lab.fleet.hosts}
    assert len(digests - {None}) == 1
    # By the files themselves: all hosts have the clock of one kernel.
    pulls = sorted(copied_between(host, f"{VOLUME}/plants") for host in lab.fleet.hosts)
    assert all(earlier[1] < later[0] for earlier, later in pairwise(pulls))


def copied_between(host: Host, folder: str) -> tuple[float, float]:
    """Return when the first and the last file below the folder was written, by their ctimes."""
    found = host.ssh(f"find {folder} -type f -printf '%C@\\n'").stdout.split()
    return min(map(float, found)), max(map(float, found))
