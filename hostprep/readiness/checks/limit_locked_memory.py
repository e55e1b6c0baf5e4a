"""May memory be locked for InfiniBand, if there is any?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.capabilities import Capability, has_capability, users_are_mapped
from hostprep.readiness.checks._limits import Limit, raising, read_limit
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Check, Finding, Measured, Severity, Status


@dataclass(frozen=True, slots=True)
class Facts:
    """``devices`` are the names of the InfiniBand devices; ``limit`` is None without any.

    ``privileged``: the limit does not apply, because of this process's capabilities.
    """

    devices: tuple[str, ...]
    limit: Limit | None
    privileged: bool


def look(context: Context) -> Facts:
    """Read the devices and the limit."""
    try:
        devices = tuple(sorted(os.listdir(context.root / "sys/class/infiniband")))
    except (FileNotFoundError, NotADirectoryError):
        devices = ()
    except PermissionError:  # on hardened hosts, /sys is root's alone
        raise CannotTell("/sys may not be read by this user.", "run it as root") from None
    if not devices:
        return Facts(devices, None, privileged=False)
    limit = read_limit(context, "Max locked memory")
    # capabilities(7): the limit does not apply with CAP_IPC_LOCK.
    privileged = has_capability(Capability.IPC_LOCK, context.root)
    return Facts(devices, limit, privileged and not users_are_mapped(context.root))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the limit."""
    if facts.limit is None:
        message = (
            "there is no InfiniBand here, and the limit does not apply to CUDA's pinned memory."
        )
        yield Finding(Status.SKIP, "locked memory", message)
        return
    status, remedy = Status.PASS, None
    devices = ", ".join(facts.devices)
    message = f"memory may be locked without limit, as {devices} needs it."
    if facts.limit.soft is not None and facts.privileged:
        message = (
            f"the limit is {facts.limit.shown} bytes, but does not apply to this process, which has"
            f" CAP_IPC_LOCK: memory may be locked as {devices} needs it. Other users have limits of"
            " their own."
        )
    elif facts.limit.soft is not None:
        status = Status.WARN
        message = (
            f"only {facts.limit.shown} bytes may be locked, and {devices} locks what it sends:"
            " NCCL fails ('ibv_reg_mr: Cannot allocate memory')."
        )
        remedy = raising(facts.limit, "l", None, "LimitMEMLOCK=")
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
Checks the soft limit of locked memory (`ulimit -l`), only on hosts with InfiniBand: what is sent
through it must be locked, and NCCL fails if the limit is too small. Memory that CUDA pins
(`pin_memory`) is locked by the driver and is not subject to this limit, so the check is skipped on
other hosts.

**WARN**: the limit is not "unlimited". Root, and any other process that has CAP_IPC_LOCK outside of
containers of ordinary users, is not subject to the limit and passes: run the check as the user who
trains.

Put `ulimit -l unlimited` into the job script; for services set `LimitMEMLOCK=infinity`, and for
logins add a line `* - memlock unlimited` to `/etc/security/limits.conf`.
""",
)
