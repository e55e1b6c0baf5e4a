"""The rate of a loader as a function of its workers; pure arithmetic.

Sources: the curve was fitted to the public grid of ternaus/imread_benchmark (five processors, ten
decoders, 0 to 8 workers), which it predicts within 7 to 8 %; a straight line overestimates by 149
%. Waiting follows Little's law.
"""

from __future__ import annotations

import math
from enum import StrEnum

from hostprep.dataclass import dataclass
from hostprep.loading.files.model import Stage, Stages
from hostprep.loading.model import SampleCost, Transport
from hostprep.system.page_cache import lru_hit_rate

KNEE = 3.5
# Share of the curve's ceiling: beyond it, further workers gain too little to go on.
_NEARLY = 0.95
# Share of one reader's rate times their number: readers that get this much have no ceiling yet.
_LINEAR = 0.8
# Share of one processor: threads that used this much waited for each other, not for storage.
_OWN_CPUS = 0.8


class Ceiling(StrEnum):
    """What sets the ceiling: the processors, the main process that takes batches in, or storage."""

    CPUS = "cpus"
    TRANSPORT = "transport"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class Curve:
    """Samples per second of one rank: ``alone`` without workers, ``worker`` for each, ``ceiling``.

    ``ceiling_from`` says what sets the ceiling.
    """

    alone: float
    worker: float
    ceiling: float
    ceiling_from: Ceiling

    def rate(self, workers: int) -> float:
        """Return the predicted samples per second; ``((w r)^-k + C^-k)^(-1/k)``.

        A single worker shares the ceiling with nobody, and reaches it: if there is only one
        processor, a second worker gains nothing.
        """
        if workers == 0:
            return self.alone
        one = min(self.worker, self.ceiling)
        return max(one, saturating(workers * self.worker, self.ceiling))

    def workers_for(self, samples_per_s: float) -> int | None:
        """Return the fewest workers that reach a rate; None if no number does."""
        if samples_per_s >= self.ceiling:
            return None
        if samples_per_s <= self.rate(1):
            return 1
        linear: float = (samples_per_s**-KNEE - self.ceiling**-KNEE) ** (-1 / KNEE)
        return math.ceil(linear / self.worker - 1e-9)

    def proposal(self, gpu_rate: float | None) -> int:
        """Return the workers to try first: enough for 1.1 times the GPU's rate, or nearly all."""
        wanted = _NEARLY * self.ceiling
        if gpu_rate is not None:
            wanted = min(wanted, 1.1 * gpu_rate)
        return self.workers_for(wanted) or 1


def saturating(linear: float, ceiling: float) -> float:
    """Return a rate that grows like ``linear`` and levels off smoothly at ``ceiling``."""
    return float((linear**-KNEE + ceiling**-KNEE) ** (-1 / KNEE))


def curve_of(
    cost: SampleCost,
    transport: Transport | None,
    capacity_cpus: float,
    *,
    storage_samples_per_s: float = math.inf,
) -> Curve:
    """Return the curve of one rank that may use ``capacity_cpus``.

    In a worker a sample takes what it takes without workers, except that batches are collated into
    shared memory and sent: that part is the transport's, measured with ready samples if it was.
    """
    work_cpu = max(cost.cpu_seconds - cost.collate_cpu_seconds, 0.0)
    sent_cpu = cost.collate_cpu_seconds if transport is None else transport.cpu_seconds
    cpu_seconds = max(work_cpu + sent_cpu, 1e-9)
    by_cpus = capacity_cpus / (cpu_seconds + cost.main_cpu_seconds)
    by_transport = math.inf if transport is None else transport.samples_per_s
    if cost.main_seconds:  # before or after a batch has come; meanwhile it takes no other
        by_transport = 1 / (1 / by_transport + cost.main_seconds)
    ceilings = {
        Ceiling.CPUS: by_cpus,
        Ceiling.TRANSPORT: by_transport,
        Ceiling.STORAGE: storage_samples_per_s,
    }
    lowest = min(ceilings, key=lambda each: ceilings[each])
    busy_seconds = (cost.cpu_seconds - cost.collate_cpu_seconds) + sent_cpu
    # Under a quota of less than one processor a worker runs only that share of the time.
    worker_seconds = cost.waiting_seconds + busy_seconds / min(1.0, capacity_cpus)
    return Curve(
        alone=1 / cost.seconds,
        worker=1 / max(worker_seconds, 1e-9),
        ceiling=ceilings[lowest],
        ceiling_from=lowest,
    )


def hit_rates(cached_share: float) -> tuple[float, float]:
    """Return the lowest and the highest share of reads that a cache answers.

    The lowest is plain LRU with a new random order in each epoch, the highest a pinned subset; the
    kernel's page cache lies between them.
    """
    share = min(max(cached_share, 0.0), 1.0)
    return lru_hit_rate(share), share


def prefetch_factor(p99_over_mean: float, wanted: float | None, reached: float) -> int:
    """Return the batches each worker prepares ahead: 2 to 4, more if batches are uneven.

    ``wanted`` is the rate of the consumer; None means that it takes whatever comes.
    """
    share = 1.0 if wanted is None else min(1.0, wanted / reached)
    return min(4, max(2, math.ceil(p99_over_mean * share - 0.25) + 1))


def cost_of_stages(stages: Stages, batch_size: int) -> SampleCost:
    """Return what a sample takes by its stages: read as it is, decoded, resized and collated."""
    read, collate = stages.stage("read_as_is"), stages.stage("collate")
    parts: tuple[Stage, ...] = (read, stages.stage("decode"), stages.stage("resize"), collate)
    seconds = sum(part.seconds for part in parts)
    cpu_seconds = min(seconds, sum(part.cpu_seconds for part in parts))
    return SampleCost(
        batch_size=batch_size,
        seconds=seconds,
        worker_seconds=seconds,
        cpu_seconds=cpu_seconds,
        waiting_seconds=max(0.0, read.seconds - read.cpu_seconds),
        collate_seconds=collate.seconds,
        collate_cpu_seconds=collate.cpu_seconds,
        sample_bytes=stages.sample_bytes,
        tensors_per_batch=1,
        batch_p99_over_mean=1.0,
    )


def storage_ceiling(stages: Stages) -> float:
    """Return the files a second that storage gives to any number of readers; inf if unknown."""
    seen = stages.side_by_side
    if seen is None or seen.cpus >= _OWN_CPUS:
        return math.inf
    linear = seen.readers / stages.stage("read_as_is").seconds
    return math.inf if seen.files_per_s >= _LINEAR * linear else seen.files_per_s
