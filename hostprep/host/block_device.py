"""Block devices as sysfs describes them, and the chain from a device down to its disks.

Formats: Documentation/ABI/stable/sysfs-block, Documentation/block/queue-sysfs.rst; the prefixes of
``dm/uuid`` are those of LVM, cryptsetup and multipath-tools.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.reading import entries_of, matching, read_number, read_text


class Transport(StrEnum):
    """How a disk is attached, as far as its place in sysfs shows."""

    NVME = "nvme"
    FABRIC = "nvme-fabric"
    SATA = "sata"
    SCSI = "scsi"
    FIBRE_CHANNEL = "fibre-channel"
    USB = "usb"
    MMC = "mmc"
    VIRTIO = "virtio"
    HYPERVISOR = "hypervisor"
    NETWORK = "network"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Device:
    """One block device. None means that the kernel does not say.

    ``kind`` is disk, part, crypt, lvm, raid, multipath, dm, bcache, loop or ram. ``label`` is the
    device mapper's name or the level of a RAID. ``virtual``: a hypervisor presents the disk, and
    what is under it cannot be known from inside, whatever ``rotational_says_kernel`` claims.
    ``backing`` is the file of a loop device, which is ``cached`` if it reads that file through the
    page cache: then its counters say nothing about the storage below.
    """

    name: str
    kind: str
    number: str
    model: str | None = None
    label: str | None = None
    transport: Transport | None = None
    rotational_says_kernel: bool | None = None
    virtual: bool = False
    scheduler: str | None = None
    readahead_bytes: int | None = None
    size_bytes: int | None = None
    backing: str | None = None
    cached: bool = False


# The names that hypervisors and clouds give their disks. "Amazon EC2 NVMe Instance Storage" and
# Google's "nvme_card0" are real local flash and are left out on purpose.
_VIRTUAL_MODEL = re.compile(
    r"QEMU|VBOX|VMware|Virtual[ _]Disk|Virtual[ _]disk|PersistentDisk|nvme_card-pd"
    r"|Amazon Elastic Block Store|Alibaba Cloud Elastic Block Storage|MSFT NVMe Accelerator"
    r"|ORACLE *BlockVolume|BHYVE|Xen",
)
_PLACES = (
    (re.compile(r"/session\d+/"), Transport.NETWORK),  # iSCSI
    (re.compile(r"/rport-\d+:"), Transport.FIBRE_CHANNEL),
    (re.compile(r"/virtio\d+/"), Transport.VIRTIO),
    (re.compile(r"/(?:vbd-\d+|VMBUS:[^/]*|vmbus_[^/]*)/"), Transport.HYPERVISOR),
    (re.compile(r"/usb\d+/"), Transport.USB),
    (re.compile(r"/mmc_host/"), Transport.MMC),
    (re.compile(r"/ata\d+/"), Transport.SATA),
    (re.compile(r"/(?:nvme|nvme-subsystem|nvme-fabrics)/"), Transport.NVME),
    (re.compile(r"/host\d+/"), Transport.SCSI),
)
_NAMES = (
    (re.compile(r"(?:zram|ram|pmem)\d"), Transport.MEMORY),
    (re.compile(r"(?:nbd|rbd|drbd)\d"), Transport.NETWORK),
    (re.compile(r"xvd[a-z]"), Transport.HYPERVISOR),
    (re.compile(r"vd[a-z]"), Transport.VIRTIO),
)
_DM_KINDS = (
    ("LVM-", "lvm"),
    ("CRYPT-", "crypt"),
    ("mpath-", "multipath"),
    ("part", "part"),
    ("DMRAID-", "raid"),
)


def device_folder(number: str, root: Path = Path("/")) -> Path | None:
    """Return the sysfs folder of the device ``number`` (``259:2``), None if there is none."""
    link = root / "sys/dev/block" / number
    return link.resolve() if os.path.exists(link) else None


def folder_of_name(name: str, root: Path = Path("/")) -> Path | None:
    """Return the sysfs folder of a device file: ``/dev/sda1``, ``/dev/mapper/x``, ``sda1``.

    Names of the device mapper are looked up in ``dm/name``, because ``/dev`` may not be the host's.
    """
    short = name.removeprefix("/dev/")
    direct = root / "sys/class/block" / short.replace("/", "!")
    if os.path.exists(direct):
        return direct.resolve()
    mapped = short.removeprefix("mapper/")
    for folder in matching(root / "sys/class/block", "dm-*"):
        if _read(folder / "dm/name") == mapped:
            return folder.resolve()
    if root == Path("/") and os.path.exists(name):  # /dev/disk/by-uuid/..., /dev/vg/lv
        real = root / "sys/class/block" / os.path.basename(os.path.realpath(name))
        return real.resolve() if os.path.exists(real) else None
    return None


def chain(folder: Path) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """Return all devices from ``folder`` down, top first, and those of them that are the disks.

    A device under several others (two partitions of one disk in a RAID) appears once.
    """
    seen: dict[str, Device] = {}
    disks: dict[str, Device] = {}

    def descend(current: Path) -> None:
        device = read_device(current)
        if device.name in seen:
            return
        seen[device.name] = device
        below = _below(current)
        if not below:
            disks[device.name] = device
        for lower in below:
            descend(lower)

    descend(folder)
    return tuple(seen.values()), tuple(disks.values())


def _below(folder: Path) -> list[Path]:
    if os.path.exists(folder / "partition"):
        return [folder.parent]
    return sorted(entry.resolve() for entry in entries_of(folder / "slaves"))


def read_device(folder: Path) -> Device:
    """Return what sysfs says about the device in ``folder`` (a resolved path)."""
    name = folder.name.replace("!", "/")
    # A partition has no queue and no model of its own, but its disk's.
    disk = folder.parent if os.path.exists(folder / "partition") else folder
    kind, label = _kind(folder)
    model = _model(disk)
    transport = _transport(disk) if kind in ("disk", "part", "ram") else None
    virtual = transport in (Transport.VIRTIO, Transport.HYPERVISOR) or bool(
        model and _VIRTUAL_MODEL.search(model)
    )
    rotational = _read(disk / "queue/rotational")
    readahead = read_number(disk / "queue/read_ahead_kb")
    sectors = read_number(folder / "size")
    return Device(
        name=name,
        kind=kind,
        number=_read(folder / "dev") or "",
        model=model,
        label=label,
        transport=transport,
        rotational_says_kernel=None if rotational is None else rotational == "1",
        virtual=virtual,
        scheduler=_scheduler(disk),
        readahead_bytes=None if readahead is None else readahead * 1024,
        size_bytes=None if sectors is None else sectors * 512,  # sectors of 512 whatever the disk's
        backing=_read(folder / "loop/backing_file"),
        cached=_read(folder / "loop/dio") == "0",
    )


def _kind(folder: Path) -> tuple[str, str | None]:
    if os.path.exists(folder / "partition"):
        return "part", None
    if os.path.isdir(folder / "dm"):
        uuid = _read(folder / "dm/uuid") or ""
        kind = next((kind for prefix, kind in _DM_KINDS if uuid.startswith(prefix)), "dm")
        return kind, _read(folder / "dm/name")
    if os.path.isdir(folder / "md"):
        return "raid", _read(folder / "md/level")
    if os.path.exists(folder / "bcache") and folder.name.startswith("bcache"):
        return "bcache", None
    if folder.name.startswith("loop"):
        return "loop", None
    if _NAMES[0][0].match(folder.name):
        return "ram", None
    return "disk", None


def _model(disk: Path) -> str | None:
    parts = [_read(disk / "device/vendor"), _read(disk / "device/model")]
    # "ATA" comes from the translation layer, "0x1af4" is a virtio number: neither is a vendor.
    words = [part for part in parts if part and part != "ATA" and not part.startswith("0x")]
    return " ".join(words) or _read(disk / "device/name")


def _transport(disk: Path) -> Transport | None:
    for pattern, transport in _NAMES:
        if pattern.match(disk.name):
            return transport
    for pattern, transport in _PLACES:
        if pattern.search(f"{disk}/"):
            if transport is Transport.NVME and _fabric(disk):
                return Transport.FABRIC
            return transport
    return None


def _fabric(disk: Path) -> bool:
    """Return whether an NVMe namespace is reached over a network."""
    said = [_read(disk / "device/transport")]
    said += [_read(path) for path in matching(disk / "device", "nvme[0-9]*/transport")]
    words = [word for word in said if word]
    return bool(words) and all(word != "pcie" for word in words)


def _scheduler(disk: Path) -> str | None:
    text = _read(disk / "queue/scheduler")
    if text is None:
        return None
    chosen = re.search(r"\[([^\]]+)\]", text)
    return chosen[1] if chosen else text


def _read(path: Path) -> str | None:
    return read_text(path) or None
