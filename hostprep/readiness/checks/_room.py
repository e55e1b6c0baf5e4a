"""The file systems that need room: those of the spec's `to:` targets and hostprep's records."""

from __future__ import annotations

from collections.abc import Callable

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.readiness.checks._disks import Role, seats, storage_of
from hostprep.readiness.context import Context
from hostprep.readiness.model import Finding, Measured, Remedy, Status
from hostprep.readiness.shell import quote
from hostprep.readiness.space import Space

# Meta's GCM health checks, for disk usage.
_WARN_SHARE, _FAIL_SHARE = 0.80, 0.85


@dataclass(frozen=True, slots=True)
class Room:
    """A file system by its mount point, the paths on it, and its space, or else a ``problem``.

    ``staged_to``: targets of data sets are on it, and not just hostprep's records.
    ``read_only``: nothing can be written, however much is free.
    """

    mount_point: str
    paths: tuple[str, ...]
    staged_to: bool
    space: Space | None
    problem: str | None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """One room for each file system."""

    rooms: tuple[Room, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """The quantity to judge, how to write it, and how much free of it makes a high share harmless.

    Records are small, so ``little_for_records`` applies to a file system with nothing but them.
    ``counts`` returns the total and what is free of it.
    """

    unit: str
    noun: str
    say: Callable[[float], str]
    little: int
    little_for_records: int
    ample: int
    remedy: Callable[[str], Remedy]
    counts: Callable[[Space], tuple[int, int]]


def look(context: Context) -> Facts:
    """Read the space under the targets and the state directory, each file system once."""
    found: dict[str, Room] = {}
    targets = [seat.path for seat in seats(context) if seat.role is Role.TARGET]
    for path in (*targets, context.state_dir):
        try:
            storage = storage_of(context, path)
            space = context.statvfs(storage.path)
        except HostprepError as error:
            found[path] = Room(path, (path,), path in targets, None, error.message)
            continue
        mount = storage.mount
        point, read_only = mount.target, "ro" in (*mount.mount_options, *mount.super_options)
        paths = (*(found[point].paths if point in found else ()), path)
        staged_to = not set(paths).isdisjoint(targets)
        found[point] = Room(point, paths, staged_to, space, None, read_only)
    return Facts(tuple(found.values()))


def judge_room(room: Room, scale: Scale) -> Finding:
    """Judge a file system that is writable."""
    if room.space is None:
        # HP040 reports a target that does not answer; here there is nothing to judge.
        return Finding(Status.SKIP, room.mount_point, f"{room.problem}")
    total, free = scale.counts(room.space)
    if total == 0:
        message = f"{room.mount_point} does not count {scale.unit}."
        return Finding(Status.PASS, room.mount_point, message)
    used = 1 - free / total
    little = scale.little if room.staged_to else scale.little_for_records
    status = Status.PASS
    if used >= _FAIL_SHARE and free < little:
        status = Status.FAIL
    elif used >= _WARN_SHARE and free < scale.ample:
        status = Status.WARN
    point, say, noun = room.mount_point, scale.say, scale.noun
    for_what = "" if room.paths == (point,) else f" (for {', '.join(room.paths)})"
    return Finding(
        status,
        point,
        f"{say(free)} of {say(total)}{noun} are free on {point}{for_what}.",
        Measured(f"{say(free)}{noun} free ({1 - used:.0%})", free, scale.unit, "higher"),
        f"{1 - _WARN_SHARE:.0%} or {say(scale.ample)}{noun} free",
        f"Meta GCM's health checks ({_WARN_SHARE:.0%} and {_FAIL_SHARE:.0%} used); the amount is"
        " hostprep's, for large disks",
        # On a small file system the share is the smaller amount; below it, the check warns.
        min(scale.ample, round(total * (1 - _WARN_SHARE))),
        None if status is Status.PASS else scale.remedy(quote(point)),
    )
