"""Does every volume have the size that the spec wants?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.readiness.checks._commands import mount_line
from hostprep.readiness.checks._sizes import is_same_size
from hostprep.readiness.checks._volumes import JudgedVolume, judged_volumes, nothing_to_judge
from hostprep.readiness.model import Check, Finding, Measured, Severity, Status
from hostprep.units import format_bytes

Facts = tuple[JudgedVolume, ...] | None


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each mounted volume of the spec."""
    yield from nothing_to_judge(facts)
    for volume in facts or ():
        if volume.live is not None:
            yield _judge_one(volume, volume.live.size_bytes)


def _judge_one(volume: JudgedVolume, size_bytes: int) -> Finding:
    path, wanted = volume.spec.path, format_bytes(volume.size_bytes)
    measured = Measured(format_bytes(size_bytes), size_bytes, "bytes")
    remedy = None
    if volume.has_size(size_bytes):
        status, message = Status.PASS, f"{path} has {format_bytes(size_bytes)}, as the spec says."
    elif not size_bytes:
        status, measured = Status.WARN, Measured("no limit", None, "bytes")
        message = (
            f"{path} has no limit, but the spec wants {wanted}"
            f" ({_who_differs(volume, size_bytes)}): it may take all of the memory."
        )
        remedy = volume.unlimited()
    else:
        smaller = size_bytes < volume.size_bytes
        status = Status.FAIL if smaller else Status.WARN
        follows = "it may take memory that the spec leaves to others"
        if smaller:
            follows = "what is staged next may not fit"
        message = (
            f"{path} has {format_bytes(size_bytes)}, but the spec wants {wanted}"
            f" ({_who_differs(volume, size_bytes)}): {follows}."
        )
        remedy = volume.changing((mount_line(volume.undrifted),), "what is in it stays")
    return Finding(
        status,
        path,
        message,
        measured,
        wanted,
        "`size:` in the spec",
        volume.size_bytes,
        remedy,
    )


def _who_differs(volume: JudgedVolume, size_bytes: int) -> str:
    if volume.foreign:
        return "it is not the one that hostprep or its line in fstab mounted"
    line_bytes = None if volume.line is None else volume.line.size_bytes
    if line_bytes is None:
        return "fstab says nothing about it"
    if volume.has_size(line_bytes):
        return "fstab says the same as the spec: it was remounted by hand"
    if is_same_size(line_bytes, size_bytes):
        return "fstab agrees with what is mounted: the spec was changed since"
    return f"fstab says {format_bytes(line_bytes)}: all three differ"


CHECK = Check(
    code="HP002",
    title="volumes have the size of the spec",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.SKIP}),
    look=judged_volumes,
    judge=judge,
    page="""\
Compares the size of each mounted volume, by statvfs(2), with `size:` in the spec. A percentage
refers to this host's RAM, and may be off by one percent. If a cgroup limits this process, the same
percentage of that limit is accepted as well, because that is what `hostprep apply` makes in a
container.

The check also reads the line in fstab, to say which of the three differs: a volume that was
remounted by hand, a spec that was changed and not applied, or both.

**FAIL**: the volume is smaller: staging runs out of space.
**WARN**: the volume is larger, or has no limit, as after `mount -o remount,size=0`: it may take
memory that the spec left to others.

`hostprep mount PATH --size SIZE --fstab` (or `hostprep apply`) remounts the volume with the size of
the spec. Nothing in it is lost; the command refuses if the volume holds more than the new size. A
volume without a limit cannot be given one until it is unmounted. If there is too little memory for
the size of the spec, the remedy says how to free some.
""",
)
