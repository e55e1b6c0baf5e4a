"""How many workers the host allows; pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hostprep.loading.model import Binding, HostShare, Probe
from hostprep.loading.recommendation import Bound
from hostprep.units import MIB, format_bytes, format_count

_MEMORY_SHARE = 0.5
_SHM_SHARE = 0.8
# Batches of a rank in shared memory that no worker holds any more: the one being trained on, and
# the next one, which arrives before that is released.
_TAKEN_BATCHES = 2
# The prefetch factor of probes; torch's own default.
PROBE_PREFETCH = 2
# The prefetch factor of probes if enough workers fit only with this; torch takes no less.
LEAST_PREFETCH = 1
_MAIN_DESCRIPTORS = 16
# From this many processors on, a rank leaves one to its main process when nothing was measured.
_CPUS_WITH_RESERVE = 4
_DESCRIPTORS_OF_A_WORKER = 6
DESCRIPTORS_OF_A_TRAINING = 128
# No sensible answer is larger: the search does not go beyond it.
MOST_WORKERS = 64
# The most workers that the model alone may recommend if that is more than the processors: what no
# probe has confirmed may be far off, and idle workers cost memory. fastai's limit, the highest of
# the known rules.
MOST_UNCONFIRMED = 16
DOCKER_SHM_BYTES = 64 * MIB


def starting_point(host: HostShare) -> tuple[int, str]:
    """Return a number of workers a rank from the host alone, and the reason for it."""
    share = host.start_cpus / host.ranks
    reserve = 1 if share >= _CPUS_WITH_RESERVE else 0
    workers = max(1, math.floor(share) - reserve)
    words = f"usable processors: {host.start_cpus:g} ({host.cpus_from})"
    if host.ranks > 1:
        words += f", shared by {host.ranks} ranks ({host.ranks_from})"
    if reserve:
        words += "; each rank leaves one to its main process"
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
    moved_bytes: int = 0,
) -> tuple[Bound, ...]:
    """Return the most workers a rank that each resource allows, the tightest first.

    ``batches`` is the number in an epoch; ``worker_memory_bytes`` is what one worker was seen to
    hold, ``main_memory_bytes`` what the process that starts the workers holds itself.
    ``distinct_workers`` is how many workers give samples that no other one gives, None if all do.
    ``shared_bytes`` is the part of a batch that lies in /dev/shm, None if that is all of it, and
    ``moved_bytes`` are those of the data set that lie there.
    """
    found = [
        _by_memory(
            host, (worker_memory_bytes or 0) + prefetch_factor * batch_bytes, main_memory_bytes
        ),
        _by_shared_memory(
            host,
            batch_bytes if shared_bytes is None else shared_bytes,
            prefetch_factor,
            moved_bytes,
        ),
        _by_descriptors(
            host, descriptors_of_a_worker(prefetch_factor, tensors_per_batch), main_descriptors
        ),
    ]
    if batches is not None:
        found.append(Bound(Binding.LENGTH, batches, f"an epoch has {batches} batches"))
    if distinct_workers is not None:
        found.append(
            Bound(
                Binding.SHARDING,
                distinct_workers,
                "more workers deliver the same samples again, or none",
            )
        )
    return tuple(sorted(filter(None, found), key=lambda bound: bound.workers))


def _by_memory(host: HostShare, held_bytes: int, main_memory_bytes: int) -> Bound | None:
    """Return how many workers fit in memory at ``held_bytes`` each; None if that is nothing."""
    if not held_bytes:
        return None
    main_bytes = host.ranks * main_memory_bytes
    left_bytes = max(0, host.memory_available_bytes - main_bytes)
    beside = f", less {format_bytes(main_bytes)} for main processes" if main_bytes else ""
    return Bound(
        Binding.MEMORY,
        int(_MEMORY_SHARE * left_bytes / host.ranks // held_bytes),
        f"half of the {format_bytes(host.memory_available_bytes)} that {host.memory_from}"
        f" leaves{beside}, at {format_bytes(held_bytes)} per worker",
    )


def _by_shared_memory(
    host: HostShare, shared_bytes: int, prefetch_factor: int, moved_bytes: int
) -> Bound | None:
    """Return how many workers /dev/shm allows at that batch size; None if they need none of it."""
    if host.shm_free_bytes is None:
        return None
    # Whether the data set fits is known to the byte, unlike what batches take.
    left_bytes = max(0, host.shm_free_bytes - host.ranks * moved_bytes)
    if not shared_bytes:
        if host.ranks * moved_bytes <= host.shm_free_bytes:
            return None
        return Bound(
            Binding.SHARED_MEMORY,
            0,
            f"{format_bytes(host.shm_free_bytes)} free in /dev/shm, less than the"
            f" {format_bytes(host.ranks * moved_bytes)} of the data set's tensors",
        )
    in_shm = int(_SHM_SHARE * left_bytes / host.ranks // shared_bytes)
    beside = ""
    if moved_bytes:
        beside = f", less {format_bytes(host.ranks * moved_bytes)} for the data set's tensors"
    return Bound(
        Binding.SHARED_MEMORY,
        max(0, (in_shm - _TAKEN_BATCHES) // prefetch_factor),
        f"{format_bytes(host.shm_free_bytes)} free in /dev/shm{beside}, at"
        f" {format_count(prefetch_factor, 'batch')} of {format_bytes(shared_bytes)}"
        f" per worker and {_TAKEN_BATCHES} in use",
    )


def _by_descriptors(host: HostShare, each: int, main_descriptors: int) -> Bound | None:
    """Return what the open-files limit allows at ``each`` a worker; None without a limit."""
    if host.descriptors_limit is None:
        return None
    spare = host.descriptors_limit - main_descriptors - DESCRIPTORS_OF_A_TRAINING
    return Bound(
        Binding.DESCRIPTORS,
        max(0, spare // each),
        f"{host.descriptors_limit} open files allowed, at {each} per worker",
    )


def main_descriptors(probes: Sequence[Probe]) -> int:
    """Return the descriptors that a loader's main process has open without workers."""
    return max((probe.main_descriptors for probe in probes[:1]), default=_MAIN_DESCRIPTORS)


def main_memory(probes: Iterable[Probe]) -> int:
    """Return the bytes that a loader's main process was seen to hold; 0 if nobody looked."""
    return max((probe.main_memory_bytes or 0 for probe in probes), default=0)


def distinct_workers(probes: Iterable[Probe]) -> int | None:
    """Return how many workers give samples that no other one gives, None if all of them do."""
    idle = {p.workers: p.duplicate_workers + p.idle_workers for p in probes}
    return min((workers - none for workers, none in idle.items() if none), default=None)


def batches_in_shm(workers: int, prefetch_factor: int) -> int:
    """Return the most batches that a loader has in shared memory at once."""
    return workers * prefetch_factor + _TAKEN_BATCHES if workers else 0


def descriptors_of_a_training(
    workers: int, prefetch_factor: int | None, tensors_per_batch: int = 2
) -> int:
    """Return about how many descriptors a training takes; by default with images and labels.

    A ``prefetch_factor`` of None means a loader without workers.
    """
    each = descriptors_of_a_worker(prefetch_factor or 0, tensors_per_batch)
    return DESCRIPTORS_OF_A_TRAINING + workers * each


def descriptors_of_a_worker(prefetch_factor: int, tensors_per_batch: int) -> int:
    """Return how many descriptors a worker takes in the main process: one a tensor in transit."""
    return prefetch_factor * tensors_per_batch + _DESCRIPTORS_OF_A_WORKER
