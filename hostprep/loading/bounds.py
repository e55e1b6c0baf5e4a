"""What the host allows: read once from ``/proc`` and ``/sys``, then bounds by arithmetic."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hostprep.host.cpu import CpuFacts, allowed_cores, read_cpu
from hostprep.host.memory import read_headroom
from hostprep.host.mounts import mount_at, mount_over, read_mounts
from hostprep.loading.model import Binding, HostShare, Probe
from hostprep.loading.recommendation import Bound
from hostprep.loading.slurm import STEP_TASKS, has_own_processors, step_tasks
from hostprep.units import MIB, format_bytes, format_count, parse_size

# What a second thread of a core adds to the first is between a tenth and a third for decoding;
# an assumption for the model alone, which the probes then confirm or correct.
SMT_GAIN = 0.25
MEMORY_SHARE = 0.5
SHM_SHARE = 0.8
# Batches of a rank in shared memory that no worker has in hand any more: the one that is trained
# on, and the next, which comes before that is let go of.
_TAKEN_BATCHES = 2
# What probes ask of each worker ahead; torch's own default.
PROBE_PREFETCH = 2
# What they ask where only so enough workers fit; torch takes no less.
LEAST_PREFETCH = 1
_MAIN_DESCRIPTORS = 16
# From here on a rank leaves one processor to its main process when nothing was measured.
_CPUS_WITH_RESERVE = 4
_DESCRIPTORS_OF_A_WORKER = 6
DESCRIPTORS_OF_A_TRAINING = 128
_SLURM_TASKS = "SLURM_NTASKS_PER_NODE"
_RANK_VARIABLES = ("LOCAL_WORLD_SIZE", _SLURM_TASKS, "OMPI_COMM_WORLD_LOCAL_SIZE")
_UUID_PREFIXES = ("GPU-", "MIG-")
# More than this is nobody's answer: the search does not go there.
MOST_WORKERS = 64
# The most that the model alone may ask for beyond the processors: what no probe has confirmed may
# be wrong by much, and idle workers cost memory. fastai's ceiling, the highest of the known rules.
MOST_UNCONFIRMED = 16
DOCKER_SHM_BYTES = 64 * MIB


def ranks_here(gpus: int) -> tuple[int, str]:
    """Return how many ranks train here and who says so: a launcher, the GPUs, or nobody.

    ``gpus`` is how many the host has; of these, those count that CUDA may use.
    """
    visible = visible_gpus(gpus)
    for name in _RANK_VARIABLES:
        value = os.environ.get(name, "")
        if not value.isdigit() or int(value) < 1:
            continue
        if name == _SLURM_TASKS and int(value) == 1 and visible > 1:
            continue  # the one task of a node is torchrun, which starts a rank for each GPU
        return int(value), f"${name}"
    tasks = step_tasks() or 1
    if tasks > 1:  # one may be a shell, or a launcher
        return tasks, f"${STEP_TASKS}"
    if visible > 1:
        shown = " that CUDA_VISIBLE_DEVICES names" if visible < gpus else ""
        return visible, f"the number of GPUs{shown}"
    return 1, "one process, as nothing says otherwise"


def visible_gpus(gpus: int) -> int:
    """Return how many of the host's ``gpus`` CUDA_VISIBLE_DEVICES leaves, all where it is not set.

    It is read as CUDA reads it: what is no device ends the list, as ``-1`` and ``NoDevFiles`` do,
    and one that is named twice leaves none. NVML takes no notice of it.
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
    """Return the device that a word of CUDA_VISIBLE_DEVICES names, None where it names none."""
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
        shm_size_bytes=size_bytes,
        shm_free_bytes=free_bytes,
        descriptors_limit=_descriptors_limit(root),
    )


def _cpus(cpu: CpuFacts, times: int) -> tuple[float, float, str]:
    """Return the capacity, what a start may count on, and in words where the latter is from.

    ``times`` is how many ranks have as many processors as this process, each its own.
    """
    affinity = times * cpu.affinity
    cores = times * (cpu.physical_cores or cpu.affinity)
    capacity = cores + SMT_GAIN * (affinity - cores)
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
    the first numbers alone would be as many cores as there are processors. A quota is shared, too.
    Its part of a rank is spread over as many cores as the rank has, as the scheduler spreads it.
    """
    if host.ranks == 1:
        return None
    cores = allowed_cores(root)
    count = max(1, host.affinity_cpus // host.ranks)
    mine = [(thread, number) for core in cores for thread, number in enumerate(core)][:count]
    if host.quota_cpus is not None:
        mine = sorted(mine)[: host.measured_cpus]
    return sorted(number for _, number in mine)


def starting_point(host: HostShare) -> tuple[int, str]:
    """Return a number of workers a rank from the host alone, and the reason for it."""
    share = host.start_cpus / host.ranks
    reserve = 1 if share >= _CPUS_WITH_RESERVE else 0
    workers = max(1, math.floor(share) - reserve)
    words = f"{host.start_cpus:g} usable ({host.cpus_from})"
    if host.ranks > 1:
        words += f", shared by {host.ranks} ranks ({host.ranks_from})"
    if reserve:
        words += ", one of each rank's left to its main process"
    return workers, words


def bounds(
    host: HostShare,
    *,
    batch_bytes: int,
    tensors_per_batch: int,
    prefetch_factor: int,
    batches: int | None,
    worker_memory_bytes: int | None,
    main_descriptors: int,
    main_memory_bytes: int = 0,
    distinct_workers: int | None = None,
    shared_bytes: int | None = None,
) -> tuple[Bound, ...]:
    """Return the most workers a rank that each resource allows, the tightest first.

    ``batches`` is what an epoch has; ``worker_memory_bytes`` is what one worker was seen to hold,
    ``main_memory_bytes`` what the process that starts them holds itself. ``distinct_workers`` is
    how many give samples that no other one gives, None where all do. ``shared_bytes`` are those of
    a batch that it has in /dev/shm, None where that is all of them.
    """
    found = []
    shared_bytes = batch_bytes if shared_bytes is None else shared_bytes
    ahead_bytes = prefetch_factor * batch_bytes
    held_bytes = (worker_memory_bytes or 0) + ahead_bytes
    if held_bytes:
        main_bytes = host.ranks * main_memory_bytes
        left_bytes = max(0, host.memory_available_bytes - main_bytes)
        beside = f", less {format_bytes(main_bytes)} of main processes" if main_bytes else ""
        found.append(
            Bound(
                Binding.MEMORY,
                int(MEMORY_SHARE * left_bytes / host.ranks // held_bytes),
                f"half of the {format_bytes(host.memory_available_bytes)} that {host.memory_from}"
                f" leaves{beside}, at {format_bytes(held_bytes)} a worker",
            )
        )
    if host.shm_free_bytes is not None and shared_bytes:
        in_shm = int(SHM_SHARE * host.shm_free_bytes / host.ranks // shared_bytes)
        found.append(
            Bound(
                Binding.SHARED_MEMORY,
                max(0, (in_shm - _TAKEN_BATCHES) // prefetch_factor),
                f"{format_bytes(host.shm_free_bytes)} free in /dev/shm, at"
                f" {format_count(prefetch_factor, 'batch')} of {format_bytes(shared_bytes)}"
                f" a worker and {_TAKEN_BATCHES} taken",
            )
        )
    if host.descriptors_limit is not None:
        spare = host.descriptors_limit - main_descriptors - DESCRIPTORS_OF_A_TRAINING
        each = descriptors_of_a_worker(prefetch_factor, tensors_per_batch)
        found.append(
            Bound(
                Binding.DESCRIPTORS,
                max(0, spare // each),
                f"{host.descriptors_limit} open files allowed, at {each} a worker",
            )
        )
    if batches is not None:
        found.append(Bound(Binding.LENGTH, batches, f"an epoch has {batches} batches"))
    if distinct_workers is not None:
        found.append(
            Bound(
                Binding.SHARDING,
                distinct_workers,
                "more workers give the same samples once more, or none",
            )
        )
    return tuple(sorted(found, key=lambda bound: bound.workers))


def main_descriptors(probes: Sequence[Probe]) -> int:
    """Return the descriptors that the main process of a loader has without workers."""
    return max((probe.main_descriptors for probe in probes[:1]), default=_MAIN_DESCRIPTORS)


def main_memory(probes: Iterable[Probe]) -> int:
    """Return the bytes that the main process of a loader was seen to hold; 0 where it was not."""
    return max((probe.main_memory_bytes or 0 for probe in probes), default=0)


def distinct_workers(probes: Iterable[Probe]) -> int | None:
    """Return how many workers give samples that no other one gives, None where all of them do."""
    idle = {p.workers: p.duplicate_workers + p.idle_workers for p in probes}
    return min((workers - none for workers, none in idle.items() if none), default=None)


def batches_in_shm(workers: int, prefetch_factor: int) -> int:
    """Return the most batches that a loader has in shared memory at once."""
    return workers * prefetch_factor + _TAKEN_BATCHES if workers else 0


def descriptors_of_a_worker(prefetch_factor: int, tensors_per_batch: int) -> int:
    """Return how many descriptors a worker takes in the main process: one a tensor on its way."""
    return prefetch_factor * tensors_per_batch + _DESCRIPTORS_OF_A_WORKER


def _shm(root: Path) -> tuple[int | None, int | None]:
    """Return the size of /dev/shm and what is free of it; both None where none is to be seen.

    Mounted with size=0 it has no limit: its size is 0 then, and what is free None.
    """
    mounts = read_mounts(root)
    mount = mount_at("/dev/shm", mounts)
    if mount is None or mount_over(mount, mounts) is not None:
        return None, None
    if root == Path("/"):
        stat = os.statvfs("/dev/shm")
        size_bytes, free_bytes = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        return size_bytes, free_bytes if size_bytes else None
    option = mount.option("size")  # of a captured host no more is known
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
