"""May a training start as many processes and threads as its loader needs?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.capabilities import users_are_mapped
from hostprep.readiness.checks._limits import Limit, read_limit
from hostprep.readiness.checks._recommended import recommended
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status

# The limit counts everything that the user runs, the desktop included.
_OTHERS = 1024
_THREADS_OF_A_WORKER = 4


@dataclass(frozen=True, slots=True)
class Facts:
    """``workers`` of the last recommended loader, None where none is; ``root``: the host's."""

    limit: Limit
    workers: int | None
    root: bool


def look(context: Context) -> Facts:
    """Read the limit and the last recommendation."""
    limit = read_limit(context, "Max processes")
    root = context.euid == 0 and not users_are_mapped(context.root)
    return Facts(limit, recommended(context).workers, root)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the limit."""
    needed = _OTHERS + _THREADS_OF_A_WORKER * (facts.workers or 0)
    status, remedy = Status.PASS, None
    message = f"{facts.limit.shown} processes and threads are allowed."
    if facts.root:
        message = f"root is not held to the limit of {facts.limit.shown} processes."
    elif not facts.limit.allows(needed):
        status = Status.WARN
        message = (
            f"only {facts.limit.shown} processes and threads of this user are allowed: workers may"
            " not start ('Resource temporarily unavailable')."
        )
        hint = "in the shell that starts the training; for all: LimitNPROC= or limits.conf(5)"
        if not facts.limit.can_be(needed):
            hint = "it takes root to raise the hard limit; for all: LimitNPROC= or limits.conf(5)"
        remedy = Remedy((f"ulimit -u {needed}",), hint)
    yield Finding(
        status,
        "processes",
        message,
        Measured(facts.limit.shown, facts.limit.soft, "processes", "higher"),
        f"at least {needed:,}",
        f"hostprep: {_THREADS_OF_A_WORKER} threads a worker, {_OTHERS:,} for all else of the user",
        needed,
        remedy,
    )


CHECK = Check(
    code="HP023",
    title="processes suffice for the loader",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN}),
    look=look,
    judge=judge,
    page="""\
The soft limit of processes and threads (`ulimit -u`) of the shell that runs this, which a training
that is started there inherits. It counts all that the user runs. The host's root is not held to
it; root of a container that an ordinary user started is.

The need is 4 threads for each worker that `hostprep recommend` found, and 1,024 for everything else
of the user.

**WARN** the limit is below that: workers fail to start, or a library in them cannot make its
threads ("Resource temporarily unavailable").

`ulimit -u` in the shell or the job script; for services `LimitNPROC=` and `TasksMax=`, for logins
`/etc/security/limits.conf`.
""",
)
