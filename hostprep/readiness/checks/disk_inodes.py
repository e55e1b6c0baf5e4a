"""Can more files be created on the disks that are staged to?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.readiness.checks._room import Facts, Scale, judge_room, look
from hostprep.readiness.model import Check, Finding, Remedy, Severity, Status


def _remedy(point: str) -> Remedy:
    return Remedy(
        (f"du -x --inodes --max-depth=2 {point} | sort -n | tail -n 20",),
        "shows the folders with the most files; ext4 fixes the number of inodes when it is made"
        " (mkfs.ext4 -i)",
    )


_INODES = Scale(
    unit="inodes",
    noun=" inodes",
    say=lambda count: f"{count:,.0f}",
    little=100_000,
    little_for_records=1_000,
    ample=1_000_000,
    remedy=_remedy,
    counts=lambda space: (space.inodes, space.free_inodes),
)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each file system that has a limit."""
    for room in facts.rooms:
        if room.read_only:  # HP041 reports it
            message = f"{room.mount_point} is mounted read-only, so its free inodes do not matter."
            yield Finding(Status.SKIP, room.mount_point, message)
        else:
            yield judge_room(room, _INODES)


CHECK = Check(
    code="HP042",
    title="disks have inodes",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
An ext4 file system has a fixed number of inodes: once all are used, it refuses new files ("No space
left on device"), however many bytes are free. Data sets of small files use up inodes. xfs, btrfs
and ZFS create inodes as they are needed; btrfs does not count them.

**WARN**: 80 % of the inodes are used, and fewer than a million are free.
**FAIL**: 85 % are used, and fewer than 100,000 are free; or fewer than 1,000, if nothing is staged
to the file system and it only holds hostprep's records.
""",
)
