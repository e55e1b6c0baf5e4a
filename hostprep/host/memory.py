"""How much memory there is and how much may still be used: the machine's, and the cgroup's."""

from __future__ import annotations

from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.cgroups import MemoryLimit, read_memory_limits
from hostprep.units import KIB


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """The fields of ``/proc/meminfo`` that decide what fits, in bytes.

    ``available_bytes`` is the kernel's own estimate of what can be allocated without swapping
    (proc_meminfo(5), MemAvailable); ``shmem_bytes`` is what tmpfs and shared memory hold now.
    """

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int
    shmem_bytes: int


@dataclass(frozen=True, slots=True)
class Headroom:
    """What this process may use of the machine's memory, cgroup limits included.

    ``ram_bytes`` is the smaller of the RAM and the tightest cgroup limit: what a percentage of "the
    RAM" refers to. ``available_bytes`` is what may still be taken, and ``available_from`` names the
    figure that bound it: ``MemAvailable`` or the cgroup's folder. ``machine`` is the same of the
    machine as a whole, None where no cgroup limits this process.
    """

    ram_bytes: int
    available_bytes: int
    available_from: str
    swap_active: bool
    machine: Headroom | None = None


def read_memory(root: Path = Path("/")) -> MemoryFacts:
    """Read ``/proc/meminfo`` below ``root``; raise ``HostprepError`` where it lacks MemTotal."""
    fields: dict[str, int] = {}
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            fields[name] = int(words[0]) * (KIB if words[-1] == "kB" else 1)
    if "MemTotal" not in fields:
        raise HostprepError("/proc/meminfo does not say how much memory there is (MemTotal).")
    # Linux before 3.14 has no MemAvailable: free and file cache stand in for it.
    estimate = fields.get("MemFree", 0) + fields.get("Cached", 0) - fields.get("Shmem", 0)
    return MemoryFacts(
        total_bytes=fields["MemTotal"],
        available_bytes=fields.get("MemAvailable", estimate),
        swap_total_bytes=fields.get("SwapTotal", 0),
        swap_free_bytes=fields.get("SwapFree", 0),
        shmem_bytes=fields.get("Shmem", 0),
    )


def headroom(memory: MemoryFacts, limits: tuple[MemoryLimit, ...]) -> Headroom:
    """Combine the machine's memory with every cgroup limit that this process is under."""
    swap_active = memory.swap_total_bytes > 0
    machine = Headroom(memory.total_bytes, memory.available_bytes, "MemAvailable", swap_active)
    if not limits:
        return machine
    available, bound_by = memory.available_bytes, "MemAvailable"
    for limit in limits:
        if limit.remaining_bytes < available:
            available, bound_by = limit.remaining_bytes, f"the memory limit of cgroup {limit.group}"
    return Headroom(
        ram_bytes=min([memory.total_bytes, *(limit.limit_bytes for limit in limits)]),
        available_bytes=available,
        available_from=bound_by,
        swap_active=swap_active,
        machine=machine,
    )


def read_headroom(root: Path = Path("/")) -> Headroom:
    """Read what this process may still use of the memory, below ``root``."""
    return headroom(read_memory(root), read_memory_limits(root))


def ram_for_percent(root: Path = Path("/")) -> int:
    """Return the bytes that ``50%`` is half of: the RAM or the cgroup's limit, if smaller."""
    return read_headroom(root).ram_bytes
