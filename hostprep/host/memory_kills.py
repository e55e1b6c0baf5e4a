"""Whether the kernel killed a process since then for want of memory, and whose limit that was.

Formats: proc_vmstat(5), and the kernel's admin-guide/cgroup-v2 (memory.events.local) and
cgroup-v1/memory (memory.oom_control).
"""

from __future__ import annotations

from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.cgroup_folders import folders_of, shown
from hostprep.host.reading import read_counts


@dataclass(frozen=True, slots=True)
class MemoryKills:
    """How many processes of this one's memory cgroup were killed for that, whatever limit it was.

    Of the whole machine where there is no such cgroup. ``groups`` are the memory cgroups above this
    process, the closest first, and how often the limit of each was met: with version 2, the other
    one does not tell.
    """

    killed: int
    groups: dict[str, int]


def read_memory_kills(root: Path = Path("/")) -> MemoryKills:
    """Read the counters; no kills where the kernel counts none (before Linux 4.13)."""
    killed = None
    met: dict[str, int] = {}
    for number, (version, folder) in enumerate(folders_of(root, "memory")):
        # Of version 2 its own limit, and not that of a group below: then a process of it is killed.
        file = "memory.events.local" if version == 2 else "memory.oom_control"
        counts = read_counts(folder / file)
        if number == 0:
            killed = counts.get("oom_kill")
        if version == 2 and "oom" in counts:
            met[shown(folder, root)] = counts["oom"]
    if killed is None:
        killed = read_counts(root / "proc/vmstat").get("oom_kill", 0)
    return MemoryKills(killed, met)


def what_ran_out(before: MemoryKills, now: MemoryKills) -> str | None:
    """Return in words what ran out since ``before``, None where nobody was killed for it."""
    if now.killed <= before.killed:
        return None
    for group, times in now.groups.items():
        if times > before.groups.get(group, times):
            return f"the memory limit of cgroup {group} was reached"
    return "memory ran out"
