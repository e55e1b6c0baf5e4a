"""Known ways for a loader to crash or slow down, looked for before they happen; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hostprep.loading.bounds import DOCKER_SHM_BYTES
from hostprep.loading.model import FailedProbe, HostShare, Probe, Subject
from hostprep.loading.recommendation import Bound, Hazard
from hostprep.units import GIB, MIB, format_bytes, format_count, format_number

_FEW_DESCRIPTORS = 4096
_MUCH_GROWTH_SHARE = 0.2
_THREADS_OF_A_WORKER = 3
# Of a data set. Pickled, objects are several times smaller than in memory.
_MUCH_BYTES = 16 * MIB
# The size that a remedy gives a small /dev/shm.
_AMPLE_SHM_BYTES = 8 * GIB
CURE_PROCESSES = "ulimit -u, or more of them for this cgroup: docker run --pids-limit"
CURE_DESCRIPTORS = (
    "ulimit -S -n 65536, or torch.multiprocessing.set_sharing_strategy('file_system')"
)
_CURES = {
    "descriptors": CURE_DESCRIPTORS,
    "memory": "fewer workers, a smaller batch, or more memory for this cgroup",
}
_NAMED = {"dataset": "the data set"}
# What pickle says about files and connections that a data set has opened.
_HANDLE = re.compile(
    r"h5py|'[\w.]*(Environment|[Cc]onnection|[Cc]ursor|VideoCapture)' object|__cinit__"
    r"|TextIOWrapper|FileIO|Buffered(Reader|Writer|Random)"
)
# Sharing these is safe for reading: only a process that is not forked must open its own.
_MAPPED = re.compile(r"'(mmap\.mmap|[\w.]*safe_open)' object")
_BEGUN = re.compile(r"'generator' object|DataLoaderIter")
# For a thread pool pickle first names its queue, from Python 3.14 on what makes its workers; forked
# workers have none of its threads.
_POOL = re.compile(
    r"'_queue\.SimpleQueue' object|WorkerContext\.prepare|pool objects cannot be passed"
)
_LOCK = re.compile(r"'_thread\.\w+' object")


def of_host(host: HostShare, descriptors_needed: int | None = None) -> tuple[Hazard, ...]:
    """Return what is known to break loaders on such a host, whatever the loader.

    ``descriptors_needed`` is about what the recommended loader takes. Training and validation have
    one each: a limit that suffices for two of them is no hazard.
    """
    found = []
    if host.shm_size_bytes is None:
        found.append(
            Hazard(
                "shm_absent",
                "/dev/shm is not mounted: workers have no way to hand over batches.",
                "mount -t tmpfs -o size=8G tmpfs /dev/shm",
            )
        )
    elif 0 < host.shm_size_bytes <= DOCKER_SHM_BYTES:
        docker = ", as Docker makes it" if host.shm_size_bytes == DOCKER_SHM_BYTES else ""
        found.append(
            Hazard(
                "shm_small",
                f"/dev/shm has {format_bytes(host.shm_size_bytes)}{docker}: a worker that finds it"
                " full dies with a bus error.",
                larger_shm(host),
            )
        )
    few = _FEW_DESCRIPTORS if descriptors_needed is None else 2 * descriptors_needed
    if host.descriptors_limit is not None and host.descriptors_limit < few:
        found.append(
            Hazard(
                "descriptors_few",
                f"{host.descriptors_limit} open files are allowed; every tensor in flight takes"
                " one ('received 0 items of ancdata').",
                CURE_DESCRIPTORS,
            )
        )
    if host.quota_cpus is not None and host.quota_cpus < host.affinity_cpus:
        found.append(
            Hazard(
                "cpu_quota",
                f"the cgroup {host.quota_group} gives {host.quota_cpus:g} of the"
                f" {host.affinity_cpus} processors that the affinity shows: rules from that number,"
                " or from os.cpu_count(), start too many workers.",
                "raise the quota (docker run --cpus, cpu.max), or take the number given here",
            )
        )
    return tuple(found)


def larger_shm(host: HostShare, subject: Subject | None = None) -> str:
    """Return how to enlarge /dev/shm or, if it is already large, how to need less of it.

    A size of hostprep's choice would shrink a large one, and how much RAM it may take is not known
    here.
    """
    if subject is not None and subject.moved_bytes >= _MUCH_BYTES:
        return (
            "multiprocessing_context='fork', whose workers share the data set's tensors where they"
            f" are; or {larger_shm(host)}"
        )
    size = host.shm_size_bytes
    if size is None or size < _AMPLE_SHM_BYTES:
        gibibytes = _AMPLE_SHM_BYTES // GIB
        return (
            f"mount -o remount,size={gibibytes}G /dev/shm; in a container: docker run"
            f" --shm-size={gibibytes}g or --ipc=host; in Kubernetes an emptyDir of medium Memory on"
            " /dev/shm"
        )
    return (
        "fewer or smaller batches in flight (prefetch_factor, batch_size); or, if there is RAM"
        f" for it, a /dev/shm larger than its {format_bytes(size)}:"
        " mount -o remount,size=SIZE /dev/shm"
    )


def of_bounds(
    host: HostShare, wanted: int, bounds: Iterable[Bound], subject: Subject | None = None
) -> tuple[Hazard, ...]:
    """Return which resources would not suffice for the number of workers that the work needs."""
    words = f"{format_count(wanted, 'worker')} would need"
    return _short(host, subject, "short", words, wanted, bounds)


def of_setting(host: HostShare, subject: Subject, bounds: Iterable[Bound]) -> tuple[Hazard, ...]:
    """Return which resources do not suffice for the loader's present settings.

    ``bounds`` are those at its own prefetch factor.
    """
    workers = subject.current_workers or 0
    now = f"as set now, {format_count(workers, 'worker')} with"
    words = f"{now} prefetch_factor={subject.prefetch_now} may need"
    return _short(host, subject, "short_now", words, workers, bounds)


def sharing(subject: Subject | None) -> str | None:
    """Return how workers come to share the data set if each is sent much of it, else None."""
    if subject is None or subject.copied_bytes < _MUCH_BYTES:
        return None
    return (
        f"have workers share the data set: started by {subject.start_method}, each has a copy of"
        f" it ({format_bytes(subject.copied_bytes)} pickled); multiprocessing_context='fork', or"
        " tensors instead of arrays and lists, make it one for all"
    )


def _short(
    host: HostShare,
    subject: Subject | None,
    code: str,
    what: str,
    workers: int,
    bounds: Iterable[Bound],
) -> tuple[Hazard, ...]:
    cures = {**_CURES, "shared_memory": larger_shm(host, subject)}
    if (shared := sharing(subject)) is not None:
        cures["memory"] = f"{shared}; or {cures['memory']}"
    return tuple(
        Hazard(
            f"{bound.binding}_{code}",
            f"{what} more than there is: {bound.reason}, {bound.workers} fit.",
            cures[bound.binding],
        )
        for bound in bounds
        if bound.workers < workers and bound.binding in cures
    )


def of_subject(subject: Subject) -> tuple[Hazard, ...]:
    """Return what is known of the loader itself to break or slow down workers."""
    found = []
    for part, error in subject.pickle_errors.items():
        shared = (
            ", and those that are forked share its open files or connections, and may read wrong"
            " data"
        )
        found.append(
            Hazard(
                "unpicklable",
                f"{_NAMED.get(part, part)} cannot be pickled ({error}): workers that start by"
                " spawn or forkserver (the default from Python 3.14 on) will fail"
                f"{shared if _HANDLE.search(error) else ''}.",
                unpicklable_cure(error, part),
            )
        )
    if subject.opencv_threads is not None and subject.opencv_threads > 1:
        found.append(
            Hazard(
                "opencv_threads",
                f"OpenCV starts {subject.opencv_threads} threads in every worker, which compete"
                " for the same processors.",
                "cv2.setNumThreads(0) in the data set's module or in worker_init_fn",
            )
        )
    return tuple(found)


def holds_a_pool(error: str) -> bool:
    """Return whether what cannot be pickled, going by pickle's message, has a pool of threads."""
    return _POOL.search(error) is not None


def unpicklable_cure(error: str, part: str) -> str:
    """Return what to do about something that cannot be pickled, going by pickle's message.

    ``part`` is the DataLoader argument concerned.
    """
    call = "__getitem__" if part == "dataset" else part
    init = "" if part == "worker_init_fn" else ", or in worker_init_fn"
    if _HANDLE.search(error):
        return (
            f"open files, databases and connections in the worker: when {call} is first called"
            f"{init}; not by fork, which would have workers share them"
        )
    if holds_a_pool(error):
        return (
            f"make pools of threads in the worker: when {call} is first called{init}; not by fork,"
            " which does not copy their threads: whatever waits for one waits forever"
        )
    if _MAPPED.search(error):
        return (
            f"open files that are mapped into memory in the worker: when {call} is first called"
            f"{init}; or multiprocessing_context='fork'"
        )
    if _BEGUN.search(error):
        return (
            f"begin generators, and passes through a DataLoader, in the worker: when {call} is"
            f" first called{init}; or multiprocessing_context='fork'"
        )
    if _LOCK.search(error):
        return (
            f"make locks, and what has them, in the worker: when {call} is first called{init};"
            " or multiprocessing_context='fork'"
        )
    what = "its classes and functions" if part == "dataset" else part
    return (
        f"define {what} at the top of a module, without lambda; or multiprocessing_context='fork'"
    )


def of_probes(
    host: HostShare, probes: Iterable[Probe], failed: Iterable[FailedProbe], length: int | None
) -> tuple[Hazard, ...]:
    """Return what real workers showed; ``length`` is an epoch's samples, if known."""
    found = {}
    probes = tuple(probes)
    for failure in failed:
        found["workers_failed"] = Hazard(
            "workers_failed",
            failure.message,
            {
                "shared_memory": larger_shm(host),
                "descriptors": CURE_DESCRIPTORS,
                "processes": CURE_PROCESSES,
            }.get(failure.binding, "fewer workers, or more memory for this cgroup"),
        )
    for probe in probes:
        if probe.duplicate_workers:
            found["unsharded"] = _unsharded(probe)
        if probe.idle_workers:
            found["idle_workers"] = _idle(probe)
        if probe.worker_affinity_cpus is not None and probe.worker_affinity_cpus < min(
            host.measured_cpus, probe.workers
        ):
            found["affinity_shrunk"] = Hazard(
                "affinity_shrunk",
                f"workers may only run on {format_count(probe.worker_affinity_cpus, 'processor')}"
                f", the main process on {host.measured_cpus}: some library has pinned them.",
                "os.sched_setaffinity(0, range(os.cpu_count())) in worker_init_fn; often"
                " KMP_AFFINITY=disabled or OMP_PROC_BIND=false does it",
            )
        if probe.worker_threads is not None and probe.worker_threads > _THREADS_OF_A_WORKER + 1:
            found["worker_threads"] = Hazard(
                "worker_threads",
                f"a worker has {probe.worker_threads} threads: the data set, or a library in it,"
                " has a pool of its own.",
                "if it is a library's, set OMP_NUM_THREADS=1, and call cv2.setNumThreads(0) in"
                " worker_init_fn",
            )
    if length is not None and (much := much_growth(host, probes, length)):
        found["worker_growth"] = Hazard(
            "worker_growth",
            f"workers grew by {format_bytes(much / length)} with each sample: over an epoch of"
            f" {format_number(length)} that would be {format_bytes(much)} in all.",
            "keep the data set's index in numpy arrays: a worker that counts references to"
            " Python objects copies their pages; and see whether the data set keeps something"
            " of each sample: persistent_workers=False frees it after an epoch",
        )
    return tuple(found.values())


def much_growth(host: HostShare, probes: Iterable[Probe], length: int) -> float | None:
    """Return the bytes by which all workers grow in ``length`` samples, None if that is not much.

    Counted by the samples made meanwhile, not by time: with another number of workers, or
    undisturbed, an epoch takes a different time, but the workers keep as much of it. It is the
    least of all probes: what workers keep, they keep in each, while their allocator may hold tens
    of megabytes more at one moment than at another.
    """
    seen = [
        probe.worker_growth_bytes_per_s * probe.workers / probe.samples_per_s
        for probe in probes
        if probe.worker_growth_bytes_per_s is not None
    ]
    grown_bytes = min(seen, default=0.0) * length
    return grown_bytes if grown_bytes > _MUCH_GROWTH_SHARE * host.memory_available_bytes else None


def _unsharded(probe: Probe) -> Hazard:
    distinct = probe.workers - probe.duplicate_workers
    return Hazard(
        "unsharded",
        f"{probe.workers} workers gave the batches of {distinct}: each of the others gives the same"
        " samples again, so an epoch has them several times, and more workers only seem to be"
        " faster.",
        "let each worker take its share in the IterableDataset's __iter__:"
        " itertools.islice(samples, info.id, None, info.num_workers) with info ="
        f" torch.utils.data.get_worker_info(); until then num_workers={distinct} at most",
    )


def _idle(probe: Probe) -> Hazard:
    busy = probe.workers - probe.idle_workers
    return Hazard(
        "idle_workers",
        f"{busy} of {probe.workers} workers gave all batches, and the others none: the data set"
        " cannot be divided among more.",
        "an IterableDataset that hands out whole files (shards) needs at least one for each worker"
        f" of all ranks: write more and smaller ones; until then num_workers={busy} at"
        " most",
    )
