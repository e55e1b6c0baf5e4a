"""What a path really sits on, where disks are put together by the kernel: md, LVM, encryption."""

from __future__ import annotations

import pytest

from tests.vm.kit.machine import Machine

_BUILD = """
set -e
mdadm --create /dev/md0 --run --level 0 --raid-devices 2 /dev/sdb /dev/sdc
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
    # Of a controller and a maker that no hypervisor has: a disk that says QEMU is a virtual one.
    vm.devices += ("-device", "lsi53c895a")
    for name, rate in (("arm", 7200), ("flash0", 1), ("flash1", 1)):
        made_by = f"vendor=SEAGATE,product={name},serial={name},rotation_rate={rate}"
        vm.add_disk(name, f"scsi-hd,{made_by}", megabytes=512)
    vm.start()
    vm.ssh(_BUILD)


@pytest.mark.parametrize(
    ("path", "device_class", "disks"),
    [
        ("/srv/md0", "sata_flash", ["sdb", "sdc"]),
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
    assert done["planned_readers"] == 1
    vm.ssh("diff -r /srv/lab/set /srv/md0/set")
    assert not vm.hostprep("stage /srv/lab/set --to /srv/md0")["changed"]
