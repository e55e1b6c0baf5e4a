"""Timing a real DataLoader, in the measuring child.

The batches that workers make before anybody asks are no throughput: at least ``2 x workers + 4`` of
them are taken before the clock is started, and it stops after whole rounds of all workers. Where
there was time for few rounds, the rate is that at which workers make batches, not that at which
these arrive: on a slow source all workers are done at about the same time, and how many such bursts
a short time holds is chance.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from hostprep.errors import Inconclusive
from hostprep.loading.child import processes
from hostprep.loading.child.alone import SLOW_BATCHES, Meter, is_warm, on_one_thread
from hostprep.loading.child.batches import count_samples, fingerprint, measure_batch
from hostprep.loading.child.building import ProbeJob, Stamped, build
from hostprep.loading.child.images import image_side
from hostprep.loading.child.opening import Opened
from hostprep.loading.failures import TooSlow
from hostprep.loading.model import SampleCost
from hostprep.loading.rounds import (
    LEAST_EPOCH_BATCHES,
    LEAST_ROUNDS,
    discarded_batches,
    least_batches,
)
from hostprep.units import format_count

_BLOCKS = 8
_OPENING_BATCHES = 2  # of each worker: these tell whether it gives what another one gives
_NOTHING = object()


class Batches:
    """Takes batches from a loader. ``made`` has, by worker, when each of its batches was made.

    ``sizes`` are the samples in each batch, where ``size_of`` counts them.

    As a training does, it holds a batch until the next one has come. That is room in shared memory
    and, without workers, decides whether malloc gives the memory back to the kernel and takes it
    anew for each batch, which halves the rate of samples that are as good as ready.
    """

    def __init__(
        self,
        iterator: Iterator[Any],
        description: str,
        *,
        size_of: Callable[[Any], int] | None = None,
        again: Callable[[], Iterator[Any]] | None = None,
        shared_out: bool = True,
    ) -> None:
        """``again`` starts the next epoch. ``shared_out``: no two workers are given the same.

        ``size_of`` tells how many samples a batch holds, where nothing else does.
        """
        self.came = 0
        self.made: dict[int, list[float]] = {}
        self.sizes: list[int] = []
        self._size_of = size_of
        self._held: Any = None
        self._iterator = iterator
        self._description = description
        self._again = again
        self._epoch_began = 0
        self._openings: dict[int, list[int | None]] | None = None if shared_out else {}

    def take(self) -> Any:
        """Return the next batch; ``Inconclusive`` where there is none, also in the next epoch."""
        batch = self._next()
        so_far = self.came - self._epoch_began
        # One that gave nothing when it was iterated again is asked no more.
        if batch is _NOTHING and self._again is not None and so_far >= LEAST_EPOCH_BATCHES:
            self._epoch_began = self.came
            self._iterator = self._again()
            batch = self._next()
        if batch is _NOTHING:
            raise Inconclusive(
                f"{self._description} ended after {self.came} batches, too few to take a rate.",
                "give a loader with more samples, or a smaller --batch-size; one that can be"
                " iterated again",
            )
        self.came += 1
        if isinstance(batch, Stamped):
            batch = self._unstamped(batch)
        if self._size_of is not None:
            self.sizes.append(self._size_of(batch))
        self._held = batch
        return batch

    def _next(self) -> Any:
        try:
            return next(self._iterator, _NOTHING)
        except RuntimeError:
            # Of workers that are children of a forkserver, torch never hears what ended them.
            processes.look_for_killed(getattr(self._iterator, "_workers", ()))
            raise

    def _unstamped(self, stamped: Stamped) -> Any:
        made = self.made.setdefault(stamped.worker, [])
        made.append(stamped.at)
        if self._openings is not None and len(made) <= _OPENING_BATCHES:
            self._openings.setdefault(stamped.worker, []).append(fingerprint(stamped.batch))
        return stamped.batch

    def duplicate_workers(self) -> int:
        """Return how many workers began with the same batches as another one.

        Batches that are all alike, or cannot be looked into, tell nothing.
        """
        openings = [
            tuple(some)
            for some in (self._openings or {}).values()
            if len(set(some)) == _OPENING_BATCHES and None not in some
        ]
        return len(openings) - len(set(openings))

    def made_a_second(self, rounds: int) -> float:
        """Return the batches a second that the workers made in their last ``rounds`` each.

        Workers take turns, so all make as many: their number, over the mean time between two
        batches of the same worker. What a worker waits for its turn is in it. Batches are made some
        rounds before they are taken, so this is how it was then.
        """
        stamps = [made[-1 - rounds :] for made in self.made.values()]
        between = [
            later - earlier for some in stamps for earlier, later in itertools.pairwise(some)
        ]
        return len(stamps) / statistics.fmean(between)


def time_loader(
    opened: Opened, job: ProbeJob, told: Callable[..., None]
) -> tuple[dict[str, Any], Any]:
    """Time the loader; return what was measured, and the iterator, for the caller to let go of.

    ``told`` hears of the ``workers`` (their ``pids``, and the ``seconds`` until the last was
    started) and of the ``first_batch``. Raises ``Inconclusive`` where too few batches came in time.
    """
    built = build(opened, job)
    others_before = processes.others_now()
    begin = time.perf_counter()
    iterator: Iterator[Any] = iter(built.loader)
    # Starting 64 workers takes seconds, and says nothing about the rate.
    deadline = time.perf_counter() + job.limit_seconds
    processes_of_workers = getattr(iterator, "_workers", [])
    workers = [worker.pid for worker in processes_of_workers]
    told("workers", pids=workers, seconds=time.perf_counter() - begin)
    processes.look_for_killed(processes_of_workers)
    threads = None
    if job.background:
        from prefetch_generator import BackgroundGenerator

        threads = iterator = BackgroundGenerator(iterator, max_prefetch=job.prefetch_factor)
    known = built.batch_size is not None or built.sizes is not None
    batches = Batches(
        iterator,
        opened.description,
        size_of=None if known else lambda batch: count_samples(batch)[0],
        # Workers would have to be started again, which is no rate.
        again=None if job.workers or job.background else lambda: iter(built.loader),
        shared_out=opened.kind != "stream" or job.ready,
    )
    first = batches.take()
    measured = measure_batch(first)
    side = image_side(first)
    del first
    first_seconds = time.perf_counter() - begin
    told("first_batch")
    if not job.workers:
        _hopeful(first_seconds, job.limit_seconds)
    discard = discarded_batches(job.workers)
    while batches.came < discard and time.perf_counter() < deadline:
        if not job.workers and is_warm(batches.came, time.perf_counter() - begin, job):
            break
        processes.look_for_killed(processes_of_workers)
        # Batches of texts or of boxes differ; what they take is to suffice for the largest.
        measured = max(measured, measure_batch(batches.take()))
    discarded = batches.came
    if discarded < discard and job.workers:
        # The first one also had to wait until the workers had begun.
        since = time.perf_counter() - begin - first_seconds
        raise _too_slow(
            f"{format_count(discarded, 'batch')} with {format_count(job.workers, 'worker')} took"
            f" {job.limit_seconds:.0f} s; the first {discard} do not count, so no rate could be"
            " taken.",
            discarded - 1,
            since,
        )
    clock_deadline = deadline
    if built.collate is not None:
        # What a sample takes on one thread is timed last, and wants a batch at least.
        clock_deadline -= (time.perf_counter() - begin) / batches.came
    memory_before = processes.own_memory(workers[0]) if workers else None
    meter = None if built.collate is None else Meter(built.collate)
    before = processes.usage(workers)
    marks = _clock(batches, job, clock_deadline)
    after = processes.usage(workers)
    memory = processes.own_memory(workers[0]) if workers else None
    seconds = marks[-1] - marks[0]
    timed = len(marks) - 1
    samples = built.samples(discarded, discarded + timed, batches.sizes)
    rate = samples / seconds
    rounds = timed // max(1, job.workers)
    if rounds < LEAST_ROUNDS and job.workers:
        rate = batches.made_a_second(rounds) * samples / timed
    growth = None
    if memory is not None and memory_before is not None:
        growth = (memory - memory_before) / seconds
    elapsed = after.at - before.at
    own = (after.own_cpu - before.own_cpu) / elapsed
    delayed = max(0.0, after.own_delay - before.own_delay)  # threads that ended took theirs along
    runnable = own + delayed / elapsed
    threads_of_worker, affinity = (
        processes.threads_and_affinity(workers[0]) if workers else (None, None)
    )
    probe = {
        "workers": job.workers,
        "prefetch_factor": job.prefetch_factor,
        "samples_per_s": rate,
        "relative_error": relative_error(marks, max(1, job.workers)),
        "samples": samples,
        "seconds": seconds,
        "discarded_batches": discarded,
        "first_batch_seconds": first_seconds,
        "own_cpus": own,
        "main_cpus": (after.main_cpu - before.main_cpu) / elapsed,
        "runnable_cpus": runnable,
        "others_cpus": max(0.0, (after.everybody_cpu - before.everybody_cpu) / elapsed - own),
        "others_before_cpus": others_before,
        "main_memory_bytes": None if workers else processes.own_memory(os.getpid()),
        # Where a stream has ended, so have its workers.
        "worker_memory_bytes": memory_before if memory is None else memory,
        "worker_growth_bytes_per_s": growth,
        "worker_threads": threads_of_worker,
        "worker_affinity_cpus": affinity,
        "main_descriptors": processes.open_descriptors(),
        "duplicate_workers": batches.duplicate_workers(),
        # Each has had its turn, several times over; of a stream one may have nothing to give.
        "idle_workers": job.workers - len(batches.made) if job.workers else 0,
        "seen_before": not job.ready and (built.order is None or built.order.seen_before),
    }
    found: dict[str, Any] = {"probe": probe}
    if meter is not None and built.collate is not None:
        spent = meter.each(samples)
        if time.perf_counter() + seconds / timed <= deadline:
            spent = on_one_thread(batches, built, built.collate, job, deadline)
        batch_size = max(1, round(samples / timed))
        size_bytes, shared_bytes, tensors = measured
        found["cost"] = dataclasses.asdict(
            SampleCost(
                batch_size=batch_size,
                seconds=1 / rate,
                sample_bytes=size_bytes // batch_size,
                shared_bytes=shared_bytes // batch_size,
                tensors_per_batch=tensors,
                batch_p99_over_mean=_p99_over_mean(marks),
                image_side=side,
                **spent,
            )
        )
    found["next"] = 0 if built.order is None else job.first + built.order.taken
    return found, (iterator, threads, built)


def _hopeful(first_seconds: float, limit_seconds: float) -> None:
    """Raise ``Inconclusive`` where the first batch took all the time that there was."""
    if first_seconds > limit_seconds:
        raise Inconclusive(
            f"the first batch took {first_seconds:.0f} s, and there were {limit_seconds:.0f} s for"
            " several: no rate could be taken.",
            "give it more time (--seconds), or a smaller --batch-size",
        )


def _too_slow(message: str, batches: int, seconds: float) -> Inconclusive:
    """Return the error for a loader that gave so many batches in so many seconds, too few."""
    hint = "give it more time (--seconds), or a smaller --batch-size"
    if batches < 1:
        return Inconclusive(message, hint)
    return TooSlow(message, hint, batches / seconds)


def _clock(batches: Batches, job: ProbeJob, deadline: float) -> list[float]:
    """Return when each batch came, the first mark being the start of the clock."""
    step, least = max(1, job.workers), least_batches(job.workers)
    marks = [time.perf_counter()]
    while True:
        try:
            batches.take()
        except Inconclusive:
            count = len(marks) - 1
            if count < least:
                raise
            return marks[: 1 + count // step * step]
        marks.append(time.perf_counter())
        count, elapsed = len(marks) - 1, marks[-1] - marks[0]
        if elapsed >= job.seconds and count >= least and count % step == 0:
            return marks
        if not job.workers and marks[-1] + (marks[-1] - marks[-2]) > deadline:
            return marks  # without workers they come one by one: the next would come too late
        if marks[-1] > deadline and count >= SLOW_BATCHES:
            if count >= step:
                return marks[: 1 + count // step * step]
            raise _too_slow(
                f"{format_count(count, 'batch')} with {format_count(job.workers, 'worker')} took"
                f" {elapsed:.0f} s, too few to take a rate.",
                count,
                elapsed,
            )


def relative_error(marks: list[float], step: int) -> float:
    """Return the standard error of the mean over its mean, of blocks of whole rounds."""
    rounds = (len(marks) - 1) // step
    blocks = min(_BLOCKS, rounds)
    if blocks < 2:
        return 0.1  # a single round says nothing of its spread; assume a wide one
    edges = [marks[round(block * rounds / blocks) * step] for block in range(blocks + 1)]
    sizes = [
        round((block + 1) * rounds / blocks) - round(block * rounds / blocks)
        for block in range(blocks)
    ]
    rates = [
        size / (later - earlier)
        for size, earlier, later in zip(sizes, edges, edges[1:], strict=False)
    ]
    return statistics.stdev(rates) / statistics.fmean(rates) / math.sqrt(blocks)


def _p99_over_mean(marks: list[float]) -> float:
    times = sorted(later - earlier for earlier, later in itertools.pairwise(marks))
    return times[min(len(times) - 1, int(0.99 * len(times)))] / statistics.fmean(times)
