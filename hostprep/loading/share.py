"""What the host gives to the ranks that train on it, read once from it and the environment."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hostprep.host.cpu import CpuFacts, allowed_cores, read_cpu
from hostprep.host.memory import read_headroom
from hostprep.host.mounts import mount_at, mount_over, read_mounts
from hostprep.loading.model import HostShare
from hostprep.loading.slurm import STEP_TASKS, has_own_processors, step_tasks
from hostprep.units import parse_size

# A core's second thread adds between a tenth and a third for decoding; an assumption for the model
# alone, which the probes then confirm or correct.
_SMT_GAIN = 0.25
_SLURM_TASKS = "SLURM_NTASKS_PER_NODE"
_RANK_VARIABLES = ("LOCAL_WORLD_SIZE", _SLURM_TASKS, "OMPI_COMM_WORLD_LOCAL_SIZE")
_UUID_PREFIXES = ("GPU-", "MIG-")


def ranks_here(gpus: int) -> tuple[int, str]:
    """Return how many ranks train here and who says so: a launcher, the GPUs, or nobody.

    ``gpus`` is how many the host has; those that CUDA may use count.
    """
    visible = visible_gpus(gpus)
    for name in _RANK_VARIABLES:
        value = os.environ.get(name, "")
        if not (value.isascii() and value.isdigit()) or int(value) < 1:
            continue
        if name == _SLURM_TASKS and int(value) == 1 and visible > 1:
            continue  # the one task of a node is torchrun, which starts a rank for each GPU
        return int(value), f"${name}"
    tasks = step_tasks() or 1
    if tasks > 1:  # a single one may be a shell, or a launcher
        return tasks, f"${STEP_TASKS}"
    if visible > 1:
        shown = " that CUDA_VISIBLE_DEVICES names" if visible < gpus else ""
        return visible, f"the number of GPUs{shown}"
    return 1, "one process, as nothing says otherwise"


def visible_gpus(gpus: int) -> int:
    """Return how many of the host's ``gpus`` CUDA_VISIBLE_DEVICES leaves, all if it is not set.

    It is read as CUDA reads it: an invalid device ends the list, as ``-1`` and ``NoDevFiles`` do,
    and one named twice leaves none. NVML ignores the variable.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return gpus
    prefix = next((each for each in _UUID_PREFIXES if listed.startswith(each)), "")
    named: list[str | int] = []
    for word in listed.split(","):
        device = _device(word.strip(), prefix, gpus)
        if device is None:
            break
        if device in named:
            return 0
        named.append(device)
    if prefix == "MIG-":  # parts of GPUs: there may be more of them than GPUs
        return len(named) if gpus else 0
    return min(len(named), gpus)


def _device(word: str, prefix: str, gpus: int) -> str | int | None:
    """Return the device that a word of CUDA_VISIBLE_DEVICES names, None if it names none."""
    if prefix:
        return word if word.startswith(prefix) else None
    digits = re.match(r"\+?\d+", word)
    index = int(digits.group()) if digits else -1
    return index if 0 <= index < gpus else None


def read_share(ranks: int, ranks_from: str, root: Path = Path("/")) -> HostShare:
    """Read what the host below ``root`` gives to ``ranks`` processes that train side by side."""
    cpu = read_cpu(root)
    memory = read_headroom(root)
    size_bytes, free_bytes = _shm(root)
    quota = cpu.quota
    times = ranks if has_own_processors(ranks, root) else 1
    capacity, start, cpus_from = _cpus(cpu, times)
    return HostShare(
        ranks=ranks,
        ranks_from=ranks_from,
        affinity_cpus=times * cpu.affinity,
        physical_cores=None if cpu.physical_cores is None else times * cpu.physical_cores,
        quota_cpus=None if quota is None else quota.cpus,
        quota_group=None if quota is None else quota.group,
        capacity_cpus=capacity,
        start_cpus=start,
        cpus_from=cpus_from,
        memory_available_bytes=memory.available_bytes,
        memory_from=memory.available_from,
        cache_bytes=memory.cache_bytes,
        shm_size_bytes=size_bytes,
        shm_free_bytes=free_bytes,
        descriptors_limit=_descriptors_limit(root),
    )


def _cpus(cpu: CpuFacts, times: int) -> tuple[float, float, str]:
    """Return the capacity, the processors to start from, and in words where these come from.

    ``times`` is how many ranks have as many processors as this process, each its own.
    """
    affinity = times * cpu.affinity
    cores = times * (cpu.physical_cores or cpu.affinity)
    capacity = cores + _SMT_GAIN * (affinity - cores)
    start, where = float(cores), cpu.usable_from
    if times > 1:
        where = f"Slurm bound each task to {cpu.affinity} of its own"
    if cores < affinity:
        where = f"the {cores} physical cores under {affinity} logical processors"
    if cpu.quota is not None and cpu.quota.cpus < start:
        start, where = cpu.quota.cpus, f"the quota of cgroup {cpu.quota.group}"
    if cpu.quota is not None:
        capacity = min(capacity, cpu.quota.cpus)
    return capacity, start, where


def share_of_cpus(host: HostShare, root: Path = Path("/")) -> list[int] | None:
    """Return the processors that one of several ranks can count on; None for a single rank.

    These are whole cores: Linux numbers the first threads of all cores before any second one, so
    the lowest numbers alone would be as many cores as processors. A quota is shared, too: a rank's
    part of it is spread over as many cores as the rank has, as the scheduler does.
    """
    if host.ranks == 1:
        return None
    cores = allowed_cores(root)
    count = max(1, host.affinity_cpus // host.ranks)
    mine = [(thread, number) for core in cores for thread, number in enumerate(core)][:count]
    if host.quota_cpus is not None:
        mine = sorted(mine)[: host.measured_cpus]
    return sorted(number for _, number in mine)


def _shm(root: Path) -> tuple[int | None, int | None]:
    """Return the size of /dev/shm and what is free of it; both None if there is none to be seen.

    Mounted with size=0 it has no limit: then its size is 0, and what is free is None.
    """
    mounts = read_mounts(root)
    mount = mount_at("/dev/shm", mounts)
    if mount is None or mount_over(mount, mounts) is not None:
        return None, None
    if root == Path("/"):
        stat = os.statvfs("/dev/shm")
        size_bytes, free_bytes = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        return size_bytes, free_bytes if size_bytes else None
    option = mount.option("size")  # for a captured host no more is known
    if option is None:
        return None, None
    size_bytes = 0 if option.rstrip("k") == "0" else parse_size(option)
    return size_bytes, size_bytes or None


def _descriptors_limit(root: Path) -> int | None:
    try:
        lines = (root / "proc/self/limits").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None
