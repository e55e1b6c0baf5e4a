"""Does a cgroup limit processor time to less than all processors?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.cgroup_folders import limits_are_hidden
from hostprep.host.cgroups import read_cpu_quotas, read_cpu_throttling
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.units import format_count


@dataclass(frozen=True, slots=True)
class Quota:
    """A cgroup that limits processor time; it cut short ``throttled`` of ``periods``."""

    group: str
    cpus: float
    version: int
    periods: int | None
    throttled: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The quotas that apply to this process, closest first, and the processors it may use.

    ``hidden``: its control group cannot be seen, so there may be other quotas.
    """

    quotas: tuple[Quota, ...]
    processors: int
    hidden: bool


def look(context: Context) -> Facts:
    """Read the quotas and how often each took effect."""
    felt = {each.group: each for each in read_cpu_throttling(context.root)}
    found = []
    for quota in read_cpu_quotas(context.root):
        version = 2 if context.read(f"{quota.group}/cpu.max") is not None else 1
        counts = felt.get(quota.group)
        found.append(
            Quota(
                quota.group,
                quota.cpus,
                version,
                None if counts is None else counts.periods,
                None if counts is None else counts.throttled,
            )
        )
    return Facts(tuple(found), context.cpu.affinity, limits_are_hidden("cpu", context.root))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the tightest quota; the remedy lifts all that are too tight."""
    tight = [quota for quota in facts.quotas if quota.cpus < facts.processors]
    processors = format_count(facts.processors, "processor")
    if not tight:
        message = f"no cgroup gives less than the {processors}"
        if facts.hidden:
            message += (
                ", or none that can be seen: /sys/fs/cgroup does not show the cgroup of this"
                " process"
            )
        yield Finding(
            Status.PASS,
            "processor time",
            f"{message}.",
            Measured("no quota" if not facts.quotas else "wide enough", None),
            processors,
            "the affinity of this process",
        )
        return
    least = min(tight, key=lambda quota: quota.cpus)
    felt = ""
    if least.periods and least.throttled is not None:
        felt = f", and was throttled in {least.throttled:,} of {least.periods:,} periods"
    yield Finding(
        Status.FAIL if least.cpus < 1 else Status.WARN,
        "processor time",
        f"cgroup {least.group} gives {least.cpus:g} of the {processors}{felt}: if there is a worker"
        f" for each processor, they stand still for up to {1 - least.cpus / facts.processors:.0%}"
        " of the time.",
        Measured(f"{least.cpus:g} processors", least.cpus, "processors", "higher"),
        processors,
        "the affinity of this process",
        facts.processors,
        Remedy(
            tuple(map(_lift, tight)),
            "this lasts until whoever set it sets it again, and a container may not lift its own:"
            " to lift it permanently, change it where it was set (docker run --cpus, CPUQuota= of a"
            " systemd unit, limits.cpu in Kubernetes). If it is intended, `hostprep recommend`"
            " takes it into account",
        ),
    )


def _lift(quota: Quota) -> str:
    if quota.version == 2:
        return f"echo max > {quote(quota.group + '/cpu.max')}"
    return f"echo -1 > {quote(quota.group + '/cpu.cfs_quota_us')}"


CHECK = Check(
    code="HP030",
    title="no quota holds the processors back",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL}),
    look=look,
    judge=judge,
    page="""\
Compares the CPU quotas of this process's cgroup and of all cgroups above it (`cpu.max`, or
`cpu.cfs_quota_us`) with the number of processors that the process may run on. `os.cpu_count()`
knows nothing about quotas, so loaders start one worker per processor, and the kernel then stops all
of them for the rest of each period. `cpu.stat` counts how often this has happened. Inside a
container, the cgroups above its own may not be visible.

**FAIL**: the quota is less than one processor, so not even the main process runs freely.
**WARN**: the quota is less than the number of processors that the process may run on.

Lift the quota where it was set: `docker run --cpus`, `CPUQuota=`, `limits.cpu`; the printed command
lifts it until it is set again. If the quota is intended, use the number of workers that
`hostprep recommend` gives.
""",
)
