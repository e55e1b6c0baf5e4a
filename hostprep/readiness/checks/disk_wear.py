"""Do the disks report that they are healthy, and how worn are they?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.block import StorageClass
from hostprep.host.block_health import PACKAGE, WANTED_FOR, Health, health_in, smartctl_line
from hostprep.readiness.checks._disks import disks, seats
from hostprep.readiness.context import Context
from hostprep.readiness.model import (
    Check,
    Finding,
    Measured,
    NotInstalled,
    Remedy,
    Severity,
    Status,
)
from hostprep.units import format_count

_WORN_PERCENT = 80
_HAVE_SMART = (StorageClass.NVME, StorageClass.SATA_FLASH, StorageClass.ARM)


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that may have SMART: its health, or a ``problem`` if it could not be asked.

    Neither: it was asked, but does not report any. ``asleep``: it was not woken up for this.
    """

    name: str
    health: Health | None = None
    problem: str | None = None
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The physical disks under the paths, or why none of them could be asked by this user."""

    disks: tuple[Disk, ...]
    not_asked: str | None = None


def look(context: Context) -> Facts:
    """Ask every disk through smartctl."""
    names = [
        disk.device.name for disk in disks(seats(context)) if disk.storage_class in _HAVE_SMART
    ]
    shown = ", ".join(names)
    if names and context.euid != 0:
        message = (
            f"only root may read the SMART data of {shown}; as root, run hostprep check --only"
            " HP043."
        )
        return Facts((), message)
    try:
        return Facts(tuple(_ask(context, name) for name in names))
    except NotInstalled:
        message = (
            f"smartctl, which reads the SMART data of {shown}, is not installed (apt-get install"
        )
        return Facts((), f"{message} {PACKAGE}).")


def _ask(context: Context, name: str) -> Disk:
    try:
        done = context.command(smartctl_line(name), wanted_for=WANTED_FOR, package=PACKAGE)
    except NotInstalled:
        raise  # then no disk can be asked
    except HostprepError as error:
        return Disk(name, problem=error.message)
    return Disk(name, health_in(done), asleep="STANDBY" in done.stdout or "SLEEP" in done.stdout)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each disk."""
    if facts.not_asked is not None:
        yield Finding(Status.SKIP, "disks", facts.not_asked)
    elif not facts.disks:
        message = (
            "none of the paths is on a local physical disk, and virtual and remote disks do not"
            " report wear."
        )
        yield Finding(Status.SKIP, "disks", message)
    for disk in facts.disks:
        yield _judge_one(disk)


def _judge_one(disk: Disk) -> Finding:
    name, health = disk.name, disk.health
    if disk.problem is not None:
        remedy = Remedy((f"smartctl -a /dev/{name}",), "a disk that does not answer is dying")
        return Finding(Status.UNKNOWN, name, disk.problem, remedy=remedy)
    if health is None:
        why = "is asleep, and was not woken up" if disk.asleep else "reports nothing through SMART"
        return Finding(Status.SKIP, name, f"{name} {why}.")
    status, message = _found(name, health)
    used = health.used_percent
    return Finding(
        status,
        name,
        message,
        Measured("wear not reported", None)
        if used is None
        else Measured(f"{used}% worn", used, "percent", "lower"),
        f"passed, below {_WORN_PERCENT}% worn, no lost sectors",
        "the disk's own verdict and NVMe's percentage_used (SATA: its vendor's attribute)",
        _WORN_PERCENT,
        None
        if status is Status.PASS
        else Remedy(
            # smartctl starts NVMe self-tests from 7.4 on; Debian 12 has 7.3, Ubuntu 22.04 7.2.
            (
                f"smartctl -x /dev/{name}",
                *(() if name.startswith("nvme") else (f"smartctl -t short /dev/{name}",)),
            ),
            "copy what exists only there to another disk, and have a replacement ready",
        ),
    )


def _found(name: str, health: Health) -> tuple[Status, str]:
    if health.passed is False:
        return Status.FAIL, f"{name} reports that it is failing; what is on it may be lost soon."
    if health.media_errors:
        lost = f"{format_count(health.media_errors, 'media error')} or unreadable"
        lost += " sector" if health.media_errors == 1 else " sectors"
        return Status.WARN, f"{name} reports {lost}: a file there may be lost."
    used = health.used_percent
    if used is not None and used >= _WORN_PERCENT:
        return Status.WARN, f"{name} has used up {used}% of the writes that it is rated for."
    worn = "" if used is None else f", {used}% worn"
    return Status.PASS, f"{name} reports that it is healthy{worn}."


CHECK = Check(
    code="HP043",
    title="disks are healthy",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Checks what the disks under the spec's paths report about themselves through `smartctl` (package
smartmontools, as root): their own verdict, media errors (SATA: sectors waiting to be replaced), and
wear, which is `percentage_used` of NVMe, or the attribute in which the vendor of a SATA drive
counts it down.

**FAIL**: the disk reports that it is failing.
**WARN**: the disk reports media errors, or has used up 80 % of the writes that it is rated for; at
100 % it is out of warranty but still works.
**UNKNOWN**: the disk does not answer.

Virtual disks, disks behind a network or a RAID controller, and sleeping disks, which are not woken
up, are a SKIP. The check is also a SKIP for users other than root and without `smartctl`, because
no disk can be asked then.
""",
)
