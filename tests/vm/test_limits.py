"""What control groups leave of a machine, where the kernel has version 2 of them and no other."""

from __future__ import annotations

import pytest

from tests.vm.kit.machine import Machine

# The limits are of the slice above: the service itself has none, and sees them only by looking up.
_BELOW_LAB = "systemd-run --quiet --pipe --wait --collect --slice lab-one.slice --"


@pytest.fixture(scope="module", autouse=True)
def limited(vm: Machine) -> None:
    vm.start()
    assert vm.ssh("stat -fc %T /sys/fs/cgroup").stdout == "cgroup2fs\n"
    limits = "MemoryMax=1G CPUQuota=50% AllowedCPUs=1"
    vm.ssh(f"systemctl set-property --runtime lab.slice {limits}")


def test_memory_and_processors_are_those_that_a_slice_above_leaves(vm: Machine) -> None:
    free, held = vm.hostprep("facts"), vm.hostprep("facts", within=_BELOW_LAB)
    assert (free["cpu"]["usable"], held["cpu"]["usable"]) == (2.0, 0.5)
    assert held["cpu"]["affinity"] == 1
    assert free["headroom"]["available_bytes"] > 1 << 30 >= held["headroom"]["available_bytes"]
    assert "lab.slice" in held["headroom"]["available_from"]


def test_a_volume_that_the_slice_has_no_memory_for_is_refused(vm: Machine) -> None:
    words = "mount /mnt/lab --size 900M --reserve 256M"
    refused = vm.hostprep(words, expect=5, within=_BELOW_LAB)
    assert "lab.slice" in refused["error"]["message"]
    assert vm.ssh("findmnt /mnt/lab", check=False).returncode == 1
    vm.hostprep(f"{words} --dry-run")


def test_a_limit_of_reads_is_not_taken_for_what_the_disk_gives(vm: Machine) -> None:
    vm.ssh("mkdir /srv/set && head -c 8M /dev/urandom | split -a 3 -b 40K - /srv/set/; sync")
    vm.ssh("systemctl set-property --runtime lab.slice CPUQuota= 'IOReadBandwidthMax=/dev/vda 3M'")
    probed = vm.hostprep("probe /srv/set --seconds 20", expect=4, within=_BELOW_LAB)
    assert "read_limited" in {reason["code"] for reason in probed["invalid_reasons"]}
