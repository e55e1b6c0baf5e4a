"""Is every volume of the spec mounted, as the tmpfs that it should be?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.errors import one_line
from hostprep.host.mounts import Mount, mount_at
from hostprep.readiness.checks._commands import aside_line, mount_anew_line, stage_line
from hostprep.readiness.checks._sizes import is_limited, too_little_memory
from hostprep.readiness.checks._sources import ask_source
from hostprep.readiness.checks._volumes import freeing_memory, hint_outside_of_jobs
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.spec.model import Spec, VolumeSpec
from hostprep.volumes.live import mounted_over
from hostprep.volumes.paths import first_names, is_system_dir

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Place:
    """A volume of the spec, and the type of what is mounted at its path, None for nothing.

    ``over`` was mounted later, at its path or above it, and hides it. If nothing is mounted,
    ``mount`` is the line that mounts it, ``stage`` are the lines that stage those of its data sets
    whose sources answer, and ``names`` are the first names in the directory, if it is not empty:
    ``hostprep mount`` refuses to hide them. ``limited`` and ``too_little`` are as in
    ``JudgedVolume``.
    """

    volume: VolumeSpec
    fstype: str | None
    over: Mount | None
    stage: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    limited: bool = False
    too_little: str | None = None
    mount: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The places of the spec's volumes; None: no spec."""

    places: tuple[Place, ...] | None


def look(context: Context) -> Facts:
    """Read what is mounted at the spec's paths."""
    spec = context.spec
    if spec is None:
        return Facts(None)
    return Facts(tuple(_look_at(context, spec, each) for each in spec.volumes))


def _look_at(context: Context, spec: Spec, volume: VolumeSpec) -> Place:
    over = mounted_over(volume.path, context.mounts)
    if mount := mount_at(volume.path, context.mounts):
        return Place(volume, mount.fstype, over)
    stage = tuple(
        stage_line(each, spec)
        for each in spec.datasets
        if each.volume == volume.path and ask_source(context, each.source).state == "fine"
    )
    names, limited = _names_in(context, volume.path), is_limited(volume, context)
    too_little = too_little_memory(volume, context)
    mount_line = mount_anew_line(volume, context)
    return Place(volume, None, over, stage, names, limited, too_little, mount_line)


def _names_in(context: Context, path: str) -> tuple[str, ...]:
    """Return the first names in a directory; none if it is empty, or cannot be read."""
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
    if not facts.places:
        message = "the spec has no volumes, so no volume is expected."
        if facts.places is None:
            message = (
                "there is no spec file, so no volume is expected; `hostprep spec init` writes one."
            )
        yield Finding(Status.SKIP, "volumes", message)
        return
    for place in facts.places:
        yield _judge_one(place)


def _judge_one(place: Place) -> Finding:
    path, fstype, over = place.volume.path, place.fstype, place.over
    status, remedy = Status.FAIL, None
    if over is not None:
        message = (
            f"{path} is mounted, but hidden: {over.source} ({over.fstype}) was mounted on"
            f" {over.target} after it."
        )
        remedy = Remedy(
            (f"findmnt {quote(over.target)}",),
            f"find out whose it is; unmount it (umount {quote(over.target)}), or mount it before"
            " the volume",
        )
    elif fstype == "tmpfs":
        status, message = Status.PASS, f"{path} is mounted."
    elif fstype is None:
        message = f"{path} is not mounted: what is read there comes from the disk below."
        if place.names:
            more = " and more" if len(place.names) > _SHOWN else ""
            message = (
                f"{path} is not mounted, so what is read there comes from the disk below:"
                f" {one_line(', '.join(place.names[:_SHOWN]))}{more}."
            )
        remedy = _mounting(place)
    else:
        message = f"{path} is mounted as {fstype}, but the spec wants a tmpfs."
        remedy = Remedy(
            (f"findmnt {quote(path)}",),
            "find out whose it is; unmount it, or give the volume another path in the spec",
        )
    measured = Measured(fstype or "nothing mounted", fstype)
    return Finding(status, path, message, measured, "tmpfs", "the spec", remedy=remedy)


def _mounting(place: Place) -> Remedy:
    """Return the remedy that mounts and fills a volume; what is there is moved aside, and kept."""
    path = place.volume.path
    if is_system_dir(path):  # moving it aside would break the system
        hint = "that is a system folder, which hostprep never mounts over: give the volume another"
        return Remedy((), f"{hint} `path:` in the spec, such as /mnt/NAME")
    if place.too_little is not None:
        return freeing_memory(place.too_little)
    lines = (place.mount, *place.stage)
    apply = "`hostprep apply` mounts all volumes and stages their data sets"
    if not place.names:
        return Remedy(lines, hint_outside_of_jobs(apply, limited=place.limited))
    return Remedy(
        (aside_line(path), *lines),
        hint_outside_of_jobs(
            f"a volume would hide what was put there meanwhile, so it is not mounted before that"
            f" is moved; remove {path}.old once nothing in it is needed. After that {apply}",
            limited=place.limited,
        ),
    )


CHECK = Check(
    code="HP001",
    title="volumes of the spec are mounted",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Each entry of `volumes` in the spec must be a mounted tmpfs, according to `/proc/self/mountinfo`.

If it is not, the path is a plain directory on the disk: a job that writes there fills the disk, and
a job that reads there finds nothing, or what somebody copied there earlier. After a reboot, a
volume without a line in fstab is not mounted.

**FAIL**: nothing is mounted there, or something other than a tmpfs; or something was mounted over
it later, on the volume or on a directory above, and reads come from that.

`hostprep apply` mounts all volumes of the spec and stages their data sets;
`hostprep mount PATH --size SIZE --fstab` mounts one and keeps it for the next boot. Both refuse to
hide what is now in the directory: move that away first. They never mount over a system directory
such as /var: give the volume another path in the spec. If they would refuse because there is too
little memory, the remedy says how to free some.
""",
)
