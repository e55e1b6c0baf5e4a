"""What the cgroups of this process allow: memory, processor time, processes, reads of disks.

Versions 1 and 2, and both at once (the "hybrid" layout). Formats: cgroups(7), and the kernel's
admin-guide/cgroup-v2, and memory, pids and blkio-controller of admin-guide/cgroup-v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.mounts import Mount, read_mounts
from hostprep.host.reading import read_counts, read_lines, read_number, read_text

# Version 1 writes "no limit" as the largest multiple of a page below 2^63.
_UNLIMITED_BYTES = 2**62


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limited memory cgroup, in bytes: ``group`` is its folder as mounted here.

    ``reclaimable_bytes`` is file cache, which the kernel drops before it refuses memory; what tmpfs
    holds is not part of it.
    """

    group: str
    limit_bytes: int
    usage_bytes: int
    reclaimable_bytes: int

    @property
    def remaining_bytes(self) -> int:
        """What may still be taken before the limit bites."""
        return max(0, self.limit_bytes - self.usage_bytes + self.reclaimable_bytes)


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """A cgroup that limits processor time to ``cpus`` processors' worth."""

    group: str
    cpus: float


@dataclass(frozen=True, slots=True)
class CpuThrottling:
    """What a quota of processor time did to a cgroup: periods in which anything ran, and those of
    them that it ended early. Both only ever grow."""

    group: str
    periods: int
    throttled: int


@dataclass(frozen=True, slots=True)
class ProcessLimit:
    """A cgroup that limits processes and threads: to ``limit``, of which ``used`` run now.

    Root's count too, other than for ``ulimit -u``.
    """

    group: str
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """A cgroup that limits what is read of a disk, by the disk's number (``254:0``).

    By bytes a second, by requests a second, or both; None is no limit.
    """

    group: str
    device: str
    bytes_per_s: int | None
    requests_per_s: int | None


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """One mounted hierarchy and the folders of this process in it, its own first."""

    version: int
    controllers: frozenset[str]
    folders: tuple[Path, ...]


def read_memory_limits(root: Path = Path("/")) -> tuple[MemoryLimit, ...]:
    """Return every memory limit above this process, the closest first; none where unlimited."""
    limits = []
    for version, folder in _folders(root, "memory"):
        limit = _memory_v2(folder, root) if version == 2 else _memory_v1(folder, root)
        if limit is not None:
            limits.append(limit)
    return tuple(limits)


def limits_are_hidden(controller: str, root: Path = Path("/")) -> bool:
    """Return whether this process is in a control group of ``controller`` that is not seen here.

    As in a sandbox without /sys, or with another one over it; or where a container has the host's
    /sys/fs/cgroup, and a namespace in which its own group is ``/``: where that is below the mount
    nothing tells.
    """
    groups = dict(_groups(root))
    mine = next((controllers for controllers in groups if controller in controllers), frozenset())
    if mine not in groups:
        return False
    mount = _mount_of(mine, _mounts(root))
    if mount is None or ".." in Path(mount.root).parts:
        return True
    return next(_chain(root, mount, groups[mine]), None) is None


def read_memory_shortages(root: Path = Path("/")) -> Iterator[tuple[str, int]]:
    """Yield each memory cgroup of version 2, the closest first, and how often its limit was met.

    Its own, and not one below it: then the kernel kills a process of it.
    """
    for version, folder in _folders(root, "memory"):
        times = read_counts(folder / "memory.events.local").get("oom")
        if version == 2 and times is not None:
            yield _shown(folder, root), times


def read_own_kills(root: Path = Path("/")) -> int | None:
    """Return how many processes of this one's memory cgroup were killed for want of memory.

    None where there is no such cgroup, or the kernel does not count them.
    """
    for version, folder in _folders(root, "memory"):
        file = "memory.events.local" if version == 2 else "memory.oom_control"
        return read_counts(folder / file).get("oom_kill")
    return None


def read_cpu_quotas(root: Path = Path("/")) -> tuple[CpuQuota, ...]:
    """Return every quota of processor time above this process, the closest first."""
    quotas = []
    for version, folder in _folders(root, "cpu"):
        if version == 2:
            words = (read_text(folder / "cpu.max") or "").split()
            quota, period = ([*words, "", ""])[:2]
        else:
            quota = read_text(folder / "cpu.cfs_quota_us") or ""
            period = read_text(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # "max" and "-1" are none
            quotas.append(CpuQuota(_shown(folder, root), int(quota) / int(period)))
    return tuple(quotas)


def read_cpu_throttling(root: Path = Path("/")) -> tuple[CpuThrottling, ...]:
    """Return the counters of every cgroup above this process that can have a quota."""
    found = []
    for _, folder in _folders(root, "cpu"):
        stat = read_counts(folder / "cpu.stat")
        if "nr_periods" in stat and "nr_throttled" in stat:
            counts = stat["nr_periods"], stat["nr_throttled"]
            found.append(CpuThrottling(_shown(folder, root), *counts))
    return tuple(found)


def throttled_share(before: Iterable[CpuThrottling], now: Iterable[CpuThrottling]) -> float | None:
    """Return the share of periods in between that a quota ended early, None without any quota.

    Of several cgroups it is that of the one which was hit hardest.
    """
    earlier = {one.group: one for one in before}
    shares = [
        (one.throttled - earlier[one.group].throttled)
        / max(1, one.periods - earlier[one.group].periods)
        for one in now
        if one.group in earlier
    ]
    return max(shares, default=None)


def read_process_limits(root: Path = Path("/")) -> tuple[ProcessLimit, ...]:
    """Return every limit of processes above this process, the closest first."""
    found = []
    for _, folder in _folders(root, "pids"):
        limit, used = read_number(folder / "pids.max"), read_number(folder / "pids.current")
        if limit is not None and used is not None:  # "max" is none, and the top has neither
            found.append(ProcessLimit(_shown(folder, root), limit, used))
    return tuple(found)


def read_read_limits(root: Path = Path("/")) -> tuple[ReadLimit, ...]:
    """Return every limit of reads that holds this process, the closest first.

    With version 1 a group's limit holds its own processes, and not those of groups below it.
    """
    found = []
    for hierarchy in _hierarchies(root):
        if hierarchy.version == 2:
            limits = [(folder, _reads_v2(folder)) for folder in hierarchy.folders]
        elif "blkio" in hierarchy.controllers:
            limits = [(folder, _reads_v1(folder)) for folder in hierarchy.folders[:1]]
        else:
            continue
        found += [
            ReadLimit(_shown(folder, root), device, *most)
            for folder, by_device in limits
            for device, most in by_device.items()
            if any(most)
        ]
    return tuple(found)


def _reads_v2(folder: Path) -> dict[str, tuple[int | None, int | None]]:
    """Return the limits of bytes and of requests a second, by the number of the disk."""
    found = {}
    for line in read_lines(folder / "io.max"):
        device, *pairs = line.split()
        values = (pair.partition("=") for pair in pairs)
        most = {name: int(value) for name, _, value in values if value.isdigit()}  # "max" is none
        found[device] = most.get("rbps"), most.get("riops")
    return found


def _reads_v1(folder: Path) -> dict[str, tuple[int | None, int | None]]:
    size, requests = (
        read_counts(folder / f"blkio.throttle.read_{what}_device") for what in ("bps", "iops")
    )
    return {device: (size.get(device), requests.get(device)) for device in size | requests}


def _memory_v2(folder: Path, root: Path) -> MemoryLimit | None:
    # Above memory.high processes are stalled until they give memory back, which tmpfs cannot.
    limits = [
        limit
        for name in ("memory.max", "memory.high")
        if (limit := read_number(folder / name)) is not None  # "max" is none
    ]
    usage = read_number(folder / "memory.current")
    if not limits or usage is None:
        return None
    stat = read_counts(folder / "memory.stat")
    cache = stat.get("active_file", 0) + stat.get("inactive_file", 0)
    return MemoryLimit(_shown(folder, root), min(limits), usage, cache)


def _memory_v1(folder: Path, root: Path) -> MemoryLimit | None:
    limit = read_number(folder / "memory.limit_in_bytes")
    usage = read_number(folder / "memory.usage_in_bytes")
    if limit is None or usage is None or limit >= _UNLIMITED_BYTES:
        return None
    stat = read_counts(folder / "memory.stat")
    # The total_ figures include the descendants, as the usage does. "cache" would count tmpfs too.
    cache = stat.get("total_active_file", 0) + stat.get("total_inactive_file", 0)
    return MemoryLimit(_shown(folder, root), limit, usage, cache)


def _folders(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield the version and each folder of this process where ``controller`` may set limits."""
    for hierarchy in _hierarchies(root):
        if hierarchy.version == 2 or controller in hierarchy.controllers:
            for folder in hierarchy.folders:
                yield hierarchy.version, folder


def _hierarchies(root: Path) -> list[_Hierarchy]:
    mounts = _mounts(root)
    found = []
    for controllers, group in _groups(root):
        version = 1 if controllers else 2
        mount = _mount_of(controllers, mounts)
        if mount is not None:
            folders = tuple(_chain(root, mount, group))
            found.append(_Hierarchy(version, controllers, folders))
    return found


def _groups(root: Path) -> Iterator[tuple[frozenset[str], str]]:
    """Yield the controllers of each hierarchy, none for version 2, and this process's group."""
    for line in read_lines(root / "proc/self/cgroup"):
        fields = line.split(":", 2)
        if len(fields) == 3:
            yield frozenset(fields[1].split(",")) - {""}, fields[2]


def _mounts(root: Path) -> list[Mount]:
    return [mount for mount in read_mounts(root) if mount.fstype in ("cgroup", "cgroup2")]


def _mount_of(controllers: frozenset[str], mounts: list[Mount]) -> Mount | None:
    for mount in mounts:
        if not controllers and mount.fstype == "cgroup2":
            return mount
        if controllers and mount.fstype == "cgroup" and controllers <= {*mount.super_options}:
            return mount
    return None


def _chain(root: Path, mount: Mount, group: str) -> Iterator[Path]:
    """Yield the folders from the process's own group up to the mount point.

    Both ``group`` and ``mount.root`` are relative to the cgroup namespace. In a container without
    one, the mount shows a subtree (``/docker/ID``) of which the group is a part; in others the
    group may lie outside of what is mounted (``/..``), and the mount point is all one can see.
    """
    top = root / mount.target.lstrip("/")
    parts = Path(group).parts[1:]
    base = Path(mount.root).parts[1:]
    inside = parts[len(base) :] if parts[: len(base)] == base else ()
    if ".." in inside:
        inside = ()
    for depth in range(len(inside), -1, -1):
        folder = top.joinpath(*inside[:depth])
        if folder.is_dir():
            yield folder


def _shown(folder: Path, root: Path) -> str:
    return "/" + str(folder.relative_to(root))
