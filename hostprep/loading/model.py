"""What is known of a loader and of its host; no code that measures or decides."""

from __future__ import annotations

import math
from enum import StrEnum

from hostprep.dataclass import dataclass

# What is sent to a worker is pickled and unpickled, which takes about as long, and copied several
# times: seen were 1.8 times the seconds for objects, and 0.6 GB/s for an array.
_SENDING_TIMES, _SENT_BYTES_PER_S = 2.0, 5e8


class Binding(StrEnum):
    """What limits the rate. ``GPU`` means that the loader suffices."""

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
    """Who makes the batches, which determines how many samples a batch holds.

    ``SIZE``: each has the same number of samples. ``BATCH_SAMPLER``: a batch sampler of the user's
    own makes them. Without automatic batching (``batch_size=None``), ``SAMPLER`` means that the
    sampler yields lists of indices, and the data set makes a batch of each; ``DATASET`` means that
    whatever the data set returns for an index, or streams, is taken for a batch as it is.
    """

    SIZE = "size"
    BATCH_SAMPLER = "batch_sampler"
    SAMPLER = "sampler"
    DATASET = "dataset"


@dataclass(frozen=True, slots=True)
class HostShare:
    """What the host gives to all ranks together, and how many ranks share it.

    ``capacity_cpus`` is processor time per second of time: the quota, or the processors that the
    affinity allows, with a second thread of the same core counted in part. ``start_cpus`` is what
    all of them may count on at first: physical cores, or the quota if less. ``shm_size_bytes`` is
    None if nothing is mounted on /dev/shm, and 0 if that has no limit. ``cache_bytes`` is what the
    page cache may hold: more than ``memory_available_bytes`` under a commit limit. ``gpus`` counts
    the NVIDIA GPUs that may be used here, whichever torch runs hostprep.
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
        """The most processors that a rank can keep busy, each hardware thread counted in full."""
        quota = math.inf if self.quota_cpus is None else self.quota_cpus
        return min(self.affinity_cpus, quota) / self.ranks

    @property
    def measured_cpus(self) -> int:
        """How many processors the loader of one rank is pinned to while it is measured.

        A process can only be pinned to whole processors: with several ranks these are fewer than
        the rank's share, or more if the share is below one.
        """
        if self.ranks == 1:
            return self.affinity_cpus
        return max(1, math.floor(self.processors_per_rank))


@dataclass(frozen=True, slots=True)
class SampleCost:
    """What a sample takes in the main process, without workers; per sample unless it says batch.

    ``seconds`` is as measured; the others are with torch on one thread, as in a worker, where a
    sample took ``worker_seconds``, or as measured, if there was no time for more.
    ``waiting_seconds`` is time in which no processor was wanted: storage, network, sleep.
    ``batch_p99_over_mean`` says how uneven the batches are; ``batch_size`` is their mean size if
    they differ. ``shared_bytes`` are those of ``sample_bytes`` that workers pass on in /dev/shm,
    None if that is all of them. ``image_side`` is the side in pixels of square images as large as
    those in a batch, None if there are none. ``rows`` is how many rows of a batch a sample becomes,
    None if nobody can tell; ``rows_within`` is how many rows each sample itself has, if it looks
    like a batch. ``main_seconds`` and ``main_cpu_seconds`` are what a user's DataLoader class adds
    for each sample in the main process, whatever the workers: of the others only ``seconds``
    includes them.
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
        """Return the bytes of a batch that are in /dev/shm when a worker passes it on."""
        shared = self.sample_bytes if self.shared_bytes is None else self.shared_bytes
        return shared * self.batch_size


@dataclass(frozen=True, slots=True)
class Transport:
    """What passing ready batches from workers to the main process costs: the host's ceiling.

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
    been if other programs had not used processor time meanwhile, and if a rank that was measured on
    more processors than its share had used only its share; otherwise the same. ``others_cpus`` is
    what other programs used. What exceeds ``others_before_cpus``, their use before the probe began,
    they used on its behalf, as a file server does. ``relative_error`` is the standard error of the
    mean of its rounds. ``own_cpus``, ``main_cpus`` and ``runnable_cpus`` are the processors used by
    all its processes, used by the main one, and used or waited for. ``discarded_batches`` came
    before the clock started. ``once_seconds`` is what it took until then apart from making these:
    starting, and what is opened or read only once. ``warming``: it was still getting faster when
    time was over. ``main_memory_bytes`` is what the main process holds if it makes the samples
    itself, ``worker_memory_bytes`` what a worker holds unshared. ``duplicate_workers`` gave the
    same batches as another worker, ``idle_workers`` gave none, and the batches of
    ``untold_workers`` do not tell. ``own_way``: the loader class's own code for iterating over
    batches took part. ``seen_before``: the data set was too short for fresh samples.
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
        """The relative error of ``undisturbed_samples_per_s``: it covers what the clock said."""
        return max(self.relative_error, 1 - self.samples_per_s / self.undisturbed_samples_per_s)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An iterable that is not a DataLoader, timed as it is.

    ``counted`` says why an item counts as ``rows`` samples. ``maker`` says whose pipeline it is, if
    known: tf.data, DALI; ``goes_over`` names its attribute that is a DataLoader. ``own_cpus`` are
    the processors that it kept busy in all, ``others_cpus`` those that other programs kept busy.
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
    """A probe whose workers could not do their work because of one of the host's limits."""

    workers: int
    binding: Binding
    message: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be loaded, as found when it was opened.

    ``kind`` is ``dataset``, ``dataloader``, ``stream`` (an IterableDataset) or ``iterable``, which
    can only be timed. ``length`` counts the samples of an epoch, None if it has none.
    ``batch_size`` is None until it is measured if ``batching`` is not by size. ``pickle_errors``
    says why parts (``dataset``, ``collate_fn``, ``worker_init_fn``) cannot be sent to a spawned
    process; ``pickle_bytes`` are what is sent if they can, ``pickle_seconds`` what pickling them
    took, and ``tensor_bytes`` what is not sent but moved into shared memory. ``current_*`` are a
    DataLoader's present settings; those that only apply with workers are None if it had none.
    ``kept`` is what else it was given, as arguments of a call, ``kept_with_workers`` those that
    need workers. ``own_class`` names the class of a DataLoader if it is not torch's, and
    ``own_iteration`` says whether that class iterates over its batches in its own way;
    ``own_way_problem`` says why that could not be timed.
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
    pickle_seconds: float | None = None
    tensor_bytes: int = 0

    @property
    def moved_bytes(self) -> int:
        """Return the bytes of the data set that are in /dev/shm while it has workers."""
        return 0 if self.start_method == "fork" else self.tensor_bytes

    @property
    def sending_seconds(self) -> float:
        """Return how long a worker is likely to take to get what it is sent."""
        if not self.copied_bytes:
            return 0.0
        pickling_seconds = self.pickle_seconds or 0.0
        return _SENDING_TIMES * pickling_seconds + self.copied_bytes / _SENT_BYTES_PER_S

    @property
    def copied_bytes(self) -> int:
        """Return the bytes that each worker is sent for itself; a forked one shares them."""
        return 0 if self.start_method == "fork" else self.pickle_bytes or 0

    @property
    def prefetch_now(self) -> int:
        """Return how many batches each worker prepares ahead with the present settings."""
        return self.current_prefetch or 2  # torch's default
