"""What comes back after a real boot, and what a power cut leaves of a run."""

from __future__ import annotations

import time

import pytest

from tests.vm.kit.machine import Machine

_SPEC = """
volumes:
  - path: /mnt/hostprep
    size: 128M
datasets:
  - name: birds
    source: /srv/disk/birds
    volume: /mnt/hostprep
    at_boot: true
"""
_PREPARE = f"""
set -e
mkfs.ext4 -q -L data /dev/disk/by-id/virtio-data
mkdir /srv/disk
echo 'LABEL=data /srv/disk ext4 defaults,nofail 0 2' >>/etc/fstab
mount /srv/disk
mkdir /srv/disk/birds
head -c 24M /dev/urandom | split -a 3 -b 30K - /srv/disk/birds/
sync
cat >/etc/hostprep.yml <<'END'
{_SPEC}
END
"""
# How long a run goes on before the power is cut, by the journal of the disk: at its start, in the
# middle, and about where it is published.
_CUTS_SECONDS = (2.0, 4.0, 6.0, 8.0, 11.0)


@pytest.fixture(scope="module", autouse=True)
def prepared(vm: Machine) -> None:
    vm.add_disk("data", "virtio-blk-pci,serial=data", megabytes=512)
    vm.start()
    vm.ssh(_PREPARE)


def test_after_a_reboot_all_is_as_the_spec_says(vm: Machine) -> None:
    vm.hostprep("apply /etc/hostprep.yml --yes --reserve 256M")
    vm.reboot()
    assert vm.ssh("systemctl is-system-running").stdout == "running\n"
    vm.hostprep("wait birds --timeout 120")
    vm.ssh("diff -r /srv/disk/birds /mnt/hostprep/birds")
    assert vm.hostprep("plan /etc/hostprep.yml --exit-code")["changes"] == []


@pytest.mark.parametrize("seconds", _CUTS_SECONDS)
def test_what_is_there_after_a_power_cut_is_whole(vm: Machine, seconds: float) -> None:
    vm.ssh("hostprep unstage /srv/disk/ram/birds >&2 || true; sync")
    fstab = vm.ssh("sha256sum /etc/fstab").stdout
    vm.ssh("systemd-run --quiet hostprep stage /srv/disk/birds --to /srv/disk/ram")
    time.sleep(seconds)
    vm.cut_power()
    vm.start()
    assert vm.ssh("sha256sum /etc/fstab").stdout == fstab
    if vm.ssh("test -e /srv/disk/ram/birds", check=False).returncode == 0:
        vm.ssh("diff -r /srv/disk/birds /srv/disk/ram/birds")
    assert vm.hostprep("stage /srv/disk/birds --to /srv/disk/ram")["verified"]
    vm.ssh("diff -r /srv/disk/birds /srv/disk/ram/birds")
