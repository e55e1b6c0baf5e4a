"""Does a hard disk read ahead?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.block import StorageClass
from hostprep.readiness.checks._disks import no_disk, seats
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import KIB, format_bytes

# VM_READAHEAD_PAGES of include/linux/mm.h: the value of every device unless somebody changed it.
_DEFAULT_BYTES = 128 * KIB


@dataclass(frozen=True, slots=True)
class Device:
    """The device that a file system is on: its read-ahead counts, not that of disks below it."""

    name: str
    storage_class: StorageClass
    readahead_bytes: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Each device once; ``nothing`` says so if there is none."""

    devices: tuple[Device, ...]
    nothing: str


def look(context: Context) -> Facts:
    """Read how far ahead the devices under the paths read."""
    found = seats(context)
    devices = {
        top.name: Device(top.name, seat.storage.storage_class, top.readahead_bytes)
        for seat in found
        if seat.storage
        for top in seat.storage.devices[:1]
        if top.readahead_bytes is not None
    }
    return Facts(tuple(devices.values()), no_disk(found))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each device; only a disk with a moving arm is slow at reading in small pieces."""
    if not facts.devices:
        yield Finding(Status.SKIP, "disks", facts.nothing)
    for device in facts.devices:
        size = format_bytes(device.readahead_bytes)
        arm = device.storage_class is StorageClass.ARM
        low = arm and device.readahead_bytes < _DEFAULT_BYTES
        message = f"{device.name} reads {size} ahead."
        if low:
            message = (
                f"{device.name} reads only {size} ahead: with several readers, its arm moves after"
                " each small piece."
            )
        yield Finding(
            Status.WARN if low else Status.PASS,
            device.name,
            message,
            Measured(size, device.readahead_bytes, "bytes"),
            f"at least {format_bytes(_DEFAULT_BYTES)}" if arm else None,
            "the kernel's default, VM_READAHEAD_PAGES" if arm else None,
            _DEFAULT_BYTES if arm else None,
            Remedy(
                (f"blockdev --setra 4096 /dev/{device.name}",),
                "2 MiB, until the next boot; permanently with a udev rule:"
                f' KERNEL=="{device.name}", ATTR{{bdi/read_ahead_kb}}="2048"',
            )
            if low
            else None,
        )


CHECK = Check(
    code="HP046",
    title="hard disks read ahead",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Checks how far the kernel reads ahead of a program that reads sequentially, on the device of the
file system (`queue/read_ahead_kb`). This matters for large files and shards that are read through
the page cache; it makes little difference on flash, and small files are read as a whole anyway.

**WARN**: a hard disk reads ahead less than 128 KiB, which is the kernel's own default: somebody has
lowered it, perhaps for a database. If several readers are at work, the arm of the disk moves
elsewhere between two small pieces. `blockdev --setra 4096` sets 2 MiB, which suits a disk that
streams.
""",
)
