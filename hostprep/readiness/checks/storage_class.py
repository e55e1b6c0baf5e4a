"""Is the kind of storage that the data is on known, and is a target a sensible one?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.block import PathStorage, StorageClass
from hostprep.readiness.checks._disks import Role, Seat, seats
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote

_NO_TARGETS = {
    StorageClass.NETWORK: "a network file system, where reading is no faster than from the source",
    StorageClass.FUSE: "a FUSE file system, where every read goes through a program",
    StorageClass.OVERLAY: "a container's writable layer, which ends with the container",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """``behaviours``: by mount point, what a valid probe took it for (flash, arm, latency)."""

    seats: tuple[Seat, ...]
    behaviours: tuple[tuple[str, str], ...]


def look(context: Context) -> Facts:
    """Locate the paths, and for storage that the kernel does not describe, read the probes."""
    found = seats(context)
    if all(seat.storage is None or _is_told(seat.storage) for seat in found):
        return Facts(found, ())
    return Facts(found, tuple(seen_behaviours(context).items()))


def _is_told(storage: PathStorage) -> bool:
    return storage.storage_class is not StorageClass.UNKNOWN


def seen_behaviours(context: Context) -> dict[str, str]:
    """Return by mount point what the newest valid probe took it for."""
    return {
        probe["mount"]["target"]: probe["device"]["behaviour"]
        for probe in reversed(context.probes)
        if probe["valid"] and probe["device"]["behaviour"] != "unclear"
    }


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each path."""
    for seat in facts.seats:
        yield _judge_one(seat, dict(facts.behaviours))


def _judge_one(seat: Seat, behaviours: dict[str, str]) -> Finding:
    storage, path = seat.storage, seat.path
    if storage is None:
        if seat.role is Role.SOURCE:
            message = f"{path} cannot be looked at; HP014 says what its source answers."
            return Finding(Status.SKIP, path, message)
        remedy = Remedy(("findmnt --real",), "see which disk or server does not answer")
        return Finding(Status.UNKNOWN, path, f"{seat.problem}", remedy=remedy)
    found = storage.storage_class
    measured = Measured(found.value, found.value)
    if found is StorageClass.UNKNOWN:
        behaviour = behaviours.get(storage.mount.target)
        if behaviour is not None:
            message = f"{path}: {storage.reason}; a probe found that it behaves like {behaviour}."
            return Finding(Status.PASS, path, message, Measured(behaviour, behaviour))
        message = (
            f"the kernel does not say what storage {path} is on: {storage.reason}; `hostprep probe"
            f" {quote(path)}` measures how it behaves."
        )
        return Finding(Status.SKIP, path, message, measured)
    if seat.role is Role.TARGET and found in _NO_TARGETS:
        return Finding(
            Status.WARN,
            path,
            f"{path} is on {_NO_TARGETS[found]} ({storage.reason}).",
            measured,
            "a disk of this host, or memory",
            "the spec's `to`: data is staged to storage that is faster than its source",
            remedy=Remedy(
                ("hostprep facts",),
                "give the data set a directory on a local NVMe drive, or a volume, in the spec",
            ),
        )
    return Finding(Status.PASS, path, f"{path}: {found} ({storage.reason}).", measured)


CHECK = Check(
    code="HP040",
    title="the class of the storage is known",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Checks what the sources and the `to:` targets of the spec are stored on, down to the disks: NVMe,
SATA flash, a hard disk, a virtual disk, network, FUSE, overlay or memory. The answer is the
kernel's, from `/proc/self/mountinfo` and sysfs; about a virtual disk only `hostprep probe` can say
more. Without a spec, the check looks at the current directory and `/`.

**WARN**: a target is on a network or FUSE file system, or in the writable layer of a container:
staging to it gains nothing, or the copy is lost with the container.
**UNKNOWN**: a target does not answer.

If the kernel does not show what is below (a USB disk, a volume of a RAID controller, disks of
several classes together, a pool whose disks are not visible), the result is SKIP:
`hostprep probe PATH` measures how the storage behaves, and the check uses this result from then on.
""",
)
