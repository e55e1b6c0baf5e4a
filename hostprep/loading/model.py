"""What is known of a loader, and of the host that it runs on; no code that measures or decides."""

from __future__ import annotations

import math
from enum import StrEnum

from hostprep.dataclass import dataclass


class Binding(StrEnum):
    """What limits the rate. ``GPU`` means that the loader is enough."""

    GPU = "gpu"
    READ = "read"
    DECODE = "decode"
    RESIZE = "resize"
    COLLATE = "collate"
    TRANSPORT = "transport"
    CPU = "cpu"
    WAITING = "waiting"
    MEMORY = "memory"
    SHARED_MEMORY = "shared_memory"
    DESCRIPTORS = "descriptors"
    PROCESSES = "processes"
    LENGTH = "length"
    SHARDING = "sharding"
    PIPELINE = "pipeline"
    MAIN_PROCESS = "main_process"


class Batching(StrEnum):
    """Who makes the batches, which tells how many samples a batch holds.

    ``SIZE`` is so many samples each. ``BATCH_SAMPLER`` is one of the user's own. Without automatic
    batching (``batch_size=None``), ``SAMPLER`` yields lists of indices, of each of which the data
    set makes a batch; for ``DATASET`` what it returns for an index, or streams, is taken for a
    batch as it is.
    """

    SIZE = "size"
    BATCH_SAMPLER = "batch_sampler"
    SAMPLER = "sampler"
    DATASET = "dataset"


@dataclass(frozen=True, slots=True)
class HostShare:
    """What the host gives to all ranks together, and how many ranks share it.

    ``capacity_cpus`` is processor time per second of time: the quota, or the processors that
    affinity allows, of which a second thread of the same core counts a part. ``start_cpus`` is
    what they all may count on at first: physical cores, or the quota if less. ``shm_size_bytes`` is
    None where nothing is mounted on /dev/shm, and 0 where that has no limit. ``cache_bytes`` is
    what the page cache may hold: more than ``memory_available_bytes`` under a commit limit.
    ``gpus`` are NVIDIA's that may be used here, whatever the torch is that runs hostprep.
    """

    ranks: int
    ranks_from: str
    affinity_cpus: int
    physical_cores: int | None
    quota_cpus: float | None
    quota_group: str | None
    capacity_cpus: float
    start_cpus: float
    cpus_from: str
    memory_available_bytes: int
    memory_from: str
    cache_bytes: int
    shm_size_bytes: int | None
    shm_free_bytes: int | None
    descriptors_limit: int | None
    gpus: int = 0

    @property
    def capacity_per_rank(self) -> float:
        """Return the processor time per second that one rank may count on."""
        return self.capacity_cpus / self.ranks

    @property
    def processors_per_rank(self) -> float:
        """The most processors that a rank can keep busy, each thread of a core counted in full."""
        quota = math.inf if self.quota_cpus is None else self.quota_cpus
        return min(self.affinity_cpus, quota) / self.ranks

    @property
    def measured_cpus(self) -> int:
        """How many processors the loader of one rank is pinned to while it is measured.

        A process can only be pinned to whole ones: of several ranks that is less than the share, or
        more of a share below one.
        """
        if self.ranks == 1:
            return self.affinity_cpus
        return max(1, math.floor(self.processors_per_rank))


@dataclass(frozen=True, slots=True)
class SampleCost:
    """What a sample takes in the main process, without workers, per sample unless it says batch.

    ``seconds`` is as it was; the others are with torch on one thread, as in a worker, where it
    took ``worker_seconds``; as it was, where there was no time for more.
    ``waiting_seconds`` is time that no processor was wanted: storage, network, sleep.
    ``batch_p99_over_mean`` tells how uneven the batches are; ``batch_size`` is their mean where
    they differ. ``shared_bytes`` are those of ``sample_bytes`` that workers hand over in /dev/shm,
    None where that is all of them. ``image_side`` is that of square images as large as those in a
    batch, in pixels, None where there are none. ``rows`` is how many rows of a batch a sample
    becomes, None where nobody can tell; ``rows_within`` those that each sample has by itself, where
    it looks like a batch. ``main_seconds`` and ``main_cpu_seconds`` are what a
    DataLoader class of somebody's own does with a sample besides, in the main process, whatever
    the workers: in ``seconds`` alone they are counted as well.
    """

    batch_size: int
    seconds: float
    worker_seconds: float
    cpu_seconds: float
    waiting_seconds: float
    collate_seconds: float
    collate_cpu_seconds: float
    sample_bytes: int
    tensors_per_batch: int
    batch_p99_over_mean: float
    image_side: int | None = None
    shared_bytes: int | None = None
    main_seconds: float = 0.0
    main_cpu_seconds: float = 0.0
    rows: float | None = None
    rows_within: int | None = None

    @property
    def batch_bytes(self) -> int:
        """Return the bytes of a batch."""
        return self.sample_bytes * self.batch_size

    @property
    def shared_batch_bytes(self) -> int:
        """Return the bytes of a batch that are in /dev/shm when a worker hands it over."""
        shared = self.sample_bytes if self.shared_bytes is None else self.shared_bytes
        return shared * self.batch_size


@dataclass(frozen=True, slots=True)
class Transport:
    """What handing ready batches from workers to the main process costs: the host's ceiling.

    ``worker_memory_bytes`` is what a worker held that makes no samples of its own.
    ``relative_error`` is that of the rate.
    """

    workers: int
    samples_per_s: float
    cpu_seconds: float
    worker_memory_bytes: int | None = None
    relative_error: float = 0.0


@dataclass(frozen=True, slots=True)
class Probe:
    """One real DataLoader, timed in a process of its own.

    ``samples_per_s`` is what the clock said. ``undisturbed_samples_per_s`` is what it would have
    been, had other programs not taken processor time meanwhile, and had a rank that is measured on
    more processors than are its share used no more than these: else the same.
    ``others_cpus`` is what they took. More than they took before the probe began, in
    ``others_before_cpus``, they took on its behalf, as a file server does.
    ``relative_error`` is the standard error of the mean of its rounds. ``own_cpus``, ``main_cpus``
    and ``runnable_cpus`` are processors' worth of time used by all its processes, used by the main
    one, and used or waited for. ``discarded_batches`` came before the clock was started.
    ``once_seconds`` is what it took until then beside making these: starting, and what is opened or
    read only once. ``warming`` tells that it still got faster when time was over.
    ``main_memory_bytes`` is what the main process holds where it makes the samples itself,
    ``worker_memory_bytes`` what a worker holds that it does not share. ``duplicate_workers`` gave
    the same batches as another worker, ``idle_workers`` gave none, and of ``untold_workers`` their
    batches do not tell. ``own_way``: the code with which the loader's own class goes through its
    batches had its part in it.
    ``seen_before`` tells that the data set was too short for fresh samples.
    """

    workers: int
    prefetch_factor: int
    samples_per_s: float
    undisturbed_samples_per_s: float
    relative_error: float
    samples: int
    seconds: float
    discarded_batches: int
    first_batch_seconds: float
    own_cpus: float
    main_cpus: float
    runnable_cpus: float
    others_cpus: float
    others_before_cpus: float
    main_memory_bytes: int | None
    worker_memory_bytes: int | None
    worker_growth_bytes_per_s: float | None
    worker_threads: int | None
    worker_affinity_cpus: int | None
    main_descriptors: int
    duplicate_workers: int
    seen_before: bool
    idle_workers: int = 0
    own_way: bool = False
    untold_workers: int = 0
    once_seconds: float = 0.0
    warming: bool = False

    @property
    def disturbed(self) -> bool:
        """Whether other programs changed the figure by more than 5 %."""
        return self.undisturbed_samples_per_s > 1.05 * self.samples_per_s

    @property
    def error(self) -> float:
        """How far off ``undisturbed_samples_per_s`` may be: it covers what the clock said."""
        return max(self.relative_error, 1 - self.samples_per_s / self.undisturbed_samples_per_s)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An iterable that is no DataLoader, timed as it is.

    ``counted`` says why an item counts as ``rows`` samples. ``maker`` is whose pipeline it is,
    where that is known: tf.data, DALI; ``goes_over`` names what of it is a DataLoader. ``own_cpus``
    are the processors that it kept busy in all, ``others_cpus`` those that other programs did.
    """

    samples_per_s: float
    relative_error: float
    rows: int
    counted: str
    maker: str | None
    own_cpus: float
    others_cpus: float
    goes_over: str | None = None


@dataclass(frozen=True, slots=True)
class FailedProbe:
    """A probe whose workers could not do their work for a reason that the host sets."""

    workers: int
    binding: Binding
    message: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be loaded, as found when it was opened.

    ``kind`` is ``dataset``, ``dataloader``, ``stream`` (an IterableDataset) or ``iterable``, of
    which only time can be taken. ``length`` counts the samples of an epoch, None where it has none.
    ``batch_size`` is None until it is measured where ``batching`` is not by size.
    ``pickle_errors`` says of the data set and each function of it (``dataset``, ``collate_fn``,
    ``worker_init_fn``) that cannot be sent to a spawned process why. ``current_*`` is what a
    DataLoader had; what workers take is None where it had none. ``kept`` is what else it was given,
    as words of a call, ``kept_with_workers`` what of it only workers take. ``own_class`` names the
    class of a DataLoader that is not torch's, and ``own_iteration`` tells that this one goes
    through its batches in its own way; ``own_way_problem``, why what it does there could not be
    timed.
    """

    kind: str
    description: str
    length: int | None
    batch_size: int | None
    shuffled: bool
    current_workers: int | None
    current_prefetch: int | None
    start_method: str
    pickle_errors: dict[str, str]
    pickle_bytes: int | None
    opencv_threads: int | None
    torch_version: str | None
    cuda: bool
    cuda_error: str | None
    batching: Batching = Batching.SIZE
    kept: tuple[str, ...] = ()
    kept_with_workers: tuple[str, ...] = ()
    own_class: str | None = None
    own_iteration: bool = False
    own_way_problem: str | None = None
    current_persistent: bool | None = None
    current_pin: bool | None = None

    @property
    def prefetch_now(self) -> int:
        """Return how many batches each worker prepares ahead as it is set now."""
        return self.current_prefetch or 2  # torch's default
