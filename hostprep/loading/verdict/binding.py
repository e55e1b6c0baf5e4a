"""What limits a rate, and what would raise it; pure."""

from __future__ import annotations

from collections.abc import Iterable

from hostprep.loading.curve import Ceiling, hit_rates
from hostprep.loading.hazards import larger_shm, sharing
from hostprep.loading.measuring.disturbance import kept_from
from hostprep.loading.measuring.variants import Variant, competed, is_ahead
from hostprep.loading.model import Binding, HostShare
from hostprep.loading.recommendation import Bound
from hostprep.loading.search import STOP_GAIN, Point, delivered, feeds
from hostprep.loading.verdict.known import Known
from hostprep.loading.verdict.unconfirmed import handed_over
from hostprep.units import format_bytes

# Share of the usable processors: from here on these are the shortage.
BUSY_SHARE = 0.85
# Share of one processor: from here on the main process, which takes batches in, is the shortage.
_MAIN_BUSY = 0.85
# Share of a sample's time without workers: from here on everything else takes less.
_MAIN_MOST = 0.5
_WAITING_SHARE = 0.5
_MUCH_SLOWER = 2.0
_STORE_SMALL = "store images at the size you train on (resize once, then JPEG again)"
_DECODE_ON_GPU = (
    "or let the GPU decode JPEG while it waits (nvJPEG, by torchvision.io.decode_jpeg, or DALI)"
)
_FEWER_BYTES = "make batches of uint8 and convert to float on the GPU: a quarter of the bytes"
# Nobody knows what a user's collate function makes: tokens are not uint8.
_COLLATE_LESS = (
    "do less when making batches: tokenise, pad and convert once, and store that; for images,"
)
# These are not images: only their type and their number can be reduced.
_STORE_ARRAYS = (
    "store arrays in the smallest type that will do (uint8 or float16 instead of float32), or many"
    " in one file that is mapped into memory: np.load(..., mmap_mode='r')"
)


def what_binds(known: Known, point: Point) -> Binding:
    """Return what keeps the rate from being higher than at ``point``."""
    if feeds(point, known.gpu_rate):
        return Binding.GPU
    busy = _MAIN_BUSY if point.workers else _MAIN_MOST
    if known.cost.main_seconds * point.rate >= busy:
        return Binding.MAIN_PROCESS
    wanted = known.curve.proposal(known.gpu_rate)
    for bound in known.bounds:
        if _stops(bound, known, point, wanted):
            return bound.binding
    probes = [probe for probe in known.probes if probe.workers == point.workers]
    host = known.host
    cpus = usable_cpus(host)
    if not probes:
        waits = known.cost.waiting_seconds > _WAITING_SHARE * known.cost.worker_seconds
        if waits and point.rate < BUSY_SHARE * known.curve.ceiling:
            return Binding.READ if known.stages else Binding.WAITING
        if known.curve.ceiling_from is Ceiling.STORAGE:
            return Binding.READ
        by_cpus = known.curve.ceiling_from is Ceiling.CPUS
        return _stage_or_cpu(known) if by_cpus else Binding.TRANSPORT
    own = sum(probe.own_cpus for probe in probes) / len(probes)
    main = sum(probe.main_cpus for probe in probes) / len(probes)
    kept = sum(map(kept_from, probes)) / len(probes)
    if point.workers == 0:
        busiest = max(known.cost.waiting_seconds, known.cost.collate_seconds)
        if busiest == known.cost.waiting_seconds > _WAITING_SHARE * known.cost.worker_seconds:
            return Binding.READ if known.stages else Binding.WAITING
        if busiest > _WAITING_SHARE * known.cost.worker_seconds:
            return Binding.COLLATE
        # Workers were tried and gave less, though there were processors for them: what they add is
        # the transport to the main process. A loader with threads may use all processors by itself;
        # but torch's threads, which it does not have in workers, mostly wait for each other.
        needed = max(1.0, min(own, known.cost.cpu_seconds * point.rate))
        tried = any(p.workers for p in known.points) and cpus > needed / BUSY_SHARE
        return Binding.TRANSPORT if tried and _ready(known, point) else _stage_or_cpu(known)
    if main >= _MAIN_BUSY and main > own / 2:
        return Binding.TRANSPORT
    # Where more workers were not tried, these may be busy although processors are left.
    at_work = sum(probe.runnable_cpus - probe.main_cpus for probe in probes) / len(probes)
    if own + kept >= BUSY_SHARE * cpus or at_work >= BUSY_SHARE * point.workers:
        return _stage_or_cpu(known)
    return Binding.READ if known.stages else Binding.WAITING


def _ready(known: Known, point: Point) -> bool:
    """Return whether samples come not much slower than workers could pass them on at best.

    If making them takes longer than that, and workers gave less, something else kept them from
    their work, as other programs often do.
    """
    best = handed_over(known.cost)
    if known.curve.ceiling_from is Ceiling.TRANSPORT:  # measured: many small tensors take longer
        best = min(best, known.curve.ceiling)
    return _MUCH_SLOWER * point.rate >= best


def usable_cpus(host: HostShare) -> float:
    """Return the processors that a rank could use while it was measured."""
    return min(host.capacity_per_rank, host.measured_cpus)


def _stops(bound: Bound, known: Known, point: Point, wanted: int) -> bool:
    """Return whether a bound stopped the search at ``point``, rather than merely existing."""
    if bound.binding is Binding.SHARDING:
        if any(probe.idle_workers for probe in known.probes):
            return point.workers >= bound.workers  # more of them had nothing to do
        # What more workers gave, even as duplicates, is what they would give as samples.
        more = [p for p in known.points if p.workers > bound.workers]
        enough = (1 + STOP_GAIN) * delivered(point, known.gpu_rate)
        return any(delivered(other, known.gpu_rate) > enough for other in more)
    return bound.workers < wanted and point.workers >= bound.workers


def _stage_or_cpu(known: Known) -> Binding:
    """Return the stage that takes most processor time, if the stages are known."""
    stages = known.stages
    if stages is None:
        work = known.cost.cpu_seconds - known.cost.collate_cpu_seconds
        return Binding.CPU if work >= known.cost.collate_cpu_seconds else Binding.COLLATE
    names = {
        "read_as_is": Binding.READ,
        "decode": Binding.DECODE,
        "resize": Binding.RESIZE,
        "collate": Binding.COLLATE,
    }
    return names[max(names, key=lambda name: stages.stage(name).cpu_seconds)]


def remedy(known: Known, point: Point, binding: Binding) -> str | None:
    """Return what would raise the rate at ``point``, since more workers do not."""
    if binding is Binding.READ:
        return _staging(known)
    if binding is Binding.TRANSPORT and not point.workers:
        # It binds when workers are used: here they would only add the cost of sending.
        return (
            "do less for each sample (without workers nothing is sent, the main process does all):"
            " make whole batches at once (the data set's __getitems__), or read several samples at"
            " a time"
        )
    if binding is Binding.DECODE and known.stages is not None and known.stages.kind == "npy":
        return _STORE_ARRAYS
    if binding is Binding.WAITING:
        # Nobody has seen what the user's own code waits for.
        return f"if it waits for storage, {_staging(known)}"
    if binding is Binding.MEMORY and (shared := sharing(known.subject)) is not None:
        return shared
    return {
        Binding.GPU: None,
        Binding.DECODE: f"{_STORE_SMALL}; decode with a faster library (--compare measures"
        f" which); {_DECODE_ON_GPU}",
        Binding.RESIZE: "store images at the size you train on, or resize on the GPU",
        Binding.COLLATE: _FEWER_BYTES if known.stages else f"{_COLLATE_LESS} {_FEWER_BYTES}",
        Binding.TRANSPORT: "send less: uint8 instead of float32, converted on the GPU; fewer and"
        " larger tensors in a batch",
        Binding.CPU: "do less for each sample: prepare once and store it, use faster libraries, or"
        " move augmentation to the GPU; beyond that, use more processors",
        Binding.MEMORY: "fewer bytes per sample, a smaller index in the data set, or more memory",
        Binding.SHARED_MEMORY: larger_shm(known.host, known.subject),
        Binding.DESCRIPTORS: "ulimit -S -n 65536",
        Binding.LENGTH: "nothing: an epoch has no more batches than that",
        Binding.MAIN_PROCESS: "move what the loader's class does with each batch in the main"
        " process into the workers: into the data set, or into collate_fn",
        Binding.SHARDING: "let the data set divide its samples among its workers, with"
        " torch.utils.data.get_worker_info(), into at least as many shards as workers",
    }.get(binding)


def remedy_compared(decoder: str | None, variants: Iterable[Variant]) -> str:
    """Return what would raise the rate if decoding binds, once decoders were compared.

    ``decoder`` is the one that was used. Unless it and another have a rate, none is recommended.
    """
    timed = {
        variant.name: (variant.peak_samples_per_s or 0.0, variant)
        for variant in variants
        if variant.group == "decoder" and competed(variant)
    }
    if decoder not in timed or len(timed) < 2:
        return f"{_STORE_SMALL}; decode with a faster library; {_DECODE_ON_GPU}"
    rate, used = timed[decoder]
    best_rate, best = max(timed.values(), key=lambda each: each[0])
    factor = best_rate / rate
    if not is_ahead(best, used):
        none = f"none of the decoders here is clearly faster than {decoder}"
        return f"{_STORE_SMALL}; {none}; {_DECODE_ON_GPU}"
    faster = f"decode with {best.name}: {factor:.2f} times as fast as {decoder} at the peak"
    return f"{_STORE_SMALL}; {faster}; {_DECODE_ON_GPU}"


def _staging(known: Known) -> str:
    if known.stages is not None and known.stages.storage == "ram":
        return "the files are in memory already; fewer and larger files would cost less to read"
    text = "move the data closer: hostprep stage to a tmpfs or an NVMe drive"
    if known.data_bytes:
        cached = min(1.0, known.host.cache_bytes / known.data_bytes)
        # The same, but a commit limit also applies to what is in a tmpfs.
        pinned = min(cached, known.host.memory_available_bytes / known.data_bytes)
        if pinned < 1:
            low, high = hit_rates(cached)
            answered = f"{low:.0%} to {high:.0%}" if low < high else f"{high:.0%}"
            text += (
                f"; {cached:.0%} of about {format_bytes(known.data_bytes)} fits into memory: the"
                f" page cache then serves {answered} of the reads, a tmpfs {pinned:.0%}"
            )
        else:
            text += f": all of it, about {format_bytes(known.data_bytes)}, fits into memory"
    return text
