"""Is every volume mounted with the options, mode and owner that it should have?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.readiness.checks._commands import mount_line
from hostprep.readiness.checks._volumes import (
    JudgedVolume,
    judged_volumes,
    nothing_to_judge,
    with_owners,
)
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.volumes.model import FLAGS, LiveVolume

Facts = tuple[JudgedVolume, ...] | None


def look(context: Context) -> Facts:
    """Read how the volumes are mounted, and who should own them."""
    return with_owners(judged_volumes(context))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each mounted volume of the spec."""
    yield from nothing_to_judge(facts)
    for volume in facts or ():
        if volume.live is not None:
            yield volume.beside_owner(_judge_one(volume, volume.live))


def _judge_one(volume: JudgedVolume, live: LiveVolume) -> Finding:
    path, wanted = volume.spec.path, volume.wanted
    lost = [flag for flag in FLAGS if not getattr(live, flag)]
    found = [f"{flag} is missing" for flag in lost]
    if wanted.mode is not None and wanted.mode != live.mode:
        found.append(f"mode {live.mode:04o} instead of {wanted.mode:04o}")
    if wanted.owner is not None and wanted.owner != f"{live.uid}:{live.gid}":
        found.append(f"owner {live.uid}:{live.gid} instead of {wanted.owner}")
    if wanted.huge is not None and wanted.huge != live.huge:
        found.append(f"huge={live.huge} instead of huge={wanted.huge}")
    if wanted.inodes is not None and live.inodes is not None and live.inodes < wanted.inodes:
        found.append(f"{live.inodes} inodes instead of {wanted.inodes}")
    hint = "a remount: what is in it stays"
    if found:
        remedy = volume.changing((mount_line(wanted),), hint)
    else:
        remedy = Remedy(volume.making_writable(), hint)
    if "ro" in live.options:  # no spec asks for this
        found.append("read-only")
    measured = Measured(", ".join(found) or "as wanted", ", ".join(found) or None)
    says = "the spec, or the volume's line in fstab for what the spec leaves open"
    if not found:
        message = f"{path} has its options, mode and owner."
        return Finding(Status.PASS, path, message, measured, "as wanted", says)
    # Allowing programs or device nodes is a security hole; the rest is just a difference.
    status = Status.FAIL if lost else Status.WARN
    message = f"{path} is not mounted as it should be: {', '.join(found)}."
    return Finding(status, path, message, measured, "as wanted", says, remedy=remedy)


CHECK = Check(
    code="HP003",
    title="volumes have their options, mode and owner",
    severity=Severity.MINOR,
    verdicts=frozenset(Status),
    look=look,
    judge=judge,
    page="""\
Checks the mount options of each mounted volume: `nosuid`, `nodev` and `noexec`, which every volume
of hostprep has, and mode, owner, `huge=` and the number of inodes as given in the spec. What the
spec leaves open is compared with the volume's line in fstab, so that a `chmod` by hand is found
too.

**FAIL**: one of the three flags is missing: somebody has remounted the volume, and whoever may
write to it can place programs or device nodes there for others.
**WARN**: anything else differs; or the volume is read-only: training can read from it, but nothing
can be staged into it or updated.
**UNKNOWN**: this host has no user or group with the name that the spec gives as the owner; the
finding also says what else differs, and a missing flag is still a FAIL.

`hostprep mount` with the printed options remounts the volume; nothing in it is lost.
`hostprep apply` does the same for what the spec names; a mode, owner or `huge=` that the spec
leaves open stays as it is mounted and as it is in fstab.
""",
)
