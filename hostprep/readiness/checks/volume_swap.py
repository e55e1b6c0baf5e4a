"""Can a volume's contents be swapped out to a disk?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._commands import WHO_TAKES_MEMORY, mount_anew_line
from hostprep.readiness.checks._datasets import JudgedDataset, judged_datasets
from hostprep.readiness.checks._sizes import too_little_memory
from hostprep.readiness.checks._volumes import JudgedVolume, judged_volumes, nothing_to_judge
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.spec.feeding import holder_of, staged_before

_SINCE = (6, 4)


@dataclass(frozen=True, slots=True)
class Facts:
    """The volumes, whether swap is active, what the kernel supports, and each volume's remedy.

    ``in_ram``: all swap is zram, which keeps it compressed in RAM.
    ``known``: whether the kernel supports noswap, None if this user may not ask. ``cures`` has the
    lines by the volume's path, ``too_little`` why mounting one again would be refused.
    """

    volumes: tuple[JudgedVolume, ...] | None
    swap_active: bool
    known: bool | None
    release: str
    cures: dict[str, tuple[str, ...]]
    too_little: dict[str, str]
    in_ram: bool = False


def look(context: Context) -> Facts:
    """Read whether swap is active, and which data sets are in each volume."""
    volumes = judged_volumes(context)
    if not any(volume.live for volume in volumes or ()):
        return Facts(volumes, False, None, "", {}, {})
    swap_active, in_ram = context.headroom.swap_active, context.headroom.swap_in_ram
    if in_ram:
        return Facts(volumes, swap_active, None, "", {}, {}, in_ram)
    lacking = [each for each in volumes or () if _lacks(each)]
    known = context.tmpfs.noswap if swap_active and lacking else None
    release = (context.read("proc/sys/kernel/osrelease") or "").strip()
    cures: dict[str, tuple[str, ...]] = {}
    if swap_active and context.spec is not None:
        datasets, live = judged_datasets(context), {each.spec: each.live for each in volumes or ()}
        for volume in context.spec.volumes:
            there = _feeders_first(
                [each for each in datasets if each.target.startswith(volume.path + "/")]
            )
            lines = [line for each in there for line in each.staging().commands]
            if len(lines) == len(there):  # otherwise one would be lost: its source is not there
                cures[volume.path] = (
                    *(f"hostprep unstage {quote(each.target)}" for each in there if each.is_there),
                    f"hostprep unmount {quote(volume.path)}",
                    mount_anew_line(volume, context, live.get(volume)),
                    *lines,
                )
    sums = {each.spec.path: too_little_memory(each.spec, context, anew=True) for each in lacking}
    too_little = {path: told for path, told in sums.items() if told is not None}
    return Facts(volumes, swap_active, known, release, cures, too_little)


def _feeders_first(datasets: Sequence[JudgedDataset]) -> list[JudgedDataset]:
    """Return data sets in an order in which they can be staged after all of them were removed.

    That is their own order, except for one whose source is in another's copy.
    """
    targets = {each.target: index for index, each in enumerate(datasets)}
    feeders = [holder_of(each.origin.real or each.source, targets) for each in datasets]
    order = sorted(range(len(datasets)), key=lambda index: len(staged_before(index, feeders)))
    return [datasets[index] for index in order]


def _lacks(volume: JudgedVolume) -> bool:
    """Whether it can be swapped out although it should not be."""
    return volume.live is not None and not volume.live.noswap and not volume.spec.swap


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each mounted volume of the spec."""
    yield from nothing_to_judge(facts.volumes)
    for volume in facts.volumes or ():
        if volume.live is not None:
            yield _judge_one(volume, volume.live.noswap, facts)


def _judge_one(volume: JudgedVolume, noswap: bool, facts: Facts) -> Finding:
    path, remedy = volume.spec.path, None
    if not facts.swap_active:
        status, message = Status.PASS, "no swap is active."
    elif noswap:
        status, message = Status.PASS, f"{path} is never swapped out."
    elif volume.spec.swap:
        status, message = Status.PASS, f"{path} may be swapped out, as the spec allows."
    elif facts.in_ram:
        # Reading it back takes more processor time, but no disk: no reason to mount it again.
        status = Status.PASS
        message = f"{path} may be swapped out, but only to zram: it stays in RAM, compressed."
    elif facts.known is False:
        # The data is as much at risk as if the option was forgotten; only the remedy differs.
        status = Status.WARN
        message = (
            f"swap is active and this kernel (Linux {facts.release}) does not support noswap: what"
            f" lies in {path} may be read from the swap disk."
        )
        remedy = Remedy(
            hint="switch swap off (`swapoff -a`, and its line in fstab), or set `swap: true` for"
            " the volume in the spec if swapping is acceptable; Linux 6.4 and later can keep it"
            " out of swap",
        )
    # Every kernel from then on has it. Older ones may have a backport: their version does not tell.
    elif facts.known is None and _version(facts.release) < _SINCE:
        status = Status.SKIP
        message = (
            f"only root can ask whether Linux {facts.release} supports noswap for {path}: Linux 6.4"
            " introduced it, and some older kernels have it ported back."
        )
    else:
        status = Status.WARN
        message = (
            f"swap is active and {path} lacks noswap: its data may be read from the swap disk."
        )
        remedy = _mounting_anew(volume, facts)
    measured = Measured("noswap" if noswap else "without noswap", noswap)
    return Finding(
        status, path, message, measured, "noswap", "tmpfs(5) and the spec", remedy=remedy
    )


def _mounting_anew(volume: JudgedVolume, facts: Facts) -> Remedy:
    path = volume.spec.path
    if volume.foreign:
        return volume.left_alone()
    if path in facts.too_little:
        return Remedy(
            ("hostprep status", WHO_TAKES_MEMORY),
            "the kernel takes noswap only when a volume is mounted, and there is too little memory"
            f" for that ({facts.too_little[path]}): end what uses it, or give the volume a smaller"
            " `size:` in the spec; without swap (`swapoff -a`) it is not needed",
        )
    return Remedy(
        facts.cures.get(path, ()),
        volume.mount_hint(
            "the kernel takes noswap only when a volume is mounted, so it has to be emptied,"
            " mounted again and filled again, while no job reads it; without swap (`swapoff -a`) it"
            " is not needed",
            mounts=path in facts.cures,
        ),
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
The kernel swaps out the contents of a tmpfs like any other memory, and a read from "RAM" then comes
from the swap disk. hostprep mounts its volumes with `noswap` if the kernel supports it: Linux 6.4
and later do, and so do earlier kernels that had it ported back, so hostprep asks the kernel itself.
This check looks for volumes without `noswap` while swap is active (SwapTotal in `/proc/meminfo`).
If all swap is zram without a disk behind it (`/proc/swaps`, `backing_dev`), swapped-out data stays
in RAM, compressed: reading it takes processor time, but no disk. That is a PASS.

**WARN**: swap is active, the volume lacks `noswap`, even if only because the kernel does not
support it, and the spec does not say `swap: true`.
**SKIP**: the kernel is older than 6.4, and only root may ask it.

If the kernel does not support `noswap`, disable swap, or accept it (`swap: true`). If the kernel
does, it takes `noswap` only when a volume is mounted: the remedy unstages what hostprep staged
there, unmounts the volume (refused if anything else is still in it), mounts it again and stages
again. `swapoff` solves it too, until the next boot, and is the only way if there is too little
memory to mount the volume again.
""",
)
