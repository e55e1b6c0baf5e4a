"""Does a disk have an I/O scheduler that suits it?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.block import StorageClass
from hostprep.readiness.checks._disks import Disk, disks, no_disk, seats
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote

_FLASH = (StorageClass.NVME, StorageClass.SATA_FLASH)
_FROM = (
    "Red Hat, Managing storage devices: setting the disk scheduler;"
    " kernel, Documentation/block/bfq-iosched"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """The disks whose scheduler the kernel reports; ``nothing`` says so if there is none."""

    disks: tuple[Disk, ...]
    nothing: str


def look(context: Context) -> Facts:
    """Read which scheduler each disk has."""
    found = seats(context)
    return Facts(tuple(disk for disk in disks(found) if disk.device.scheduler), no_disk(found))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each disk."""
    if not facts.disks:
        yield Finding(Status.SKIP, "disks", facts.nothing)
    for disk in facts.disks:
        yield _judge_one(disk)


def _judge_one(disk: Disk) -> Finding:
    name, chosen = disk.device.name, disk.device.scheduler or ""
    in_sysfs = name.replace("/", "!")  # udev's KERNEL has the slash
    wanted, better = "any", None
    message = f"{name} has the I/O scheduler {chosen}."
    if disk.storage_class in _FLASH:
        wanted = "none, mq-deadline or kyber"
        if chosen == "bfq":
            better = "none" if disk.storage_class is StorageClass.NVME else "mq-deadline"
            message = (
                f"{name} has the I/O scheduler bfq, whose work for every request slows flash down."
            )
    elif disk.storage_class is StorageClass.ARM:
        wanted = "mq-deadline or bfq"
        if chosen == "none":
            better = "mq-deadline"
            message = (
                f"{name} is a hard disk without an I/O scheduler: its requests are not sorted."
            )
    return Finding(
        Status.PASS if better is None else Status.WARN,
        name,
        message,
        Measured(chosen, chosen),
        wanted,
        _FROM,
        remedy=None
        if better is None
        else Remedy(
            (f"echo {better} > {quote(f'/sys/block/{in_sysfs}/queue/scheduler')}",),
            f'until the next boot; permanently with a udev rule: KERNEL=="{name}",'
            f' ATTR{{queue/scheduler}}="{better}"',
        ),
    )


CHECK = Check(
    code="HP045",
    title="the I/O scheduler fits the disk",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Checks the I/O scheduler of each disk under the spec's paths, which
`/sys/block/DISK/queue/scheduler` shows in brackets. Flash needs none, or a simple one; a hard disk
benefits from sorted requests. For a virtual disk any scheduler is fine, because the host below it
orders the requests.

**WARN**: a flash disk uses bfq, which is made for interactive work on slow disks and costs
processor time for each request; or a hard disk uses none. Neither stops a training run. The printed
command changes the scheduler at once, a udev rule changes it permanently.
""",
)
