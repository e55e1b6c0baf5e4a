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
# How long a run goes on before the power is cut: as it begins, in the middle, and about where it is
# published, on a machine as slow as one that is emulated.
_CUTS_SECONDS = (3.0, 6.0, 9.0)


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
    copy = "/srv/disk/ram/birds"
    vm.ssh(f"if [ -e {copy} ]; then hostprep unstage {copy} --json; fi; sync; test ! -e {copy}")
    run = "hostprep stage /srv/disk/birds --to /srv/disk/ram"
    vm.ssh(f"systemd-run --quiet --unit run --property RemainAfterExit=yes {run}")
    time.sleep(seconds)
    vm.ssh("systemctl is-active run")
    vm.cut_power()
    vm.start()
    if vm.ssh(f"test -e {copy}", check=False).returncode == 0:
        vm.ssh(f"diff -r /srv/disk/birds {copy}")
    assert vm.hostprep("stage /srv/disk/birds --to /srv/disk/ram")["verified"]
    vm.ssh(f"diff -r /srv/disk/birds {copy}")


def test_fstab_is_the_old_file_or_the_new_one_after_a_power_cut(vm: Machine) -> None:
    """It is written again and again until then, with a line for a volume and without."""
    kept = vm.ssh("cat /etc/fstab; sync").stdout
    vm.ssh(
        "systemd-run --quiet --unit writer sh -c 'while hostprep mount /mnt/v --size 1M --fstab"
        " --reserve 1M; do hostprep unmount /mnt/v --fstab; done'"
    )
    time.sleep(15)
    vm.ssh("systemctl is-active writer")
    vm.cut_power()
    vm.start()
    lines = vm.ssh("cat /etc/fstab").stdout.splitlines(keepends=True)
    added = [line for line in lines if "/mnt/v" in line]
    assert len(added) <= 1 and all(line.endswith("\n") for line in added)
    assert "".join(line for line in lines if line not in added) == kept
