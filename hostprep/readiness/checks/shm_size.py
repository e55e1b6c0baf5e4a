"""Is /dev/shm large enough for what the workers of a DataLoader put there?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.memory import Headroom
from hostprep.host.mounts import Mount, mount_at, mount_over
from hostprep.readiness.checks._commands import making_room
from hostprep.readiness.checks._recommended import recommended
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.space import Space
from hostprep.units import GIB, MIB, format_bytes, format_count

_PATH = "/dev/shm"
# Batches are not the only thing there: NCCL keeps its buffers in /dev/shm too.
_MARGIN = 1.25
_RULE_OF_THUMB_BYTES = GIB
_CONTAINER_BYTES = 64 * MIB
# 8 workers with 2 batches of 2 tensors use 32, besides those of NCCL and semaphores.
_LEAST_INODES = 64


@dataclass(frozen=True, slots=True)
class Facts:
    """``space`` is None if nobody can write there. ``mounted``: otherwise it is a plain folder.

    ``wanted_bytes`` is what the last recommended loader needs, None without one. ``over`` is a
    later mount over /dev that hides the mount on /dev/shm. ``closed`` is the line that makes the
    mount writable for this user, None if it already is. What is on the mount counts as memory, of
    which ``headroom`` is left, None if that is unknown.
    """

    mounted: bool
    space: Space | None
    wanted_bytes: int | None
    over: Mount | None
    closed: str | None = None
    headroom: Headroom | None = None


def look(context: Context) -> Facts:
    """Read the space of /dev/shm and the last recommendation."""
    mount = mount_at(_PATH, context.mounts)
    over = None if mount is None else mount_over(mount, context.mounts)
    mounted = mount is not None and over is None
    closed = _opening(context) if mounted else None
    # Sandboxes (bubblewrap, Flatpak) make it a folder in their /dev, which serves as well.
    usable = mounted or os.access(context.root / "dev/shm", os.W_OK | os.X_OK)
    space = context.statvfs(_PATH) if usable else None
    left = _headroom(context) if mounted else None
    return Facts(mounted, space, recommended(context).shm_bytes, over, closed, left)


def _headroom(context: Context) -> Headroom | None:
    try:
        return context.headroom
    except HostprepError:  # HP021 says so, and a small /dev/shm is still too small
        return None


def _opening(context: Context) -> str | None:
    """Return the line that makes the mount writable for this user, None if it is already."""
    place = context.root / "dev/shm"
    if not place.is_dir() or os.access(place, os.W_OK | os.X_OK):
        return None
    mount = mount_at(_PATH, context.mounts)
    if mount is not None and "ro" in (*mount.mount_options, *mount.super_options):
        return "mount -o remount,rw /dev/shm"
    return "chmod 1777 /dev/shm"


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge its size, and compare a known need with what is free of it."""
    if facts.space is None:
        yield _none(facts.over)
        return
    if facts.closed is not None:
        message = "this user may not write to /dev/shm: workers cannot hand over their batches."
        remedy = Remedy(
            (facts.closed,), "find out who closed it; in a container, do this on its host"
        )
        yield Finding(Status.FAIL, _PATH, message, remedy=remedy)
        return
    if facts.space.inodes and facts.space.free_inodes < _LEAST_INODES:
        yield _too_few_inodes(facts.space.free_inodes, facts.mounted)
        return
    by_size = _by_size(facts.space, facts)
    by_memory = _by_memory(facts)
    worse = by_memory is not None and (
        by_size.status is Status.PASS or by_memory.status is Status.FAIL
    )
    yield by_memory if by_memory is not None and worse else by_size


def _by_size(space: Space, facts: Facts) -> Finding:
    """Judge its size."""
    if space.size_bytes == 0:
        return Finding(
            Status.PASS,
            _PATH,
            "/dev/shm has no limit of its own: batches may take all of the memory.",
            Measured("no limit", None, "bytes", "higher"),
        )
    if facts.wanted_bytes is not None:
        return _against_need(space, facts.wanted_bytes, facts.mounted)
    return _by_thumb(space, facts.mounted)


def _by_memory(facts: Facts) -> Finding | None:
    """Judge the memory that batches would take there; None if it is enough.

    A container with `--memory 512m --shm-size 8g` has large files there and is killed for them.
    """
    left = facts.headroom
    if left is None:
        return None
    wanted = facts.wanted_bytes
    least = _RULE_OF_THUMB_BYTES if wanted is None else int(wanted * _MARGIN)
    if left.available_bytes >= least:
        return None
    ends = wanted is not None and left.available_bytes < wanted
    available = format_bytes(left.available_bytes)
    message = f"what is in /dev/shm counts as memory, of which {available} are available according"
    message += f" to {left.available_from}"
    if wanted is not None:
        message += f"; the recommended loader takes {format_bytes(wanted)}"
    message += ": the kernel will end a worker." if ends else ": little for several workers."
    return Finding(
        Status.FAIL if ends else Status.WARN,
        _PATH,
        message,
        Measured(f"{available} of memory", left.available_bytes, "bytes", "higher"),
        f"at least {format_bytes(least)}",
        "rule of thumb; `hostprep recommend` measures what your loader takes"
        if wanted is None
        else f"`hostprep recommend`, x {_MARGIN:g}",
        least,
        making_room(left),
    )


def _none(over: Mount | None) -> Finding:
    there = "nothing is mounted on /dev/shm"
    if over is not None:
        there = f"{over.source} ({over.fstype}) was mounted on {over.target} and hides /dev/shm"
    message = (
        f"{there}, and there is no folder in its place that this user may write to: workers cannot"
        " hand over their batches."
    )
    remedy = Remedy(
        ("mkdir -p /dev/shm", _mount_line("50%")),
        "until the next boot, when systemd mounts it by itself; find out what removed it",
    )
    return Finding(Status.FAIL, _PATH, message, remedy=remedy)


def _too_few_inodes(free: int, mounted: bool) -> Finding:
    message = (
        f"/dev/shm has {format_count(free, 'inode')} free, and each tensor that waits there takes"
        " one: a worker will end with an error."
    )
    remedy = Remedy(
        ("mount -o remount,nr_inodes=1m /dev/shm",),
        "`ls /dev/shm` shows what was left there; in a container, do this on its host",
    )
    if not mounted:
        remedy = Remedy(("df -i /dev/shm",), "remove files from the file system that it is on")
    return Finding(Status.FAIL, _PATH, message, remedy=remedy)


def _mount_line(size: str) -> str:
    """Return the command that mounts it as systemd does, except for its size."""
    return f"mount -t tmpfs -o nosuid,nodev,mode=1777,size={size} tmpfs /dev/shm"


def _against_need(space: Space, wanted_bytes: int, mounted: bool) -> Finding:
    free = space.free_bytes
    least = int(wanted_bytes * _MARGIN)
    status = Status.FAIL if free < wanted_bytes else Status.WARN if free < least else Status.PASS
    takes = f"the recommended loader takes {format_bytes(wanted_bytes)}"
    message = {
        Status.PASS: f"{takes} of the {format_bytes(free)} that are free.",
        Status.WARN: f"{takes} of the {format_bytes(free)} that are free: hardly any room is left.",
        Status.FAIL: f"{takes}, but only {format_bytes(free)} are free: a worker will end with a"
        " bus error.",
    }[status]
    return Finding(
        status,
        _PATH,
        message,
        Measured(f"{format_bytes(free)} free", free, "bytes", "higher"),
        f"at least {format_bytes(least)} free",
        f"`hostprep recommend`, x {_MARGIN:g}",
        least,
        None if status is Status.PASS else _enlarge(space, least, mounted),
    )


def _by_thumb(space: Space, mounted: bool) -> Finding:
    size = space.size_bytes
    if size >= _RULE_OF_THUMB_BYTES:
        status, message = Status.PASS, f"/dev/shm has {format_bytes(size)}."
    elif size > _CONTAINER_BYTES:
        status = Status.WARN
        message = f"/dev/shm has {format_bytes(size)}: little for several workers."
    else:
        status = Status.FAIL
        message = (
            f"/dev/shm has {format_bytes(size)}, which 2 workers with 2 batches of 32 images"
            " (224 x 224, float) exceed: a bus error."
        )
    return Finding(
        status,
        _PATH,
        message,
        Measured(format_bytes(size), size, "bytes", "higher"),
        f"at least {format_bytes(_RULE_OF_THUMB_BYTES)}",
        "rule of thumb; `hostprep recommend` measures what your loader takes",
        _RULE_OF_THUMB_BYTES,
        None if status is Status.PASS else _enlarge(space, _RULE_OF_THUMB_BYTES, mounted),
    )


def _enlarge(space: Space, least_free_bytes: int, mounted: bool) -> Remedy:
    used = space.size_bytes - space.free_bytes
    mebibytes = -(-(used + least_free_bytes) // MIB)
    mount = f"mount -o remount,size={mebibytes}M /dev/shm"
    if not mounted:
        mount = _mount_line(f"{mebibytes}M")
    return Remedy(
        (mount,),
        "until the next boot; permanently with a line in fstab: tmpfs /dev/shm tmpfs"
        f" nosuid,nodev,size={mebibytes}M 0 0. A container may not mount: there use docker run"
        f" --shm-size={mebibytes}m, or in Kubernetes an emptyDir of medium Memory on /dev/shm",
    )


CHECK = Check(
    code="HP020",
    title="/dev/shm has room for the workers' batches",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL}),
    look=look,
    judge=judge,
    after_full=True,
    page="""\
The workers of a `DataLoader` pass their batches through `/dev/shm`. If it is full, the worker gets
SIGBUS: "DataLoader worker is killed by signal: Bus error".

If `hostprep recommend` has measured your loader, the check compares what it needs (workers x
prefetch_factor x batch bytes x ranks) with the free space, with a margin of a quarter for NCCL and
others. If not, it applies a rule of thumb: a size of at least 1 GiB. What is in a tmpfs counts as
memory: the same has to be available in the machine and in this process's cgroup.

**FAIL**: one of the following.
- Less is free than the loader needs, there or in memory; or, if that is not known, the size is not
  more than the 64 MiB that Docker gives to a container.
- This user may not write there: it is read-only, or its mode is not 1777.
- Nothing is mounted there, or a later mount on `/dev` hides it, and there is no directory that this
  user may write to.
- Fewer than 64 inodes are free.

**WARN**: there is enough for the loader but not for the margin; or, if its need is not known, the
size or the available memory is less than 1 GiB.

A plain directory, as in some sandboxes, is judged by the file system that it is on; a file system
without a limit (`size=0`) passes.

`mount -o remount,size=...` takes effect at once, loses nothing, and lasts until the reboot; a line
in fstab (`tmpfs /dev/shm tmpfs nosuid,nodev,size=8G 0 0`) sets the size from then on. A container
has its own `/dev/shm`: use `docker run --shm-size=8g`, or `--ipc=host`.
""",
)
