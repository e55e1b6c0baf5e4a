"""Paths of other hosts, read from authored trees, and of this machine."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.host.block import PathStorage, StorageClass, classify, is_remote, locate
from hostprep.host.block_device import Transport
from hostprep.host.mounts import Mount

HOSTS = Path(__file__).parents[2] / "fixtures/hosts"


def on(host: str, path: str) -> PathStorage:
    return locate(path, HOSTS / host)


@pytest.mark.parametrize(
    ("host", "path", "expected", "disks"),
    [
        ("nvme-laptop", "/home/me/data", "nvme", ["nvme0n1"]),
        ("nvme-laptop", "/mnt/hostprep", "ram", []),
        ("sata-workstation", "/", "sata_flash", ["sdc"]),
        ("sata-workstation", "/data", "arm", ["sda", "sdb"]),
        ("sata-workstation", "/srv/image net/train", "arm", ["sda", "sdb"]),
        ("sata-workstation", "/media/stick", "unknown", ["sdd"]),
        ("sata-workstation", "/array", "unknown", ["sde"]),
        ("btrfs-two-disks", "/data", "arm", ["sda", "sdb"]),
        ("btrfs-two-disks", "/home", "unknown", ["sdc", "sdd"]),
        ("zfs-server", "/tank/imagenet/train", "arm", ["sda", "sdb"]),
        ("zfs-server", "/cold", "unknown", []),
        ("nfs-client", "/mnt/data", "network", []),
        ("nfs-client", "/mnt/share", "network", []),
        ("nfs-client", "/mnt/bucket", "fuse", []),
        ("nfs-client", "/", "virtual", ["sda"]),
        ("container-overlay", "/root", "overlay", []),
        ("container-overlay", "/dev/shm", "ram", []),
        ("container-overlay", "/data", "nvme", ["nvme0n1"]),
        ("cloud-virtual-disk", "/", "virtual", ["vda"]),
        ("cloud-virtual-disk", "/ebs", "virtual", ["nvme0n1"]),
        ("cloud-virtual-disk", "/essd", "virtual", ["nvme2n1"]),
        ("cloud-virtual-disk", "/scratch", "nvme", ["nvme1n1"]),
        ("cloud-virtual-disk", "/pd", "virtual", ["sda"]),
        ("cloud-virtual-disk", "/shared", "virtual", []),
        ("san-server", "/data", "unknown", ["sda", "sdb"]),
    ],
)
def test_class_and_disks_of_a_path(host: str, path: str, expected: str, disks: list[str]) -> None:
    storage = on(host, path)
    assert storage.storage_class == expected, storage.reason
    assert [disk.name for disk in storage.disks] == disks
    assert storage.reason


@pytest.mark.parametrize(
    ("realtime", "disks"), [("/dev/sdc1", ["sda", "sdb", "sdc"]), ("/dev/gone", [])]
)
def test_the_data_of_an_xfs_may_be_on_another_disk_than_its_own(
    realtime: str, disks: list[str], tmp_path: Path
) -> None:
    root = tmp_path / "host"
    shutil.copytree(HOSTS / "sata-workstation", root, symlinks=True)
    mounts = root / "proc/self/mountinfo"
    mounts.write_text(mounts.read_text().replace("noquota\n", f"noquota,rtdev={realtime}\n"))
    storage = locate("/data", root)
    assert storage.storage_class is StorageClass.UNKNOWN
    assert [disk.name for disk in storage.disks] == disks
    assert ("arm, sata_flash" in storage.reason) is bool(disks)


def test_chain_goes_from_lvm_through_crypt_and_raid_to_both_disks() -> None:
    devices = on("sata-workstation", "/data/x").devices
    assert [(device.name, device.kind, device.label) for device in devices] == [
        ("dm-1", "lvm", "vg0-data--sets"),
        ("dm-0", "crypt", "md0_crypt"),
        ("md0", "raid", "raid1"),
        ("sda1", "part", None),
        ("sda", "disk", None),
        ("sdb1", "part", None),
        ("sdb", "disk", None),
    ]


def test_a_device_carries_what_sysfs_says() -> None:
    disk = on("sata-workstation", "/data").disks[0]
    assert disk.model == "WDC WD40EFRX-68N"
    assert disk.transport is Transport.SATA
    assert disk.rotational_says_kernel is True
    assert disk.virtual is False
    assert disk.scheduler == "mq-deadline"
    assert disk.readahead_bytes == 128 * 1024
    assert disk.size_bytes == 7814037168 * 512
    assert on("nvme-laptop", "/").disks[0].scheduler == "none"


def test_of_a_virtual_disk_it_is_said_what_the_kernel_says_or_that_it_says_nothing() -> None:
    virtual = replace(on("cloud-virtual-disk", "/").disks[0], model=None)
    said = {True: "says that it rotates", False: "says that it does not rotate"}
    for rotates, words in {**said, None: "does not say whether it rotates"}.items():
        told = classify(replace(virtual, rotational_says_kernel=rotates))
        assert told == (StorageClass.VIRTUAL, f"vda is a virtual disk; the kernel {words}")


def test_virtio_that_claims_to_rotate_is_virtual_and_both_are_said() -> None:
    storage = on("cloud-virtual-disk", "/")
    assert storage.storage_class is StorageClass.VIRTUAL
    assert storage.disks[0].rotational_says_kernel is True
    assert "kernel says that it rotates" in storage.reason


def test_an_arrays_volume_that_claims_to_rotate_is_not_taken_for_an_arm() -> None:
    storage = on("san-server", "/data")
    assert [device.kind for device in storage.devices] == ["multipath", "disk", "disk"]
    assert all(disk.rotational_says_kernel for disk in storage.disks)
    assert "an array's volume" in storage.reason


def test_zfs_counts_the_partition_and_not_the_labelled_whole_disk_twice() -> None:
    names = [device.name for device in on("zfs-server", "/tank").devices]
    assert names == ["sda1", "sda", "sdb1", "sdb"]


def test_overlay_names_no_disk_although_the_hosts_disks_are_in_sysfs() -> None:
    storage = on("container-overlay", "/var/lib")
    assert storage.devices == ()
    assert "not visible" in storage.reason


def test_a_loop_device_is_as_its_file(tmp_path: Path) -> None:
    host = tmp_path / "host"
    shutil.copytree(HOSTS / "sata-workstation", host, symlinks=True)
    loop = host / "sys/devices/virtual/block/loop0"
    (loop / "loop").mkdir(parents=True)
    (loop / "dev").write_text("7:0\n")
    (loop / "loop/backing_file").write_text("/data/image.ext4\n")
    (host / "sys/dev/block/7:0").symlink_to("../../devices/virtual/block/loop0")
    info = host / "proc/self/mountinfo"
    line = "99 27 7:0 / /image rw,relatime - ext4 /dev/loop0 rw\n"
    info.write_text(info.read_text() + line)

    storage = locate("/image/a", host)
    assert storage.storage_class is StorageClass.ARM
    assert [device.name for device in storage.devices[:2]] == ["loop0", "dm-1"]
    assert [disk.name for disk in storage.disks] == ["sda", "sdb"]

    (loop / "loop/backing_file").write_bytes(b"/data/caf\xe9\n")  # where that file is, not another
    assert os.fsdecode(b"/data/caf\xe9:") in locate("/image/a", host).reason

    (loop / "loop/backing_file").write_text("/data/image.ext4 (deleted)\n")
    assert locate("/image/a", host).storage_class is StorageClass.UNKNOWN


def test_a_loop_on_itself_ends(tmp_path: Path) -> None:
    loop = tmp_path / "sys/devices/virtual/block/loop0"
    (loop / "loop").mkdir(parents=True)
    (loop / "loop/backing_file").write_text("/image/file\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/7:0").symlink_to("../../devices/virtual/block/loop0")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("1 0 7:0 / / rw - ext4 /dev/loop0 rw\n")
    assert locate("/image", tmp_path).storage_class is StorageClass.UNKNOWN


def test_this_machine_agrees_with_the_kernel_about_the_mount() -> None:
    storage = locate("/proc/self")
    assert storage.fstype == "proc"
    here = locate(__file__)
    device = os.stat(__file__).st_dev
    numbers = {here.mount.device, *(device.number for device in here.devices)}
    if here.fstype in ("ext4", "xfs", "tmpfs", "vfat"):  # others have numbers of their own
        assert f"{os.major(device)}:{os.minor(device)}" in numbers


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(HostprepError, match="/not/there"):
        locate("/not/there")


@pytest.mark.parametrize(
    ("fstype", "remote"),
    [
        ("nfs4", True),
        ("fuse", True),
        ("fuse.sshfs", True),
        ("fuseblk", False),  # ntfs-3g, on a disk
        ("fusectl", False),  # below /sys, on each host with systemd
        ("ext4", False),
    ],
)
def test_what_may_cease_to_answer(fstype: str, remote: bool) -> None:
    mount = Mount(1, 0, "0:1", "/", "/data", fstype, "it", (), ())
    assert is_remote(mount) is remote


def test_below_a_root_that_is_no_mount_it_is_said_what_makes_it_one(tmp_path: Path) -> None:
    """As in a chroot: the kernel lists what is mounted in it, and not what it lies on."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("30 27 254:0 /usr /usr rw - ext4 /dev/vda rw\n")
    with pytest.raises(HostprepError, match="no mount that can be seen here contains /data") as no:
        locate("/data", tmp_path)
    assert "`mount --bind DIR DIR` before `chroot DIR`" in str(no.value.hint)
