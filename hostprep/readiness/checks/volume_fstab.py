"""Does every volume of the spec come back at the next boot, as the spec describes it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._commands import mount_line
from hostprep.readiness.checks._volumes import JudgedVolume, judged_volumes, with_owners
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.units import format_bytes
from hostprep.volumes.fstab import volume_id_for
from hostprep.volumes.model import FLAGS, Huge
from hostprep.volumes.options import OptionValues


class Stray(NamedTuple):
    """A line of fstab that is in a volume's way: its number, what it does, and what helps."""

    number: int
    what: str
    cure: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The spec's volumes (None: no spec).

    ``strays`` has, by path, a line that replaces the volume's own or also has its mark.
    ``swapped`` are the paths of volumes whose line lacks noswap although the kernel supports it.
    ``units`` has, by path, an admin's own mount unit, which systemd uses instead of the line.
    """

    volumes: tuple[JudgedVolume, ...] | None
    strays: dict[str, Stray]
    swapped: frozenset[str]
    units: dict[str, str]


def look(context: Context) -> Facts:
    """Read fstab."""
    volumes = with_owners(judged_volumes(context))
    strays: dict[str, Stray] = {}
    paths = {volume_id_for(each.spec.path): each.spec.path for each in volumes or ()}
    for entry in context.fstab:
        number, target = entry.line_number, entry.simple_target
        if entry.is_ours and entry.fstype == "tmpfs":
            continue
        remove = f"remove line {number} from fstab by hand"
        strays[target] = Stray(number, f"mounts {target}, and it is not hostprep's", remove)
        if path := paths.get(entry.owner_id or ""):
            what = f"is for {target}, and has the mark of the line for {path}"
            cure = f"remove the X-hostprep.id option from it, or {remove}"
            strays[path] = Stray(number, what, cure)
    swapped = (each.spec.path for each in volumes or () if _lacks_noswap(context, each))
    units = {path: unit.name for path in paths.values() if (unit := context.mount_unit(path))}
    return Facts(volumes, strays, frozenset(swapped), units)


def _lacks_noswap(context: Context, volume: JudgedVolume) -> bool:
    """Whether its line should have noswap and does not.

    Only root may ask whether the kernel supports it; a volume mounted with it proves it too.
    """
    line, live = volume.line, volume.live
    if line is None or line.noswap or volume.spec.swap:
        return False
    return (live is not None and live.noswap) or context.tmpfs.noswap is True


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the line of each volume."""
    if not facts.volumes:
        why = "there is no spec file" if facts.volumes is None else "the spec has no volumes"
        yield Finding(Status.SKIP, "fstab", f"{why}, so fstab needs no line.")
        return
    for volume in facts.volumes:
        yield volume.beside_owner(_judge_one(volume, facts))


def _judge_one(volume: JudgedVolume, facts: Facts) -> Finding:
    path = volume.spec.path
    stray = facts.strays.get(path)
    # Nothing is mounted with an owner that this host does not know.
    wanted = volume.undrifted
    if volume.no_owner is not None:
        wanted = replace(wanted, owner=None)
    remedy: Remedy | None = volume.changing((mount_line(wanted),))
    measured = Measured("no line", "no line")
    if volume.line is not None:
        found = ", ".join(_differences(volume, volume.line, swapped=path in facts.swapped))
        measured = Measured(found or "as the spec", found or None)
    if stray is not None:
        status = Status.WARN
        message = f"line {stray.number} of fstab {stray.what}."
        measured = Measured(f"line {stray.number} is somebody's", stray.number)
        cure = stray.cure
        if volume.foreign:  # what such a line has mounted would keep `apply` from its own
            cure += f", unmount what is there (umount {quote(path)})"
        remedy = Remedy((), f"{cure}, then `hostprep apply`")
    elif unit := facts.units.get(path):
        status = Status.WARN
        message = (
            f"at boot systemd uses {unit}, which somebody else wrote, whatever the line in fstab"
            " says."
        )
        measured = Measured(f"{unit} is somebody's", unit)
        hint = "remove that unit (a mask: `systemctl unmask`), then `hostprep apply`"
        remedy = Remedy((f"systemctl cat {quote(unit)}",), hint)
    elif volume.line is None:
        status = Status.WARN
        message = f"fstab has no line for {path}: after the next reboot it is not mounted."
    elif measured.value is not None:
        status = Status.WARN
        message = f"after the next reboot {path} is not what the spec wants: {found}."
    else:
        status, remedy = Status.PASS, None
        message = f"{path} comes back at the next boot as the spec wants it."
    says = "a line in fstab that says the same"
    return Finding(status, path, message, measured, says, "the spec", remedy=remedy)


def _differences(volume: JudgedVolume, line: OptionValues, *, swapped: bool) -> Iterator[str]:
    spec = volume.spec
    yield from volume.spoiled
    if line.mode < 0 or line.huge not in {*Huge}:
        yield "a mode or huge= that the kernel does not know, so it does not mount it"
    if line.size_bytes is None or not volume.has_size(line.size_bytes):
        says = "no size" if line.size_bytes is None else format_bytes(line.size_bytes)
        yield f"{says} instead of {format_bytes(volume.size_bytes)}"
    if spec.mode is None and volume.no_mode:
        yield f"no mode, so it gets the kernel's, {line.mode:04o}, and everybody may write there"
    if spec.mode not in (None, line.mode) and line.mode >= 0:
        yield f"mode {line.mode:04o} instead of {spec.mode:04o}"
    if volume.owner is not None and volume.owner != (line.uid, line.gid):
        yield f"owner {line.uid}:{line.gid} instead of {volume.owner[0]}:{volume.owner[1]}"
    if spec.huge is not None and spec.huge != line.huge:
        yield f"huge={line.huge} instead of huge={spec.huge}"
    if spec.inodes is not None and line.inodes is not None and 0 < line.inodes < spec.inodes:
        yield f"{line.inodes} inodes instead of {spec.inodes}"
    elif volume.live is not None and 0 < (line.inodes or 0) < volume.live.used_inodes:
        yield f"{line.inodes} inodes, although {volume.live.used_inodes} are in use"
    yield from (f"{flag} is missing" for flag in FLAGS if not getattr(line, flag))
    if swapped:
        yield "noswap is missing"
    elif spec.swap and line.noswap:
        yield "noswap, although the spec lets it be swapped out"


CHECK = Check(
    code="HP004",
    title="volumes come back at the next boot",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP, Status.UNKNOWN}),
    look=look,
    judge=judge,
    page="""\
Each volume of the spec must have a line of hostprep's in fstab (marked `X-hostprep.id=`) that
matches the spec: size, mode, owner, `huge=`, inodes and the flags, and `noswap` if the kernel
supports it and the spec does not say `swap: true`. The line must not have `noauto` or `ro`. It must
have `nofail`, because otherwise the boot stops if the mount fails, and a mode, because otherwise
everybody may write to the volume. It must not give fewer inodes than are in use now.

**WARN**: there is no such line, or it differs; or somebody else's line mounts the same path; or the
volume's own line was changed to another path; or /etc/systemd/system has a unit for the path (or a
mask), which systemd then uses instead. Today's run is not affected, but after the next reboot the
volume is missing or different.
**UNKNOWN**: this host has no user or group with the name that the spec gives as the owner; the
finding also says what else is wrong with the line.

`hostprep mount PATH --size SIZE --fstab` (or `hostprep apply`) writes the line, and gives the
mounted volume the same size; if the volume holds more than that, or has no limit, this has to be
solved first. hostprep never touches lines of others: remove such a line yourself.
""",
)
