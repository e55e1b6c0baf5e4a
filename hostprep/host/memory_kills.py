"""Whether the kernel has since killed a process for lack of memory, and whose limit that was.

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

    On the whole machine if there is no such cgroup. ``groups`` are the memory cgroups above this
    process, the closest first, and how often each one's limit was reached: only with version 2,
    because version 1 does not say.
    """

    killed: int
    groups: dict[str, int]


def read_memory_kills(root: Path = Path("/")) -> MemoryKills:
    """Read the counters; no kills if the kernel counts none (before Linux 4.13)."""
    killed = None
    met: dict[str, int] = {}
    for number, (version, folder) in enumerate(folders_of(root, "memory")):
        # In version 2 only its own limit counts: a lower group's kills a process of that group.
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
    """Return in words what ran out since ``before``, None if nobody was killed for it."""
    if now.killed <= before.killed:
        return None
    for group, times in now.groups.items():
        if times > before.groups.get(group, times):
            return f"the memory limit of cgroup {group} was reached"
    return "memory ran out"
