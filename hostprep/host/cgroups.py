"""What this process's cgroups allow: memory, processor time, processes, reads from disks.

Formats: the kernel's admin-guide/cgroup-v2, and memory, pids and blkio-controller of
admin-guide/cgroup-v1.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.cgroup_folders import folders_of, hierarchies, shown
from hostprep.host.reading import read_counts, read_lines, read_number, read_text

# Version 1 writes "no limit" as the largest multiple of a page below 2^63.
_UNLIMITED_BYTES = 2**62


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limited memory cgroup, in bytes: ``group`` is its folder as mounted here.

    ``reclaimable_bytes`` is file cache, which the kernel drops before it refuses memory; the
    contents of tmpfs are not part of it.
    """

    group: str
    limit_bytes: int
    usage_bytes: int
    reclaimable_bytes: int

    @property
    def remaining_bytes(self) -> int:
        """What may still be taken before the limit is reached."""
        return max(0, self.limit_bytes - self.usage_bytes + self.reclaimable_bytes)


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """A cgroup that limits processor time to that of ``cpus`` processors."""

    group: str
    cpus: float


@dataclass(frozen=True, slots=True)
class CpuThrottling:
    """What a cgroup's processor quota did: periods in which anything ran, and those it cut short.

    Both counters only ever grow.
    """

    group: str
    periods: int
    throttled: int


@dataclass(frozen=True, slots=True)
class ProcessLimit:
    """A cgroup that limits processes and threads to ``limit``, of which ``used`` run now.

    Unlike with ``ulimit -u``, root's count too.
    """

    group: str
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """A cgroup that limits reads from a disk, given by the disk's number (``254:0``).

    In bytes a second, requests a second, or both; None means no limit.
    """

    group: str
    device: str
    bytes_per_s: int | None
    requests_per_s: int | None


def read_memory_limits(root: Path = Path("/")) -> tuple[MemoryLimit, ...]:
    """Return every memory limit above this process, the closest first; none if unlimited."""
    found = list(folders_of(root, "memory"))
    limits = [
        _memory_v2(folder, root)
        if version == 2
        else _memory_v1(folder, root, topmost=folder is found[-1][1])
        for version, folder in found
    ]
    return tuple(limit for limit in limits if limit is not None)


def read_cpu_quotas(root: Path = Path("/")) -> tuple[CpuQuota, ...]:
    """Return every processor quota above this process, the closest first."""
    quotas = []
    for version, folder in folders_of(root, "cpu"):
        if version == 2:
            words = (read_text(folder / "cpu.max") or "").split()
            quota, period = [*words, "", ""][:2]
        else:
            quota = read_text(folder / "cpu.cfs_quota_us") or ""
            period = read_text(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # "max" and "-1" are none
            quotas.append(CpuQuota(shown(folder, root), int(quota) / int(period)))
    return tuple(quotas)


def read_cpu_throttling(root: Path = Path("/")) -> tuple[CpuThrottling, ...]:
    """Return the counters of every cgroup above this process that can have a quota."""
    found = []
    for _, folder in folders_of(root, "cpu"):
        stat = read_counts(folder / "cpu.stat")
        if "nr_periods" in stat and "nr_throttled" in stat:
            counts = stat["nr_periods"], stat["nr_throttled"]
            found.append(CpuThrottling(shown(folder, root), *counts))
    return tuple(found)


def throttled_share(before: Iterable[CpuThrottling], now: Iterable[CpuThrottling]) -> float | None:
    """Return the share of periods in between that a quota cut short, None without any quota.

    With several cgroups it is that of the one that was affected most.
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
    """Return every limit on processes above this process, the closest first."""
    found = []
    for _, folder in folders_of(root, "pids"):
        limit, used = read_number(folder / "pids.max"), read_number(folder / "pids.current")
        if limit is not None and used is not None:  # "max" is none, and the top has neither
            found.append(ProcessLimit(shown(folder, root), limit, used))
    return tuple(found)


def read_read_limits(root: Path = Path("/")) -> tuple[ReadLimit, ...]:
    """Return every limit on reads that applies to this process, the closest first.

    In version 1 a group's limit applies to its own processes, and not to those of groups below it.
    """
    found = []
    for hierarchy in hierarchies(root):
        if hierarchy.version == 2:
            limits = [(folder, _reads_v2(folder)) for folder in hierarchy.folders]
        elif "blkio" in hierarchy.controllers:
            limits = [(folder, _reads_v1(folder)) for folder in hierarchy.folders[:1]]
        else:
            continue
        found += [
            ReadLimit(shown(folder, root), device, *most)
            for folder, by_device in limits
            for device, most in by_device.items()
            if any(most)
        ]
    return tuple(found)


def _reads_v2(folder: Path) -> dict[str, tuple[int | None, int | None]]:
    """Return the limits in bytes and in requests a second, by the number of the disk."""
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
    # Above memory.high processes are stalled until they release memory, which tmpfs cannot do.
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
    return MemoryLimit(shown(folder, root), min(limits), usage, cache)


def _memory_v1(folder: Path, root: Path, *, topmost: bool) -> MemoryLimit | None:
    """Return the limit of a group; that of the ``topmost`` may be one that cannot be seen.

    A container sees no group above its own, such as that of its job or pod, and not what others
    use of such a limit.
    """
    limit = read_number(folder / "memory.limit_in_bytes")
    usage = read_number(folder / "memory.usage_in_bytes")
    if limit is None or usage is None:
        return None
    stat = read_counts(folder / "memory.stat")
    if topmost:
        limit = min(limit, stat.get("hierarchical_memory_limit", limit))
    if limit >= _UNLIMITED_BYTES:
        return None
    # The total_ figures include the descendants, as the usage does. "cache" would include tmpfs.
    cache = stat.get("total_active_file", 0) + stat.get("total_inactive_file", 0)
    return MemoryLimit(shown(folder, root), limit, usage, cache)
