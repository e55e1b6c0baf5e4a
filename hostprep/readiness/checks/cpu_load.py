"""Do others keep the processors busy before the training has started?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.reading import NO_PROC_HINT, first_number
from hostprep.readiness.checks._commands import WHO_COMPUTES
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_count

_MUCH_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Facts:
    """The load average over one minute, and the number of online processors."""

    load: float
    processors: int


def look(context: Context) -> Facts:
    """Read the load."""
    said = context.read("proc/loadavg")
    if said is None:
        raise CannotTell("there is no /proc/loadavg.", NO_PROC_HINT)
    load = first_number(said)
    if load is None:
        raise CannotTell("/proc/loadavg does not say how many processes ran.", NO_PROC_HINT)
    return Facts(load, context.cpu.online)


def judge(facts: Facts) -> Iterator[Finding]:
    """Compare the load with the number of processors."""
    share = facts.load / facts.processors
    status, remedy = Status.PASS, None
    count = format_count(facts.processors, "processor")
    message = f"{facts.load:.2f} processes ran or waited on {count} over the last minute."
    if share >= _MUCH_SHARE:
        status = Status.WARN
        message = (
            f"{facts.load:.2f} processes ran or waited for the disk on {count} over the last"
            " minute: the workers of a training run would share the processors with them."
        )
        remedy = Remedy(
            (WHO_COMPUTES,),
            "wait for them or end them; if HP047 warns too, it has the same cause, and says what"
            " they wait for. If they are the training itself, nothing is wrong; if they have just"
            " ended, check again in a minute. A container shows only its own processes, but the"
            " load is that of the whole machine: look on its host",
        )
    yield Finding(
        status,
        "load",
        message,
        Measured(f"load {facts.load:.2f}", facts.load, "processes", "lower"),
        f"below {_MUCH_SHARE * facts.processors:g}",
        "hostprep: half of the processors are free",
        _MUCH_SHARE * facts.processors,
        remedy,
    )


CHECK = Check(
    code="HP034",
    title="the processors are free",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN}),
    look=look,
    judge=judge,
    page="""\
Compares the load average over one minute (`/proc/loadavg`) with the number of online processors. It
counts the processes that run, wait for a processor or, in state D, wait for a disk.

**WARN**: the load is at least half the number of processors. Something else uses the machine (a
build, a backup, somebody else's job, or the previous run, which has not ended), and the workers of
a training run would share the processors with it. HP047 often warns at the same time, for the same
reason.

`ps -eo pid,user,stat,pcpu,args --sort=-pcpu | head` shows who it is. The average looks back: a job
that has just ended still shows for another minute.
""",
)
