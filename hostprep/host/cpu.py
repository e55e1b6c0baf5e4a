"""How many processors this process may use, and what limits them."""

from __future__ import annotations

import os
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.cgroups import CpuQuota, read_cpu_quotas
from hostprep.host.lists import parse_list
from hostprep.host.reading import NO_PROC_HINT, own_status, read_lines, read_text


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """The processors of the machine and this process's share of them.

    ``online`` counts logical processors; ``affinity`` counts those that this process may run on,
    without those that the scheduler leaves alone (isolcpus=) if it may run on others too;
    ``physical_cores`` are the cores under these (None if the kernel does not say), and
    ``threads_per_core`` is how many logical processors such a core has at most, usable or not.
    ``quota`` is the tightest cgroup quota. ``usable`` is the smaller of affinity and quota, and
    ``usable_from`` says in words which it is.
    """

    model: str | None
    online: int
    affinity: int
    physical_cores: int | None
    threads_per_core: int | None
    quota: CpuQuota | None
    usable: float
    usable_from: str


def read_cpu(root: Path = Path("/")) -> CpuFacts:
    """Read the processors below ``root``; raise ``HostprepError`` if nothing lists them."""
    allowed, online = allowed_and_online(root)
    if not allowed:
        message = "neither /proc nor /sys says how many processors there are."
        raise HostprepError(message, NO_PROC_HINT)
    quota = min(read_cpu_quotas(root), key=lambda found: found.cpus, default=None)
    usable, usable_from = float(len(allowed)), "all processors that are online"
    if quota is not None and quota.cpus < len(allowed):
        usable, usable_from = quota.cpus, f"the quota of cgroup {quota.group}"
    elif len(allowed) < len(online):
        usable_from = "the affinity of this process (cpuset, taskset, isolcpus=)"
    cores = {_siblings(root, number) for number in allowed}
    known = all(cores)
    return CpuFacts(
        model=_model(root),
        online=len(online),
        affinity=len(allowed),
        physical_cores=len(cores) if known else None,
        threads_per_core=max(map(len, cores)) if known else None,
        quota=quota,
        usable=usable,
        usable_from=usable_from,
    )


def online_cpus(root: Path = Path("/")) -> frozenset[int]:
    """Return the numbers of the logical processors that are online, none if no file lists them."""
    return parse_list(read_text(root / "sys/devices/system/cpu/online"))


def usable_cpus(root: Path = Path("/")) -> float:
    """Return how many processors' time this process may use, a fraction under a quota."""
    return read_cpu(root).usable


def allowed_cores(root: Path = Path("/")) -> tuple[tuple[int, ...], ...]:
    """Return the processors that this process may run on, core by core, by their numbers.

    If the kernel does not say which share a core, each is a core of its own.
    """
    allowed, _ = allowed_and_online(root)
    cores = dict.fromkeys(
        tuple(sorted(_siblings(root, number) & allowed)) or (number,) for number in sorted(allowed)
    )
    return tuple(cores)


def allowed_and_online(root: Path) -> tuple[frozenset[int], frozenset[int]]:
    """Return the processors that this process may run on, and those that are online."""
    listed = parse_list(own_status(root, "Cpus_allowed_list"))
    online = online_cpus(root) or listed
    mine = (listed & online) or online  # what is listed may be offline or absent
    return _scheduled(mine, root), online


def scheduled_cpus(root: Path = Path("/")) -> frozenset[int]:
    """Return the processors that this process runs on: those that the scheduler moves it to."""
    return _scheduled(frozenset(os.sched_getaffinity(0)), root)


def _scheduled(cpus: frozenset[int], root: Path) -> frozenset[int]:
    """Return those processors of an affinity that the scheduler uses; all if it uses none of them.

    Only processes that are pinned there run on isolated processors (isolcpus=). A cpuset's list,
    and the affinity of everything in it, includes them nevertheless.
    """
    isolated = parse_list(read_text(root / "sys/devices/system/cpu/isolated"))
    return (cpus - isolated) or cpus


def _siblings(root: Path, number: int) -> frozenset[int]:
    """Return the logical processors that share a core with ``number``, itself included."""
    topology = root / f"sys/devices/system/cpu/cpu{number}/topology"
    return parse_list(
        read_text(topology / "core_cpus_list") or read_text(topology / "thread_siblings_list")
    )


def _model(root: Path) -> str | None:
    for line in read_lines(root / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip() or None
    return None
