"""How much memory there is and how much may be used: the machine's, its nodes', the cgroup's."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.cgroup_folders import limits_are_hidden
from hostprep.host.cgroups import MemoryLimit, read_memory_limits
from hostprep.host.nodes import NodeLimit, read_node_limit
from hostprep.host.reading import read_lines, read_number, read_proc, read_text
from hostprep.units import KIB

_NO_OVERCOMMIT = 2
# Seen from a container with another /dev, it may be /zram0.
_ZRAM = re.compile(r"/(?:dev/)?(zram\d+)\s+partition\s")
COMMIT_LIMIT = "the kernel's commit limit (vm.overcommit_memory=2)"


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """The fields of ``/proc/meminfo`` that decide what fits, in bytes.

    ``available_bytes`` is the kernel's own estimate of what can be allocated without swapping
    (proc_meminfo(5), MemAvailable); ``shmem_bytes`` is what tmpfs and shared memory hold now.
    ``commit_left_bytes`` is what programs and tmpfs together may still get if the kernel limits
    that (``vm.overcommit_memory=2``); None if it does not. ``swap_in_ram``: all swap is zram that
    writes to no disk, so what is swapped out stays in RAM, compressed.
    """

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int
    shmem_bytes: int
    commit_left_bytes: int | None = None
    swap_in_ram: bool = False


@dataclass(frozen=True, slots=True)
class Headroom:
    """What this process may use of the machine's memory, including limits of cgroups and nodes.

    ``ram_bytes`` is the smallest of the RAM, the tightest cgroup limit and the memory nodes that
    the process is confined to: what a percentage of "the RAM" refers to. ``available_bytes`` is
    what may still be taken, and ``available_from`` names the figure that limits it:
    ``MemAvailable``, the commit limit, the cgroup's folder or the nodes. ``machine`` is the same
    for the machine as a whole, None if nothing limits this process. With ``limits_hidden`` a cgroup
    may leave less than is known. ``commit_limited_from_bytes`` is what would be available without a
    commit limit, None if there is none. ``swap_in_ram`` is as in ``MemoryFacts``.
    """

    ram_bytes: int
    available_bytes: int
    available_from: str
    swap_active: bool
    machine: Headroom | None = None
    limits_hidden: bool = False
    commit_limited_from_bytes: int | None = None
    swap_in_ram: bool = False

    @property
    def cache_bytes(self) -> int:
        """What the page cache may hold: it is promised to no program: no commit limit applies."""
        if self.commit_limited_from_bytes is None:
            return self.available_bytes
        return self.commit_limited_from_bytes

    @property
    def is_limited(self) -> bool:
        """Whether a limit leaves this process less than the machine has."""
        return self.machine is not None and self.available_bytes < self.machine.available_bytes


def read_memory(root: Path = Path("/")) -> MemoryFacts:
    """Read ``/proc/meminfo`` below ``root``.

    Raises ``HostprepError`` if it is missing, or lacks MemTotal.
    """
    fields: dict[str, int] = {}
    for line in read_proc(root, "meminfo").decode(errors="replace").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            fields[name] = int(words[0]) * (KIB if words[-1] == "kB" else 1)
    if "MemTotal" not in fields:
        raise HostprepError(
            "/proc/meminfo does not say how much memory there is (MemTotal).",
            "hostprep decides by it what fits: start the container without what is mounted over it"
            " (`findmnt /proc/meminfo`), or run it on the host",
        )
    # Linux before 3.14 has no MemAvailable: free memory and file cache replace it.
    estimate = fields.get("MemFree", 0) + fields.get("Cached", 0) - fields.get("Shmem", 0)
    mode, commit_left = read_number(root / "proc/sys/vm/overcommit_memory"), None
    if mode == _NO_OVERCOMMIT and "CommitLimit" in fields:
        commit_left = max(0, fields["CommitLimit"] - fields.get("Committed_AS", 0))
    return MemoryFacts(
        total_bytes=fields["MemTotal"],
        available_bytes=fields.get("MemAvailable", estimate),
        swap_total_bytes=fields.get("SwapTotal", 0),
        swap_free_bytes=fields.get("SwapFree", 0),
        shmem_bytes=fields.get("Shmem", 0),
        commit_left_bytes=commit_left,
        swap_in_ram=_swaps_to_ram_alone(root),
    )


def _swaps_to_ram_alone(root: Path) -> bool:
    """Whether there is swap, and all of it is zram without a disk to write to."""
    swaps = [_ZRAM.match(line) for line in read_lines(root / "proc/swaps")[1:]]
    return bool(swaps) and all(
        found and _writes_to_no_disk(root / "sys/block" / found[1]) for found in swaps
    )


def _writes_to_no_disk(zram: Path) -> bool:
    # A kernel without CONFIG_ZRAM_WRITEBACK lacks this file; without sysfs it is not known.
    return os.path.isdir(zram) and read_text(zram / "backing_dev") in (None, "none")


def headroom(
    memory: MemoryFacts,
    limits: tuple[MemoryLimit, ...],
    nodes: NodeLimit | None = None,
    *,
    limits_hidden: bool = False,
) -> Headroom:
    """Combine the machine's memory with all limits that apply to this process."""
    swap_active = memory.swap_total_bytes > 0
    available, bound_by = memory.available_bytes, "MemAvailable"
    uncommitted = None if memory.commit_left_bytes is None else available
    if memory.commit_left_bytes is not None and memory.commit_left_bytes < available:
        available, bound_by = memory.commit_left_bytes, COMMIT_LIMIT
    machine = Headroom(
        memory.total_bytes,
        available,
        bound_by,
        swap_active,
        limits_hidden=limits_hidden,
        commit_limited_from_bytes=uncommitted,
        swap_in_ram=memory.swap_in_ram,
    )
    found = [
        (limit.limit_bytes, limit.remaining_bytes, f"the memory limit of cgroup {limit.group}")
        for limit in limits
    ]
    if nodes is not None:
        remaining = int(nodes.available_share * memory.available_bytes)
        found.append((nodes.total_bytes, remaining, nodes.words))
    if not found:
        return machine
    for _, remaining, words in found:
        if remaining < available:
            available, bound_by = remaining, words
        if uncommitted is not None:
            uncommitted = min(uncommitted, remaining)
    return Headroom(
        ram_bytes=min([memory.total_bytes, *(limit for limit, _, _ in found)]),
        available_bytes=available,
        available_from=bound_by,
        swap_active=swap_active,
        machine=machine,
        limits_hidden=limits_hidden,
        commit_limited_from_bytes=uncommitted,
        swap_in_ram=memory.swap_in_ram,
    )


def read_headroom(root: Path = Path("/")) -> Headroom:
    """Read how much memory this process may still use, below ``root``."""
    return headroom(
        read_memory(root),
        read_memory_limits(root),
        read_node_limit(root),
        limits_hidden=limits_are_hidden("memory", root),
    )


def ram_for_percent(root: Path = Path("/")) -> int:
    """Return the bytes that ``50%`` is half of: the RAM or this process's limit, if smaller."""
    return read_headroom(root).ram_bytes
