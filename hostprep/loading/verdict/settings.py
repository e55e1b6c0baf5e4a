"""From the measurements to what to set, and how to say it; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hostprep.loading.bounds import (
    MOST_WORKERS,
    batches_in_shm,
    bounds,
    main_descriptors,
    main_memory,
)
from hostprep.loading.curve import prefetch_factor
from hostprep.loading.hazards import much_growth
from hostprep.loading.model import Batching, Binding, Probe, Subject
from hostprep.loading.recommendation import Recommendation
from hostprep.loading.search import STOP_GAIN, Point, delivered, worth
from hostprep.loading.verdict.binding import remedy, what_binds
from hostprep.loading.verdict.known import Known
from hostprep.loading.verdict.reasons import NO_GPU, Choice, reasons_of
from hostprep.units import format_count, format_number

# Share of an epoch from which on it is worth avoiding to start workers anew for each epoch.
_START_SHARE = 0.01
# Share of the available memory.
_PINNED_SHARE = 0.1
# From here on a gain is given as a factor, not in percent.
_TIMES = 2.0


def recommend(known: Known, chosen: Point) -> Recommendation:
    """Return the recommendation for the chosen number of workers."""
    workers, change, words = _keep_current(known, chosen)
    point = next((p for p in known.points if p.workers == workers), chosen)
    binding = what_binds(known, point)
    ahead = None
    if workers:
        ahead = prefetch_factor(known.cost.batch_p99_over_mean, known.gpu_rate, point.rate)
        ahead = _fitting_prefetch(known, workers, ahead)
    held = _worker_memory(known.probes, workers)
    batches = batches_in_shm(workers, ahead or 0) * known.host.ranks
    moved_bytes = _moved(known) * known.host.ranks if workers else 0
    shm_bytes = batches * known.cost.shared_batch_bytes + moved_bytes
    ahead_bytes = batches * known.cost.batch_bytes
    memory_bytes = None  # of workers that nobody has seen
    if held or not workers:
        memory_bytes = workers * (held or 0) * known.host.ranks + ahead_bytes + moved_bytes
    pin = _pin(known, ahead_bytes)
    persistent = _persistent(known, point)
    confirmed = point.probes > 0
    others = _other_changes(known.subject, ahead, pin=pin.on, persistent=persistent.on)
    return Recommendation(
        num_workers=workers,
        prefetch_factor=ahead,
        pin_memory=pin.on,
        persistent_workers=persistent.on,
        binding=binding,
        remedy=remedy(known, point, binding),
        expected_samples_per_s=delivered(point, known.gpu_rate),
        relative_error=point.relative_error,
        confirmed=confirmed,
        change_needed=change,
        verdict=_verdict(known, point, binding, change, words, others),
        reasons=reasons_of(known, point, ahead, persistent=persistent, pin=pin, change=change),
        memory_bytes=memory_bytes,
        shm_bytes=shm_bytes,
        code=code(
            known.cost.batch_size,
            workers,
            ahead,
            pin=pin.on,
            persistent=persistent.on,
            subject=known.subject,
        ),
    )


def _keep_current(known: Known, chosen: Point) -> tuple[int, bool | None, str]:
    """Return the workers to set, whether that is a change, and a word on the present setting."""
    subject = known.subject
    current = None if subject is None else subject.current_workers
    if subject is None or current is None:
        return chosen.workers, None, ""
    now = f"num_workers={current} now"
    point = next((p for p in known.points if p.workers == current), None)
    allowed = min((bound.workers for bound in known.bounds), default=current)
    if current > allowed:
        return chosen.workers, current != chosen.workers, now
    if any(current > bound.workers for bound in known.bounds_now):
        too_much = f"{now} with prefetch_factor={subject.prefetch_now}, more than fits"
        return chosen.workers, True, too_much
    failures = [failure.workers for failure in known.failed]
    fewest = min(failures, default=math.inf)
    if point is None and current >= fewest:
        failed = "which" if current in failures else f"and {format_count(int(fewest), 'worker')}"
        return chosen.workers, True, f"{now}, {failed} failed"
    if point is None:
        # There is only the model, or a rate without workers: neither can call the present setting
        # right or wrong.
        if not chosen.probes or (known.untried and not chosen.workers):
            return chosen.workers, None, f"{now}, which there was too little time to try"
        return chosen.workers, current != chosen.workers, now
    # The best measured says nothing about what there was no time for.
    unneeded = None if known.untried else False
    if current == chosen.workers:
        return current, unneeded, now
    # If nothing was measured with workers, the model's choice is none of these points.
    borne = [chosen, *(p for p in known.points if p.workers <= allowed)]
    # What nobody has tried must promise a higher rate to be worth a change.
    compared = worth if chosen.probes else delivered
    best = max(compared(p, known.gpu_rate) for p in borne)
    if compared(point, known.gpu_rate) >= (1 - STOP_GAIN) * best:
        as_well = chosen.workers < current and (chosen.workers or known.gpu_rate is not None)
        fewer = f"; {chosen.workers} would do as well" if as_well else ""
        return current, unneeded, f"{now}{fewer}"
    if not chosen.probes:
        return chosen.workers, True, now
    factor = delivered(chosen, known.gpu_rate) / delivered(point, known.gpu_rate)
    if current == 0 and known.gpu_rate is None and factor <= 1 + STOP_GAIN:
        return chosen.workers, True, f"{now}, so the GPU waits while each batch is made"
    return chosen.workers, True, f"{now}, {_faster(factor)} this way"


def _faster(factor: float) -> str:
    """Return in words how much faster that is; hundreds of percent mean nothing to anybody."""
    if factor >= _TIMES:
        return f"{format_number(factor)} times as fast"
    return f"{factor - 1:.0%} faster"


def _fitting_prefetch(known: Known, workers: int, ahead: int) -> int:
    """Return the prefetch factor; if a bound forbids it, lowered at most to the one probed.

    If nobody could see the size of a batch, it is no more than the one probed.
    """
    cost = known.cost
    if not cost.sample_bytes:
        return known.ahead

    def fits(ahead: int) -> bool:
        found = bounds(
            known.host,
            batch_bytes=cost.batch_bytes,
            shared_bytes=cost.shared_batch_bytes,
            moved_bytes=_moved(known),
            tensors_per_batch=cost.tensors_per_batch,
            prefetch_factor=ahead,
            batches=None,
            worker_memory_bytes=_worker_memory(known.probes, workers),
            main_descriptors=main_descriptors(known.probes),
            main_memory_bytes=main_memory(known.probes),
        )
        return all(bound.workers >= workers for bound in found)

    while ahead > known.ahead and not fits(ahead):
        ahead -= 1
    return ahead


def _moved(known: Known) -> int:
    return 0 if known.subject is None else known.subject.moved_bytes


def _worker_memory(probes: Sequence[Probe], workers: int) -> int | None:
    held = [p.worker_memory_bytes for p in probes if p.workers and p.worker_memory_bytes]
    exact = [
        p.worker_memory_bytes for p in probes if p.workers == workers and p.worker_memory_bytes
    ]
    return max(exact or held, default=None)


def _pin(known: Known, ahead_bytes: int) -> Choice:
    """Return whether to pin batches, which puts them into memory that cannot be reclaimed."""
    if not known.cuda:
        return Choice(False, NO_GPU)
    if ahead_bytes < _PINNED_SHARE * known.host.memory_available_bytes:
        return Choice(True, "there is a GPU, and enough memory to pin batches")
    return Choice(False, "it would take a tenth of the available memory, or more")


def _persistent(known: Known, point: Point) -> Choice:
    """Return whether workers are to outlive an epoch."""
    if not point.workers:
        return Choice(False, None)
    probes = [probe for probe in known.probes if probe.workers == point.workers]
    if not probes or known.length is None:
        return Choice(True, "it is not known how much of an epoch starting workers takes")
    # The ranks share the samples of an epoch.
    epoch_seconds = known.length / (known.host.ranks * point.rate)
    if much_growth(known.host, known.probes, known.length):
        return Choice(False, "workers grow within an epoch, and would go on growing in the next")
    started = min(max(probe.first_batch_seconds, probe.once_seconds) for probe in probes)
    if started > _START_SHARE * epoch_seconds:
        return Choice(True, "starting workers takes more than 1% of an epoch")
    # Nothing speaks against the setting if it is already on.
    return Choice(bool(known.subject and known.subject.current_persistent), None)


def _other_changes(
    subject: Subject | None, ahead: int | None, *, pin: bool, persistent: bool
) -> tuple[str, ...]:
    """Return what the line to paste changes apart from the number of workers."""
    if subject is None:
        return ()
    settings = (
        ("prefetch_factor", subject.prefetch_now, ahead),
        ("pin_memory", subject.current_pin, pin),
        ("persistent_workers", subject.current_persistent, persistent),
    )
    without_workers = ("prefetch_factor", "persistent_workers") if ahead is None else ()
    return tuple(
        name
        for name, now, made in settings
        if name not in without_workers and now not in (None, made)
    )


def _verdict(
    known: Known,
    point: Point,
    binding: Binding,
    change: bool | None,
    words: str,
    others: tuple[str, ...],
) -> str:
    rate = f"{format_number(delivered(point, known.gpu_rate))} samples/s"
    ranks = " per rank" if known.host.ranks > 1 else ""
    if change is False:
        if others:
            listed = ", ".join(others)
            return f"num_workers can stay: {words}, {rate}{ranks}; what changes: {listed}"
        return f"no change needed: {words}, {rate}{ranks}"
    by_model = "" if point.probes else " by the model"  # nobody has tried it
    with_words = f"{by_model} ({words})" if words else by_model
    count = format_count(point.workers, "worker")
    workers = f"{count}{ranks} {'is' if point.workers == 1 else 'are'}"
    if known.gpu_rate is not None and binding is Binding.GPU:
        return (
            f"{workers} enough for the GPU's {format_number(known.gpu_rate)} samples/s{with_words}"
        )
    if known.gpu_rate is not None:
        return (
            f"{rate} with {count}{ranks}, while the GPU takes {format_number(known.gpu_rate)}"
            f"{with_words}; the bottleneck is {binding}"
        )
    # Without the GPU's rate nobody knows what is enough.
    tried = known.untried and point.probes
    best = "the best that there was time to try" if tried else "most useful"
    if point.probes and point.workers == MOST_WORKERS:  # the rate may well go on rising
        best = "the most that hostprep tries"
    return f"{workers} {best}: {rate}{with_words}; the bottleneck is {binding}"


def code(
    batch_size: int,
    workers: int,
    ahead: int | None,
    *,
    pin: bool,
    persistent: bool,
    subject: Subject | None = None,
) -> str:
    """Return the call to paste; what makes the batches, and other arguments, stay as they are."""
    batches = {
        Batching.SIZE: f"batch_size={batch_size}",
        Batching.BATCH_SAMPLER: "batch_sampler=batch_sampler",
        Batching.SAMPLER: "batch_size=None, sampler=sampler",
        Batching.DATASET: "batch_size=None",
    }
    # A user's class takes arguments of its own: only what changes is named.
    foreign = None if subject is None else subject.own_class
    options = []
    if foreign is None:
        options.append(batches[Batching.SIZE if subject is None else subject.batching])
        options += () if subject is None else subject.kept
    options.append(f"num_workers={workers}")
    if workers:
        options.append(f"prefetch_factor={ahead}")
    options.append(f"pin_memory={pin}")
    if workers:
        options.append(f"persistent_workers={persistent}")
        options += () if subject is None or foreign else subject.kept_with_workers
    if foreign is not None:
        return f"{foreign}(..., {', '.join(options)})"
    return f"DataLoader(dataset, {', '.join(options)})"
