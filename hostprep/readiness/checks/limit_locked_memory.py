"""May memory be locked for InfiniBand, where there is any?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hostprep.readiness.checks._limits import Limit, read_limit
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status


@dataclass(frozen=True, slots=True)
class Facts:
    """``devices`` are the names of the InfiniBand devices; ``limit`` is None without any."""

    devices: tuple[str, ...]
    limit: Limit | None


def look(context: Context) -> Facts:
    """Read the devices and the limit."""
    folder = context.root / "sys/class/infiniband"
    devices = tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()
    return Facts(devices, read_limit(context, "Max locked memory") if devices else None)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the limit."""
    if facts.limit is None:
        message = "there is no InfiniBand here, and CUDA's pinned memory is not held to the limit."
        yield Finding(Status.SKIP, "locked memory", message)
        return
    status, remedy = Status.PASS, None
    devices = ", ".join(facts.devices)
    message = f"memory may be locked without limit, as {devices} needs it."
    if facts.limit.soft is not None:
        status = Status.WARN
        message = (
            f"only {facts.limit.shown} bytes may be locked, and {devices} locks what it sends:"
            " NCCL fails ('ibv_reg_mr: Cannot allocate memory')."
        )
        hint = "in the shell that starts the training; for all: LimitMEMLOCK= or limits.conf(5)"
        if facts.limit.hard is not None:
            hint = "it takes root to raise the hard limit; for all: LimitMEMLOCK=, limits.conf(5)"
        remedy = Remedy(("ulimit -l unlimited",), hint)
    yield Finding(
        status,
        "locked memory",
        message,
        Measured(facts.limit.shown, facts.limit.soft, "bytes", "higher"),
        "unlimited",
        "NCCL's troubleshooting page on InfiniBand",
        remedy=remedy,
    )


CHECK = Check(
    code="HP024",
    title="memory may be locked for InfiniBand",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
The soft limit of locked memory (`ulimit -l`), on hosts with InfiniBand alone: what is sent through
it must be locked, and NCCL fails where the limit is small. Memory that CUDA pins (`pin_memory`) is
locked by the driver and not held to this limit, so elsewhere this is skipped.

**WARN** the limit is not "unlimited".

`ulimit -l unlimited` in the job script; for services `LimitMEMLOCK=infinity`, for logins a line
`* - memlock unlimited` in `/etc/security/limits.conf`.
""",
)
