"""Does the kernel's huge-page setting for shmem let volumes have what they were mounted with?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.volumes.model import Huge

_FILE = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"


@dataclass(frozen=True, slots=True)
class Facts:
    """The chosen value, None if the kernel has no such file.

    ``huge`` are the volumes with huge pages, if the value is one that overrides them.
    """

    value: str | None
    huge: tuple[str, ...]


def look(context: Context) -> Facts:
    """Read the setting and the volumes."""
    chosen = re.search(r"\[(\w+)\]", context.read(_FILE) or "")
    if chosen is None:
        return Facts(None, ())
    if chosen[1] != "deny":  # otherwise do not read the volumes: their records may be unreadable
        return Facts(chosen[1], ())
    paths = {volume.path for volume in context.volumes}
    if context.spec is not None:
        paths |= {volume.path for volume in context.spec.volumes}
    lives = (context.live(path) for path in sorted(paths))
    huge = tuple(live.path for live in lives if live and live.huge is not Huge.NEVER)
    return Facts(chosen[1], huge)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the setting."""
    if facts.value is None:
        message = "this kernel has no huge pages for shmem (CONFIG_TRANSPARENT_HUGEPAGE)."
        yield Finding(Status.SKIP, "shmem_enabled", message)
        return
    status, remedy = Status.PASS, None
    message = f"shmem_enabled is {facts.value}: each volume follows its own huge= option."
    if facts.value == "force":
        status = Status.WARN
        message = (
            "shmem_enabled is force: every file in every tmpfs takes whole huge pages, /dev/shm"
            " included; in a measurement, small files took 5 times the space and 50 times the"
            " time."
        )
    elif facts.value == "deny" and facts.huge:
        status = Status.WARN
        message = (
            f"shmem_enabled is deny: the huge= option of {', '.join(facts.huge)} has no effect."
        )
    if status is Status.WARN:
        remedy = Remedy(
            (f"echo never > {_FILE}",),
            "until the next boot; `never` leaves it to each mount's huge= option",
        )
    yield Finding(
        status,
        "shmem_enabled",
        message,
        Measured(facts.value, facts.value),
        "not force; nor deny, if volumes use huge=",
        "the kernel's admin-guide/mm/transhuge; hostprep's own measurement",
        remedy=remedy,
    )


CHECK = Check(
    code="HP025",
    title="huge pages for shmem are left to the volumes",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
`/sys/kernel/mm/transparent_hugepage/shmem_enabled` controls huge pages of the kernel's internal
tmpfs, and its two emergency values, `force` and `deny`, override every mount. With any other value,
each volume follows its own `huge=` option.

**WARN**: the value is `force`: each file takes whole huge pages (2 MiB on x86), so a data set of
small files needs many times its size. Or the value is `deny`, and a volume that is mounted with
huge pages gets none.

`echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled` changes it until the next boot.
Look in `/etc/tmpfiles.d`, `/etc/rc.local` and the kernel's command line for what sets it.
""",
)
