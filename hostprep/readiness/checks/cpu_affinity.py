"""May this process run on all processors?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.cpu import allowed_and_online
from hostprep.host.lists import parse_list
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_count


@dataclass(frozen=True, slots=True)
class Facts:
    """Logical processors; ``online_list`` in the kernel's form, ``0-15``.

    ``isolated`` are those that the scheduler does not use by itself, in the same form, if nothing
    else keeps this process from processors; otherwise empty.
    """

    affinity: int
    online: int
    online_list: str
    isolated: str


def look(context: Context) -> Facts:
    """Read the processors."""
    cpu = context.cpu
    listed = (context.read("sys/devices/system/cpu/online") or "").strip()
    isolated = (context.read("sys/devices/system/cpu/isolated") or "").strip()
    allowed, online = allowed_and_online(context.root)
    alone = online - allowed <= parse_list(isolated)
    return Facts(
        cpu.affinity, cpu.online, listed or f"0-{cpu.online - 1}", isolated if alone else ""
    )


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the affinity."""
    status, remedy = Status.PASS, None
    message = "its one processor may be used."
    if facts.online > 1:
        message = f"all {facts.online} processors may be used."
    if facts.affinity < facts.online:
        status = Status.WARN
        message = (
            f"this shell, and all that is started from it, may run on only {facts.affinity} of"
            f" {facts.online} processors."
        )
        remedy = Remedy(
            (f"taskset --cpu-list --pid {facts.online_list} $$",),
            "in the shell that starts the training. If a cpuset confines it (Slurm, docker run"
            " --cpuset-cpus), ask for more there; if that is intended, nothing is wrong",
        )
        if facts.isolated:
            message += f" The kernel's scheduler leaves {facts.isolated} alone (isolcpus=)."
            remedy = Remedy(
                hint="remove isolcpus= from the kernel's command line (GRUB_CMDLINE_LINUX in"
                " /etc/default/grub, update-grub) and reboot: a wider affinity alone moves"
                " nothing there. If it is intended, nothing is wrong",
            )
    yield Finding(
        status,
        "affinity",
        message,
        Measured(format_count(facts.affinity, "processor"), facts.affinity, "processors", "higher"),
        format_count(facts.online, "processor"),
        "the processors that are online",
        facts.online,
        remedy,
    )


CHECK = Check(
    code="HP031",
    title="all processors may be used",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN}),
    look=look,
    judge=judge,
    page="""\
Compares the processors that this process may run on (`Cpus_allowed_list`) with those that are
online. A training run inherits its processors from the shell that starts it, and its workers
inherit them from the training run.

**WARN**: the process may not use all of them, because of `taskset`, a cpuset of Slurm or Docker, or
a library that has pinned its process. All workers then share what is left. The same happens with
`isolcpus=` on the kernel's command line: the scheduler moves no process to the isolated processors,
whatever the affinity says.

`taskset --cpu-list --pid 0-15 $$` widens the affinity of the shell; a cpuset has to be widened
where it was set.
""",
)
