"""The memory nodes (NUMA) of the machine, about one for each socket, and who may use which.

What a process writes into a tmpfs is taken from the nodes that the process may use. If these are
full, the kernel kills processes, however much memory the other nodes have (oom_kill,
CONSTRAINT_CPUSET and CONSTRAINT_MEMORY_POLICY).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.lists import format_list, parse_list
from hostprep.host.reading import own_status, read_lines, read_text
from hostprep.units import KIB

_NODES = "sys/devices/system/node"
# Memory of a node that is free, or reclaimed before the kernel refuses.
_AVAILABLE = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
# mpol_to_str in the kernel: the only policy that does not fall back on other nodes.
_BOUND = re.compile(r"bind[^: ]*:(\S+)")


@dataclass(frozen=True, slots=True)
class NodeLimit:
    """The memory nodes to which this process is confined, if not all.

    ``nodes`` is a list in the kernel's form, ``total_bytes`` their memory. ``available_share`` is
    their share of the machine's memory that can be taken without swapping: the kernel makes no
    estimate for a single node.
    """

    nodes: str
    total_bytes: int
    available_share: float

    @property
    def words(self) -> str:
        """Return the name of this figure, as ``MemAvailable`` is for the machine."""
        plural = "s" if not self.nodes.isdigit() else ""
        return f"memory node{plural} {self.nodes}, to which this process is held"


def read_node_limit(root: Path = Path("/")) -> NodeLimit | None:
    """Return the nodes that this process may use, None if these are all that have memory."""
    having = parse_list(read_text(root / _NODES / "has_memory"))
    if len(having) < 2:
        return None
    allowed = having
    for nodes in (_cpuset(root), _policy(root)):
        allowed = (allowed & nodes) or allowed
    if allowed == having:
        return None
    sizes = {node: _sizes(root, node) for node in having}
    available = {node: sum(sizes[node].get(name, 0) for name in _AVAILABLE) for node in having}
    return NodeLimit(
        format_list(allowed),
        sum(sizes[node].get("MemTotal", 0) for node in allowed),
        sum(available[node] for node in allowed) / max(1, sum(available.values())),
    )


def _cpuset(root: Path) -> frozenset[int]:
    return parse_list(own_status(root, "Mems_allowed_list"))


def _policy(root: Path) -> frozenset[int]:
    """Return the nodes of ``numactl --membind``, which children inherit; none without it."""
    try:
        with (root / "proc/self/numa_maps").open("rb") as maps:  # contains the path of a program
            first = os.fsdecode(maps.readline())
    except OSError:
        return frozenset()
    found = _BOUND.match(first.partition(" ")[2])
    return parse_list(found[1]) if found else frozenset()


def _sizes(root: Path, node: int) -> dict[str, int]:
    fields: dict[str, int] = {}
    for line in read_lines(root / _NODES / f"node{node}/meminfo"):
        words = line.split()  # Node 0 MemTotal:       24684096 kB
        if len(words) >= 4 and words[3].isdigit():
            fields[words[2].rstrip(":")] = int(words[3]) * (KIB if words[-1] == "kB" else 1)
    return fields
