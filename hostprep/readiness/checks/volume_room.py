"""Is there room in each volume: bytes and inodes?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from hostprep.readiness.checks._volumes import JudgedVolume, judged_volumes, nothing_to_judge
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_bytes, format_count
from hostprep.volumes.model import LiveVolume

Facts = tuple[JudgedVolume, ...] | None
_FULL = 0.99


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each mounted volume of the spec."""
    yield from nothing_to_judge(facts)
    for volume in facts or ():
        if volume.live is not None:
            yield _judge_one(volume.live)


def _judge_one(live: LiveVolume) -> Finding:
    by_bytes = live.used_bytes / live.size_bytes if live.size_bytes else 0.0
    by_inodes = live.used_inodes / live.inodes if live.inodes else 0.0
    full = max(by_bytes, by_inodes)
    percent = math.floor(full * 1000) / 10  # 98.97% is below 99%
    free = "what memory there is"  # HP002 reports a volume without a limit
    if live.size_bytes:
        free = format_bytes(live.size_bytes - live.used_bytes)
    if live.inodes:
        free += f" and {format_count(live.inodes - live.used_inodes, 'inode')}"
    status = Status.PASS if full < _FULL else Status.WARN
    message, remedy = f"{live.path} has {free} free.", None
    if status is Status.WARN:
        message = f"{live.path} has {free} free: what is written there next fails with ENOSPC."
        key = "size" if by_bytes >= _FULL else "inodes"
        remedy = Remedy(
            ("hostprep status",),
            f"raise `{key}:` of {live.path} in the spec, then `hostprep apply`; or unstage"
            " something. A volume that need not hold more than it does now may stay as it is",
        )
    return Finding(
        status,
        live.path,
        message,
        Measured(f"{percent:g}% used", percent, "percent", "lower"),
        f"below {_FULL:.0%} of its bytes and inodes",
        "hostprep: a staged volume may be nearly full, but not entirely",
        round(_FULL * 100, 1),
        remedy,
    )


CHECK = Check(
    code="HP006",
    title="volumes have room left",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=judged_volumes,
    judge=judge,
    page="""\
Checks how much of each mounted volume is used, in bytes and in inodes, by statvfs(2). A volume that
was sized for its data set is meant to be nearly full, so the check names only volumes that are 99 %
full.

**WARN**: a hundredth or less of the bytes or inodes is left. An update of the data set, or a cache
that a framework writes beside it, then fails with "No space left on device" (ENOSPC). If the inodes
are used up, this happens although `df` still shows free space.

Raise `size:` or `inodes:` in the spec and run `hostprep apply`: a remount enlarges the volume.
""",
)
