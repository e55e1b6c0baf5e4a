"""Can what lies in a volume be swapped out to a disk?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hostprep.readiness.checks._commands import mount_line
from hostprep.readiness.checks._datasets import look_at_datasets
from hostprep.readiness.checks._volumes import VolumeLook, look_at_volumes, nothing_to_judge
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote

_SINCE = (6, 4)


@dataclass(frozen=True, slots=True)
class Facts:
    """The volumes, whether swap is active, the kernel's release, and what cures each volume.

    ``cures`` has the lines by the volume's path.
    """

    volumes: tuple[VolumeLook, ...] | None
    swap_active: bool
    release: str
    cures: dict[str, tuple[str, ...]]


def look(context: Context) -> Facts:
    """Read whether swap is active, and what lies in each volume."""
    volumes = look_at_volumes(context)
    if not any(volume.live for volume in volumes or ()):
        return Facts(volumes, False, "", {})
    swap_active = context.headroom.swap_active
    release = (context.read("proc/sys/kernel/osrelease") or "").strip()
    cures: dict[str, tuple[str, ...]] = {}
    if swap_active and context.spec is not None:
        datasets = look_at_datasets(context)
        for volume in context.spec.volumes:
            there = [each for each in datasets if each.target.startswith(volume.path + "/")]
            lines = [line for each in there for line in each.staging().commands]
            if len(lines) == len(there):  # else one would be lost, as its source is not there
                cures[volume.path] = (
                    *(f"hostprep unstage {quote(each.target)}" for each in there if each.is_there),
                    f"hostprep unmount {quote(volume.path)}",
                    mount_line(volume),
                    *lines,
                )
    return Facts(volumes, swap_active, release, cures)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each mounted volume of the spec."""
    yield from nothing_to_judge(facts.volumes)
    for volume in facts.volumes or ():
        if volume.live is not None:
            yield _judge_one(volume, volume.live.noswap, facts)


def _judge_one(volume: VolumeLook, noswap: bool, facts: Facts) -> Finding:
    path, remedy = volume.spec.path, None
    if not facts.swap_active:
        status, message = Status.PASS, "no swap is active."
    elif noswap:
        status, message = Status.PASS, f"{path} is never swapped out."
    elif volume.spec.swap:
        status, message = Status.PASS, f"{path} may be swapped out, as the spec allows."
    elif _version(facts.release) < _SINCE:
        status = Status.SKIP
        message = f"Linux {facts.release} knows no noswap for {path} (6.4 brought it)."
    else:
        status = Status.WARN
        message = (
            f"swap is active and {path} lacks noswap: its data may be read from the swap disk."
        )
        remedy = Remedy(
            facts.cures.get(path, ()),
            "the kernel takes noswap only at a mount, so it has to be emptied, mounted anew and"
            " filled again; without swap (`swapoff -a`) it is not needed",
        )
    measured = Measured("noswap" if noswap else "without noswap", noswap)
    return Finding(
        status, path, message, measured, "noswap", "tmpfs(5) and the spec", remedy=remedy
    )


def _version(release: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


CHECK = Check(
    code="HP005",
    title="volumes are not swapped out",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
What lies in a tmpfs is swapped out like any memory, and then a read from "RAM" comes from the swap
disk. hostprep mounts its volumes with `noswap` where the kernel knows it (since 6.4). This looks at
volumes that lack it while swap is active (SwapTotal in `/proc/meminfo`).

**WARN** swap is active, the kernel knows `noswap`, the volume lacks it, and the spec does not say
`swap: true`.

The kernel takes the option only at a mount. The remedy unstages what hostprep staged there,
unmounts the volume (refused where something else is still in it), mounts it anew and stages again.
`swapoff` cures it too, until the next boot.
""",
)
