"""Is every volume of the spec mounted, as the tmpfs that it should be?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from hostprep.dataclass import dataclass
from hostprep.errors import one_line
from hostprep.host.mounts import Mount, mount_at
from hostprep.readiness.checks._commands import mount_line, stage_line
from hostprep.readiness.checks._datasets import ask_source
from hostprep.readiness.context import Context
from hostprep.readiness.model import (
    CannotTell,
    Check,
    Finding,
    Measured,
    Remedy,
    Severity,
    Status,
)
from hostprep.readiness.shell import quote
from hostprep.spec.model import VolumeSpec
from hostprep.volumes.live import mounted_over
from hostprep.volumes.paths import first_names

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """The spec's volumes (None: no spec), each with the type of what is mounted there, if any.

    ``stage`` has by its path the lines that stage a volume's data sets, if their sources answer.
    ``hidden`` has by its path what was mounted over a volume, on it or above it, and hides it.
    ``filled`` has by its path the first names in the directory where a volume is not mounted, if it
    is not empty: ``hostprep mount`` refuses to hide them.
    """

    volumes: tuple[tuple[VolumeSpec, str | None], ...] | None
    stage: dict[str, tuple[str, ...]]
    hidden: dict[str, Mount] = field(default_factory=dict)
    filled: dict[str, tuple[str, ...]] = field(default_factory=dict)


def look(context: Context) -> Facts:
    """Read what is mounted on the spec's paths."""
    if context.spec is None:
        return Facts(None, {})
    spec, mounts = context.spec, context.mounts
    return Facts(
        tuple(
            (volume, mount.fstype if (mount := mount_at(volume.path, mounts)) else None)
            for volume in spec.volumes
        ),
        {
            volume.path: tuple(
                stage_line(each, spec)
                for each in spec.datasets
                if each.volume == volume.path
                and mount_at(volume.path, mounts) is None
                and ask_source(context, each.source).state == "fine"
            )
            for volume in spec.volumes
        },
        {
            volume.path: over
            for volume in spec.volumes
            if (over := mounted_over(volume.path, mounts)) is not None
        },
        {
            volume.path: names
            for volume in spec.volumes
            if mount_at(volume.path, mounts) is None and (names := _names_in(context, volume.path))
        },
    )


def _names_in(context: Context, path: str) -> tuple[str, ...]:
    """Return the first names in a directory; none where it has none, or nobody can tell."""
    below = str(context.root / path.lstrip("/"))

    def question() -> tuple[str, ...]:
        try:
            return first_names(below)
        except OSError:
            return ()

    try:
        return tuple(context.ask(f"names in {path}", question, below_root=True))
    except CannotTell:
        return ()


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each volume."""
    if not facts.volumes:
        why = "there is no spec file" if facts.volumes is None else "the spec has no volumes"
        yield Finding(Status.SKIP, "volumes", f"{why}, so no volume is expected.")
        return
    for volume, fstype in facts.volumes:
        measured = Measured(fstype or "nothing mounted", fstype)
        if over := facts.hidden.get(volume.path):
            status = Status.FAIL
            message = (
                f"{volume.path} is mounted, and hidden: {over.source} ({over.fstype}) was mounted"
                f" on {over.target} after it."
            )
            remedy = Remedy(
                (f"findmnt {quote(over.target)}",),
                f"see whose it is; unmount it (umount {quote(over.target)}), or mount it before"
                " the volume",
            )
        elif fstype == "tmpfs":
            status, message, remedy = Status.PASS, f"{volume.path} is mounted.", None
        elif fstype is None:
            status = Status.FAIL
            message = f"{volume.path} is not mounted: what is read there comes from the disk below."
            remedy = _mounting(volume, facts)
            if names := facts.filled.get(volume.path):
                more = " and more" if len(names) > _SHOWN else ""
                message = (
                    f"{volume.path} is not mounted, and what is read there is the disk's:"
                    f" {one_line(', '.join(names[:_SHOWN]))}{more}."
                )
        else:
            status = Status.FAIL
            message = f"{volume.path} is mounted, of type {fstype}, and the spec wants a tmpfs."
            remedy = Remedy(
                (f"findmnt {quote(volume.path)}",),
                "see whose it is; unmount it, or give the volume another path in the spec",
            )
        yield Finding(status, volume.path, message, measured, "tmpfs", "the spec", remedy=remedy)


def _mounting(volume: VolumeSpec, facts: Facts) -> Remedy:
    """Return what mounts a volume and fills it; what is in its place now makes way, and stays."""
    path = volume.path
    lines = (mount_line(volume), *facts.stage[path])
    apply = "`hostprep apply` mounts all volumes and stages their data sets"
    if path not in facts.filled:
        return Remedy(lines, apply)
    # With -T it does not end up in a folder that has this name already.
    return Remedy(
        (f"mv -T {quote(path)} {quote(f'{path}.old')}", *lines),
        f"a volume would hide what was put there meanwhile, so it is not mounted before that is"
        f" moved; remove {path}.old once nothing in it is needed. After that {apply}",
    )


CHECK = Check(
    code="HP001",
    title="volumes of the spec are mounted",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Each entry of `volumes` in the spec must be a mounted tmpfs, by `/proc/self/mountinfo`.

Where it is not, the path is a plain directory of the disk: a job that writes there fills the disk,
and one that reads there finds nothing, or what somebody copied there earlier. After a reboot a
volume without its line in fstab is not mounted.

**FAIL** nothing is mounted there, or something else than a tmpfs, or something was mounted over it
later, on it or on a directory above: what is read there comes from that. `hostprep apply` mounts
all volumes of the spec and stages their data sets; `hostprep mount PATH --size SIZE --fstab` mounts
one and keeps it for the next boot. Both refuse to hide what lies in the directory meanwhile: move
that away first.
""",
)
