"""Is there room on the disks that are staged to, and for hostprep's records?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.readiness.checks._room import Facts, Room, Scale, judge_room, look
from hostprep.readiness.model import Check, Finding, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.units import GIB, MIB, format_bytes


def _remedy(point: str) -> Remedy:
    return Remedy(
        (f"du -xh --max-depth=2 {point} | sort -h | tail -n 20", "hostprep status"),
        "show the largest folders and the data sets; remove a data set that nobody trains on any"
        " more with hostprep unstage NAME",
    )


_BYTES = Scale(
    unit="bytes",
    noun="",
    say=format_bytes,
    little=10 * GIB,
    little_for_records=100 * MIB,
    ample=50 * GIB,
    remedy=_remedy,
    counts=lambda space: (space.size_bytes, space.free_bytes),
)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each file system by how much ordinary users can still write."""
    for room in facts.rooms:
        yield _read_only(room) if room.read_only else judge_room(room, _BYTES)


def _read_only(room: Room) -> Finding:
    """Return a WARN, not a FAIL: staged data can still be read, and may be another host's."""
    point = room.mount_point
    writable = f"mount -o remount,rw {quote(point)}, once `dmesg` says why it is not writable"
    if not room.staged_to:
        writable += (
            "; or, as in a container that is read-only on purpose, set HOSTPREP_STATE_DIR to"
            " another place for hostprep's records"
        )
    what = "nothing can be staged to it" if room.staged_to else "hostprep cannot keep records there"
    return Finding(
        Status.WARN,
        point,
        f"{point} is mounted read-only (it is for {', '.join(room.paths)}): {what}.",
        remedy=Remedy((f"findmnt -T {quote(point)}",), writable),
    )


CHECK = Check(
    code="HP041",
    title="disks have room",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Checks the space on the file systems of the spec's `to:` targets and of hostprep's records, by
statvfs(2). Free means what ordinary users may still write.

Meta's GCM warns at 80 % and treats 85 % as critical. On a large disk that still leaves hundreds of
gigabytes, and a disk for staging is meant to be full of data sets, so a percentage alone is not
enough here.

**WARN**: 80 % are used, and less than 50 GiB are free. Also if the file system is mounted
read-only, as the kernel leaves a disk with errors (`errors=remount-ro`).
**FAIL**: 85 % are used, and less than 10 GiB are free: checkpoints and logs are what fails next. If
nothing is staged to the file system and it only holds hostprep's records, the limit is 100 MiB
instead: a small system disk is not a fault.
""",
)
