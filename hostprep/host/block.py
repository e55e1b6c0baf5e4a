"""What a path really lies on: its mount, its file system, and the devices down to the disks.

Read from mountinfo and sysfs alone, so that a captured tree gives the same answer as its host. A
class that cannot be known is ``unknown``, with the reason; it is never guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, reading_hint
from hostprep.host.block_device import Device, Transport, chain, device_folder, folder_of_name
from hostprep.host.mounts import Mount, mount_containing, mount_of, read_mounts
from hostprep.host.reading import entries_of, matching, read_lines
from hostprep.system.descriptors import closing_fd
from hostprep.system.following import followed

_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "afs",
                      "orangefs", "pvfs2", "panfs", "wekafs"})  # fmt: skip
# These keep files in memory.
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_MEMORY = IN_MEMORY | {"devtmpfs", "hugetlbfs"}
_FROM_HOST = frozenset({"virtiofs", "9p", "vboxsf", "vmhgfs", "prl_fs"})
# The kernel itself generates what is in these, much of it only when it is read, and some of it is
# gone once it was read.
MADE_UP = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs",
                     "configfs", "pstore", "bpf", "efivarfs", "devpts", "devtmpfs", "mqueue",
                     "fusectl", "binfmt_misc", "selinuxfs", "smackfs", "resctrl", "nsfs", "nfsd",
                     "rpc_pipefs"})  # fmt: skip
# Controllers that hide their disks behind a volume, which by default says that it rotates.
_HARDWARE_RAID = re.compile(r"PERC|LOGICAL VOLUME|MegaRAID|\bMR\d{4}|ServeRAID|Smart Array|RAID")
_LOOPS_AT_MOST = 8


class StorageClass(StrEnum):
    """What kind of storage a path lies on; ``arm`` is a hard disk, whose head has to move."""

    ARM = "arm"
    SATA_FLASH = "sata_flash"
    NVME = "nvme"
    NETWORK = "network"
    RAM = "ram"
    OVERLAY = "overlay"
    FUSE = "fuse"
    VIRTUAL = "virtual"
    UNKNOWN = "unknown"


# A server or a program stands in front of the disk, and may stop answering.
SERVED = (StorageClass.NETWORK, StorageClass.FUSE)
_SAYS_NOTHING = (StorageClass.UNKNOWN, StorageClass.FUSE, StorageClass.NETWORK)


@dataclass(frozen=True, slots=True)
class PathStorage:
    """A path's storage. ``devices`` go from the file system down; ``disks`` are the lowest ones.

    ``reason`` says in one sentence why it has this class. It is the kernel's claim: for a virtual
    disk only a measurement says more.
    """

    path: str
    mount: Mount
    devices: tuple[Device, ...]
    disks: tuple[Device, ...]
    storage_class: StorageClass
    reason: str

    @property
    def fstype(self) -> str:
        """Return the type of the file system."""
        return self.mount.fstype


def locate(path: str | os.PathLike[str], root: Path = Path("/")) -> PathStorage:
    """Return what ``path`` (which must exist if ``root`` is ``/``) lies on.

    On a dead network mount this hangs, like any access to the path: ask in a child first. Raises
    ``HostprepError`` if the path does not exist or no mount contains it.
    """
    return _locate(os.fspath(path), root, _LOOPS_AT_MOST)


def _locate(path: str, root: Path, loops_left: int) -> PathStorage:
    mounts = read_mounts(root)
    if root == Path("/"):
        path, mount = _real(path, mounts)
    else:
        path = os.path.normpath(path)
        mount = mount_containing(path, mounts)
    if mount is None:
        raise HostprepError(
            f"no mount that can be seen here contains {path}, so what it lies on is not known.",
            "in a chroot the root has to be a mount point: outside, `mount --bind DIR DIR` before"
            " `chroot DIR`",
        )
    devices, disks = _devices(mount, root)
    storage_class, reason = _judge(mount, devices, disks)
    loops = [disk for disk in disks if disk.kind == "loop"]
    if storage_class is StorageClass.UNKNOWN and loops and len(loops) == len(disks):
        return _through_loop(path, mount, devices, loops, root, loops_left)
    return PathStorage(path, mount, devices, disks, storage_class, reason)


def _real(path: str, mounts: Iterable[Mount]) -> tuple[str, Mount | None]:
    """Return the real path, and its mount by the kernel's own number.

    The longest mount point is only second best: a later mount may cover it.
    """
    real = followed(path)
    try:
        # The dot makes an automounter mount; a plain O_PATH open would stop at its empty folder.
        descriptor = os.open(os.path.join(real, ".") if os.path.isdir(real) else real, os.O_PATH)
    except OSError as error:
        raise HostprepError(
            f"{path} cannot be looked at: {error.strerror}.", reading_hint(error)
        ) from None
    mounts = tuple(mounts)
    with closing_fd(descriptor):
        # The second look finds what the automounter has mounted just now.
        mount = mount_of(descriptor, mounts) or mount_of(descriptor, read_mounts())
    return real, mount or mount_containing(real, mounts)


def _devices(mount: Mount, root: Path) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """Return all devices under a mount and the disks among them; none if none can be seen."""
    if mount.fstype in _MEMORY or mount.fstype in _NETWORK or mount.fstype == "overlay":
        return (), ()
    own = device_folder(mount.device, root)
    folders = [] if own is None else [own]
    if not folders and mount.fstype == "zfs":
        folders = _zfs_members(mount.source, root)
    elif not folders and mount.source.startswith("/dev/"):
        # btrfs and bcachefs have an anonymous number; bcachefs joins its sources by colons.
        named = [folder_of_name(source, root) for source in mount.source.split(":")]
        folders = [folder for folder in named if folder]
        if mount.fstype == "btrfs" and folders:
            folders = _btrfs_members(folders[0], root)
    if mount.fstype == "xfs" and (realtime := mount.option("rtdev")):
        # Another disk, on which XFS puts the data of files that are marked for it, or of all files.
        if (folder := folder_of_name(realtime, root)) is None:
            return (), ()
        folders.append(folder)
    devices: dict[str, Device] = {}
    disks: dict[str, Device] = {}
    for folder in folders:
        some, lowest = chain(folder)
        devices |= {device.name: device for device in some if device.name not in devices}
        disks |= {device.name: device for device in lowest}
    return tuple(devices.values()), tuple(disks.values())


def _btrfs_members(one: Path, root: Path) -> list[Path]:
    """Return the sysfs folders of all devices of the btrfs that ``one`` belongs to."""
    for listing in matching(root / "sys/fs/btrfs", "*-*/devices"):
        members = {entry.name: entry.resolve() for entry in entries_of(listing)}
        if one.name in members:
            return list(members.values())
    return [one]


def _zfs_members(dataset: str, root: Path) -> list[Path]:
    """Return the devices of a pool by what udev found on them; the kernel itself does not say."""
    pool = dataset.split("/")[0]
    members = []
    for entry in matching(root / "run/udev/data", "b*:*"):
        lines = read_lines(entry)
        if "E:ID_FS_TYPE=zfs_member" in lines and f"E:ID_FS_LABEL={pool}" in lines:
            folder = device_folder(entry.name[1:], root)
            if folder:
                members.append(folder)
    # A whole disk given to ZFS carries the label too: keep its partition, which holds the data.
    return [one for one in members if not any(other.parent == one for other in members)]


def _through_loop(
    path: str,
    mount: Mount,
    devices: tuple[Device, ...],
    loops: list[Device],
    root: Path,
    loops_left: int,
) -> PathStorage:
    """Follow loop devices into the storage of their files."""
    below: list[PathStorage] = []
    for loop in loops:
        backing = loop.backing
        if backing is None or backing.endswith(" (deleted)") or not loops_left:
            reason = f"the file behind {loop.name} cannot be seen"
            return PathStorage(path, mount, devices, tuple(loops), StorageClass.UNKNOWN, reason)
        try:
            below.append(_locate(backing, root, loops_left - 1))
        except HostprepError:
            reason = f"the file behind {loop.name}, {backing}, is not visible here"
            return PathStorage(path, mount, devices, tuple(loops), StorageClass.UNKNOWN, reason)
    all_devices = {device.name: device for device in devices}
    disks: dict[str, Device] = {}
    for storage in below:
        all_devices |= {device.name: device for device in storage.devices}
        disks |= {device.name: device for device in storage.disks}
    classes = {storage.storage_class for storage in below}
    if len(classes) == 1:
        storage_class = classes.pop()
        reason = f"through the loop device's file {loops[0].backing}: {below[0].reason}"
    else:
        storage_class, reason = StorageClass.UNKNOWN, _mixed(classes)
    if storage_class in _SAYS_NOTHING and all(loop.rotational_says_kernel for loop in loops):
        # Loop devices do not rotate by themselves: this one inherited that from its file's disk,
        # which cannot be seen here, or was set so.
        storage_class = StorageClass.ARM
        reason = f"{loops[0].name} says that it rotates; {reason}"
    return PathStorage(
        path, mount, tuple(all_devices.values()), tuple(disks.values()), storage_class, reason
    )


def is_remote(mount: Mount) -> bool:
    """Whether a server or a program serves the file system, so that it may stop answering."""
    # Not fuseblk, which is on a disk, nor fusectl, which every host with systemd has mounted.
    fuse = mount.fstype == "fuse" or mount.fstype.startswith("fuse.")
    return fuse or mount.fstype in _NETWORK


def _judge(
    mount: Mount, devices: tuple[Device, ...], disks: tuple[Device, ...]
) -> tuple[StorageClass, str]:
    fstype = mount.fstype
    if fstype in _MEMORY:
        return StorageClass.RAM, f"{fstype} keeps files in memory"
    if fstype in _NETWORK:
        return StorageClass.NETWORK, f"{fstype} from {mount.source}"
    if fstype == "overlay":
        upper = mount.option("upperdir")
        where = f"upper folder {upper}" if upper else "read-only layers"
        return StorageClass.OVERLAY, f"overlay ({where}); its layers' disks are not visible from it"
    if fstype.startswith("fuse"):
        return StorageClass.FUSE, f"{fstype}: a program serves {mount.source}"
    if fstype in MADE_UP:
        return StorageClass.UNKNOWN, f"the kernel generates all that is in {fstype}: no storage"
    if fstype in _FROM_HOST:
        return StorageClass.VIRTUAL, f"{fstype}: a folder of the machine that runs this one"
    if not devices:
        if fstype == "zfs":
            pool = mount.source.split("/")[0]
            return StorageClass.UNKNOWN, f"the disks of the ZFS pool {pool} are not visible here"
        return StorageClass.UNKNOWN, f"no block device of {mount.source} is visible in sysfs"
    verdicts = [classify(disk) for disk in disks]
    classes = {verdict[0] for verdict in verdicts}
    if len(classes) > 1:
        return StorageClass.UNKNOWN, _mixed(classes)
    reasons = dict.fromkeys(verdict[1] for verdict in verdicts)
    return classes.pop(), "; ".join(reasons)


def _mixed(classes: set[StorageClass]) -> str:
    return "disks of several classes together: " + ", ".join(sorted(classes))


def classify(disk: Device) -> tuple[StorageClass, str]:
    """Return the class of one disk as the kernel describes it, and why."""
    what = f"{disk.name} ({disk.model})" if disk.model else disk.name
    if disk.kind == "loop":
        return StorageClass.UNKNOWN, f"{disk.name} is a loop device"
    if disk.virtual:
        claim = {
            True: "says that it rotates",
            False: "says that it does not rotate",
            None: "does not say whether it rotates",
        }
        said = claim[disk.rotational_says_kernel]
        return StorageClass.VIRTUAL, f"{what} is a virtual disk; the kernel {said}"
    match disk.transport:
        case Transport.MEMORY:
            return StorageClass.RAM, f"{what} is memory"
        case Transport.NETWORK | Transport.FABRIC:
            return StorageClass.NETWORK, f"{what} is reached over a network"
        case Transport.NVME:
            return StorageClass.NVME, f"{what} is an NVMe drive"
        case Transport.FIBRE_CHANNEL:
            # Even flash arrays mostly report that their volumes rotate.
            return StorageClass.UNKNOWN, f"{what} is an array's volume, which hides its disks"
        case Transport.MMC:
            return StorageClass.UNKNOWN, f"{what} is a flash card, of unknown quality"
        case Transport.USB | Transport.SATA | Transport.SCSI:
            return _classify_scsi(disk, what)
    return StorageClass.UNKNOWN, f"how {what} is attached is not visible"


def _classify_scsi(disk: Device, what: str) -> tuple[StorageClass, str]:
    if disk.model and _HARDWARE_RAID.search(disk.model):
        return StorageClass.UNKNOWN, f"{what} is a RAID controller's volume, which hides its disks"
    if disk.rotational_says_kernel is False:
        return StorageClass.SATA_FLASH, f"{what} on {disk.transport} does not rotate"
    if disk.rotational_says_kernel is None or disk.transport is Transport.USB:
        # The kernel says "rotates" for every USB device that does not deny it, even for sticks.
        return StorageClass.UNKNOWN, f"{what} on {disk.transport} does not tell whether it rotates"
    return StorageClass.ARM, f"{what} on {disk.transport} rotates"
