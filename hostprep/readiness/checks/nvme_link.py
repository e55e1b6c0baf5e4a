"""Does an NVMe drive use all the lanes and the full speed that it could?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.host.block import StorageClass
from hostprep.host.block_link import nvme_link
from hostprep.readiness.checks._disks import disks, seats
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.units import format_rate


@dataclass(frozen=True, slots=True)
class Link:
    """A drive's narrowest link, as a probe saw it in use, or as it is now.

    ``degraded``: its device supports ``best``. ``path`` is a path on the drive.
    """

    name: str
    path: str
    words: str
    best: str
    at: str
    degraded: bool
    bytes_per_s: float
    in_use: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """The drives whose link the kernel reports."""

    links: tuple[Link, ...]


def look(context: Context) -> Facts:
    """Read the links, from the newest probe of the drive if there is one."""
    found = []
    for disk in disks(seats(context)):
        if disk.storage_class is not StorageClass.NVME:
            continue
        name, path = disk.device.name, disk.paths[0]
        from_probe = probed(context, name)
        if from_probe is not None:
            found.append(link_of(name, path, from_probe, in_use=True))
        elif link := nvme_link(name, context.root):
            now = {**asdict(link), "degraded": link.degraded}
            found.append(link_of(name, path, now, in_use=False))
    return Facts(tuple(found))


def probed(context: Context, name: str) -> dict[str, Any] | None:
    """Return the fields of a drive's link from the newest probe of just that drive."""
    for probe in context.probes:
        device = probe["device"]
        if device["link"] and device["disks"] == [name]:
            link: dict[str, Any] = device["link"]
            return link
    return None


def link_of(name: str, path: str, link: dict[str, Any], *, in_use: bool) -> Link:
    """Return the link of a drive from its fields."""
    return Link(
        name=name,
        path=path,
        words=_say(link["speed_gt_per_s"], link["width"]),
        best=_say(link["max_speed_gt_per_s"], link["max_width"]),
        at=link["at"],
        degraded=link["degraded"],
        bytes_per_s=link["bytes_per_s"],
        in_use=in_use,
    )


def _say(speed: float | None, width: int | None) -> str:
    return " ".join(
        [*([] if width is None else [f"x{width}"]), *([] if speed is None else [f"{speed:g} GT/s"])]
    )


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each drive; never worse than WARN, because an idle link may have slowed down."""
    if not facts.links:
        yield Finding(
            Status.SKIP, "disks", "none of the paths is on an NVMe drive that reports its link."
        )
    for link in facts.links:
        yield _judge_one(link)


def _judge_one(link: Link) -> Finding:
    when = "when it was probed" if link.in_use else "now"
    message = f"{link.name}: {link.words} at {link.at} {when} ({format_rate(link.bytes_per_s)})."
    if link.degraded:
        message = f"{message[:-1]}, although {link.best} is possible."
        if not link.in_use:
            message += " Some links slow down while idle."
    probe = f"hostprep probe {quote(link.path)}"
    return Finding(
        Status.WARN if link.degraded else Status.PASS,
        link.name,
        message,
        Measured(link.words, link.bytes_per_s, "bytes/s", "higher"),
        link.best or "what its device could do",
        f"the drive's max_link_speed and max_link_width, at {link.at}",
        remedy=Remedy(
            (probe,) if not link.in_use else (f"lspci -vv -s {link.at} | grep Lnk", probe),
            "probing reads the link while it is in use; then reseat the drive, use a slot with all"
            " its lanes and no riser, and see the board's manual for lanes that the slot shares",
        )
        if link.degraded
        else None,
    )


CHECK = Check(
    code="HP044",
    title="links of NVMe drives are whole",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Compares the narrowest PCIe link between each NVMe drive and the processor with what the device at
its lower end could do (`current_link_*` and `max_link_*` in sysfs). Half the lanes mean half the
rate, whatever the data sheet of the drive says.

Some links slow down while idle. What `hostprep probe` read while the drive was working therefore
takes precedence over what sysfs says now.

**WARN**: the link is narrower or slower than it could be. The slot has fewer lanes or an older
generation, a riser or dirt is in the way, or the link is asleep. It is never worse than WARN: HP062
judges the rates that a training run needs, from measurements.
""",
)
