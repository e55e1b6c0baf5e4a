"""What the machine did during a measurement: processors and disks, by the kernel's counters."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.block import PathStorage, StorageClass
from hostprep.host.cgroups import read_cpu_throttling, throttled_share
from hostprep.host.cpu import scheduled_cpus
from hostprep.host.cpu_time import cpu_ticks
from hostprep.host.reading import matching
from hostprep.probing.model import Load

# The unit in /proc/diskstats, whatever the disk's own is (Documentation/admin-guide/iostats).
_SECTOR_BYTES = 512
_NAMESPACE = re.compile(r"nvme(\d+)n(\d+)")


class Meter:
    """Counters from when the meter is made until ``load`` is called."""

    def __init__(self, disks: Iterable[str], root: Path = Path("/")) -> None:
        self._disks = tuple(disks)
        self._root = root
        self._cpu = cpu_ticks(root)
        self._throttling = read_cpu_throttling(root)
        self._counts = disk_counts(self._disks, root)
        self._children = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._begun = time.monotonic()

    def load(self) -> Load:
        """Return what has happened since then."""
        now, before = disk_counts(self._disks, self._root), self._counts
        load = Load(
            cpu_busy=cpu_ticks(self._root).busy_share_since(self._cpu),
            device_bytes=None,
            throttled=throttled_share(self._throttling, read_cpu_throttling(self._root)),
            seconds=time.monotonic() - self._begun,
        )
        if now is not None and before is not None:
            load = replace(
                load,
                device_bytes=now.read_bytes - before.read_bytes,
                written_bytes=now.written_bytes - before.written_bytes,
                requests=now.requests - before.requests,
                read_requests=now.read_requests - before.read_requests,
            )
        return self.with_children(load)

    def with_children(self, load: Load) -> Load:
        """Return ``load`` with the time and reads of children that have ended since the beginning.

        Before they have ended, and were waited for, they are not counted.
        """
        now, before = resource.getrusage(resource.RUSAGE_CHILDREN), self._children
        took = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
        had = (load.seconds or 0) * len(scheduled_cpus(self._root))
        return replace(
            load,
            asked_bytes=(now.ru_inblock - before.ru_inblock) * _SECTOR_BYTES,
            cpu_own=took / had if had else None,
        )


@dataclass(frozen=True, slots=True)
class DiskCounts:
    """What disks have read and written since boot, and how many requests they served for that.

    ``read_requests`` are the reads among them.
    """

    read_bytes: int
    written_bytes: int
    requests: int
    read_requests: int


def disk_counts(disks: Iterable[str], root: Path = Path("/")) -> DiskCounts | None:
    """Return the counters of ``disks`` added up, None if one is not counted."""
    wanted = set(disks)
    if not wanted:
        return None
    read = written = requests = read_requests = 0
    try:
        lines = (root / "proc/diskstats").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[2] in wanted:
            read += int(fields[5]) * _SECTOR_BYTES
            written += int(fields[9]) * _SECTOR_BYTES
            read_requests += int(fields[3])
            requests += int(fields[3]) + int(fields[7])
            wanted.discard(fields[2])
    return None if wanted else DiskCounts(read, written, requests, read_requests)


def counted_disks(storage: PathStorage, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the devices whose counters tell what was really read, none if nothing counts it."""
    if storage.storage_class is StorageClass.RAM:
        return ()
    # A loop device on a network or FUSE file has no disk below it: it counts itself.
    disks = [disk.name for disk in storage.disks] or [dev.name for dev in storage.devices[:1]]
    names = [name for disk in disks for name in counting_devices(disk, root)]
    for name in names:
        try:
            place = root / "sys/class/block" / name.replace("/", "!")
            counts = (place / "queue/iostats").read_text().strip()
        except OSError:
            continue  # a partition counts, and has no such switch
        if counts == "0":
            return ()
    return tuple(names)


def counting_devices(disk: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the devices that count what ``disk`` reads: itself, or the paths that lead to it.

    Under NVMe's own multipathing, for which one port of a dual-port drive suffices, hidden devices
    ``nvme0c0n1`` and so on read ``nvme0n1``. They count in every kernel; the namespace itself does
    so only in recent ones, and in others its counters stay zero.
    """
    namespace = _NAMESPACE.fullmatch(disk)
    if namespace is None:
        return (disk,)
    paths = matching(root / "sys/class/block", f"nvme{namespace[1]}c*n{namespace[2]}")
    return tuple(path.name for path in paths) or (disk,)
