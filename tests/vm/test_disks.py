"""What a path really sits on, where disks are put together by the kernel: md, LVM, encryption."""

from __future__ import annotations

import pytest

from tests.vm.kit.machine import Machine

_BUILD = """
set -e
modprobe -a raid0 dm-crypt
mdadm --create /dev/md0 --run --level 0 --raid-devices 2 /dev/nvme0n1 /dev/nvme1n1
printf secret | cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 /dev/sda -
printf secret | cryptsetup open /dev/sda vault -
pvcreate -q /dev/mapper/vault
vgcreate -q lab /dev/mapper/vault
lvcreate -q -n data -l 100%FREE lab
for each in md0 lab/data; do
  mkfs.xfs -q /dev/$each
  mkdir -p /srv/${each%/*}
  mount /dev/$each /srv/${each%/*}
done
"""


@pytest.fixture(scope="module", autouse=True)
def built(vm: Machine) -> None:
    vm.add_disk("fast0", "nvme,serial=fast0", megabytes=512)
    vm.add_disk("fast1", "nvme,serial=fast1", megabytes=512)
    vm.devices += ("-device", "virtio-scsi-pci")
    vm.add_disk("arm", "scsi-hd,rotation_rate=7200", megabytes=512)
    vm.start()
    vm.ssh(_BUILD)


@pytest.mark.parametrize(
    ("path", "device_class", "disks"),
    [
        ("/srv/md0", "flash", ["nvme0n1", "nvme1n1"]),
        ("/srv/lab", "arm", ["sda"]),
    ],
)
def test_a_path_is_of_the_disks_below_whatever_lies_between(
    vm: Machine, path: str, device_class: str, disks: list[str]
) -> None:
    (found,) = vm.hostprep(f"facts {path}")["paths"]
    assert (found["class"], sorted(found["disks"])) == (device_class, disks)


def test_an_arm_below_lvm_and_encryption_is_read_in_its_order_by_one(vm: Machine) -> None:
    vm.ssh("cd /srv/lab && mkdir set && head -c 8M /dev/urandom | split -a 3 -b 40K - set/")
    vm.ssh("sync; echo 3 >/proc/sys/vm/drop_caches")
    done = vm.hostprep("stage /srv/lab/set --to /srv/md0")
    assert done["verified"] and done["files"] == 205
    vm.ssh("diff -r /srv/lab/set /srv/md0/set")
    assert not vm.hostprep("stage /srv/lab/set --to /srv/md0")["changed"]
