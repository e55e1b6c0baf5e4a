"""Is memory left for the training once every volume is as full as it may become?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.memory import COMMIT_LIMIT, Headroom
from hostprep.readiness.checks._commands import making_room
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_bytes
from hostprep.volumes.budget import default_reserve

# A volume's reserve is at least 4 GiB; a small machine may not have that much at all.
_SMALL_MACHINE_SHARE = 4


@dataclass(frozen=True, slots=True)
class Facts:
    """``promised_bytes`` is how much hostprep's volumes may still grow, inodes included.

    ``unlimited`` are those that have no size limit and may take everything.
    """

    headroom: Headroom
    promised_bytes: int
    unlimited: tuple[str, ...] = ()


def look(context: Context) -> Facts:
    """Read what is available and what the volumes may still take."""
    live = [each.live for each in context.volumes if each.live is not None]
    unlimited = tuple(each.path for each in live if not each.size_bytes)
    return Facts(context.headroom, sum(each.promised_bytes for each in live), unlimited)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge what is left."""
    small = facts.headroom.ram_bytes // _SMALL_MACHINE_SHARE
    least = min(default_reserve(facts.headroom), small)
    room, promised = _tighter(facts)
    available = room.available_bytes
    left = available - promised
    status = Status.FAIL if left < 0 else Status.WARN if left < least else Status.PASS
    message = f"{format_bytes(available)} are available according to {room.available_from}"
    if promised:
        message += f", and the volumes may still take {format_bytes(promised)}"
    if room.limits_hidden:
        message += ", or less: /sys/fs/cgroup does not show the control group of this process"
    unlimited = ", ".join(facts.unlimited)
    if unlimited:
        message += f"; {unlimited} has no size limit, and may take all of it"
    remedy = None
    if status is not Status.PASS:
        over = "the kernel will then kill processes"
        if room.available_from == COMMIT_LIMIT:
            over = "the kernel will then give programs no more memory"
        message += f": {over if left < 0 else 'little is left for a training run'}"
        remedy = making_room(room, promised)
    elif unlimited:
        status = Status.WARN
        remedy = Remedy(
            ("hostprep status",),
            f"unstage what is in {unlimited}, `hostprep unmount` it, then `hostprep apply`: the"
            " kernel sets a limit only when a volume is mounted",
        )
    yield Finding(
        status,
        "memory",
        f"{message}.",
        Measured(f"{format_bytes(max(0, left))} left", left, "bytes", "higher"),
        f"at least {format_bytes(least)} left",
        "hostprep's reserve: the larger of 4 GiB and a tenth of the RAM, but at most a quarter",
        least,
        remedy,
    )


def _tighter(facts: Facts) -> tuple[Headroom, int]:
    """Return the tighter limit, machine or cgroup, and how much of it is promised to volumes.

    The memory of a volume is charged to the cgroup of the process that fills it. That is usually
    not the job that reads it, so the room left in volumes counts against the machine only.
    """
    machine = facts.headroom.machine or facts.headroom
    if machine.available_bytes - facts.promised_bytes <= facts.headroom.available_bytes:
        return machine, facts.promised_bytes
    return facts.headroom, 0


CHECK = Check(
    code="HP021",
    title="memory is left once the volumes are full",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL}),
    look=look,
    judge=judge,
    page="""\
Checks the memory that the kernel can give out without swapping (MemAvailable), minus what
hostprep's volumes may still take: their unused room, and about 1 KiB for each inode that is not
used yet.

If the limit of this process's cgroup leaves less, or the memory nodes (NUMA) to which a cpuset or
`numactl --membind` confines it, that counts instead. Nothing is subtracted from it for the volumes,
because what fills a volume is charged to the process that fills it, not to a job that reads it.
(`hostprep stage` makes sure by itself that a copy fits into the limit of the cgroup that it runs
in.) If the kernel gives programs and tmpfs together no more than its commit limit
(`vm.overcommit_memory=2`), what is left of that counts, if it is less.

**FAIL**: the volumes alone would exceed the memory. When they fill up, the kernel kills processes,
and that does not free what is in a tmpfs.
**WARN**: less is left than hostprep reserves for the machine, which is the larger of 4 GiB and a
tenth of its RAM, but a quarter of it at most. Or a volume has no size limit, as after
`mount -o remount,size=0`, and may take everything.

Use smaller volumes (`size:` in the spec, then `hostprep apply`), run fewer other programs, or give
the cgroup a larger limit.
""",
)
