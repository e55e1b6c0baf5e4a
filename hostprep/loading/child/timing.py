"""Timing a real DataLoader, in the measuring child.

Batches that workers make before anybody asks say nothing about the throughput: at least
``2 x workers + 4`` of them are taken before the clock starts, and it stops after whole rounds of
all workers. If there was time for only a few rounds, the rate is that at which workers make
batches, not that at which they arrive: on a slow source all workers finish at about the same time,
and how many such bursts fall into a short time is chance. A loader that is still getting faster,
for instance because it caches what it reads, is timed again while there is time.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from hostprep.dataclass import dataclass
from hostprep.errors import Inconclusive
from hostprep.loading.child import processes
from hostprep.loading.child.alone import SLOW_BATCHES, Meter, is_warm, on_one_thread
from hostprep.loading.child.batches import BatchSize, measure_batch, rows_for, rows_within
from hostprep.loading.child.building import ProbeJob
from hostprep.loading.child.images import image_side
from hostprep.loading.child.opening import Opened
from hostprep.loading.child.starting import Batches, Started, start
from hostprep.loading.failures import TooSlow
from hostprep.loading.model import SampleCost
from hostprep.loading.rounds import (
    LEAST_ROUNDS,
    discarded_batches,
    least_batches,
    relative_standard_error,
)
from hostprep.units import format_count

_BLOCKS = 8
# The parts of the timed span that are compared to see whether it gets faster, and by how much.
_MOST_PARTS, _FEWEST_PARTS = 4, 3
_MUCH_FASTER = 2.0
# Batches that a worker may hold: the samples of one, and what its allocator has not returned. With
# large images that may be more; but in a short probe a worker that keeps all makes only three.
_IN_HAND = 2


def time_loader(
    opened: Opened, job: ProbeJob, told: Callable[..., None]
) -> tuple[dict[str, Any], Any]:
    """Time the loader; return what was measured, and the iterator, for the caller to release.

    ``told`` receives the events ``workers`` (their ``pids``, and the ``seconds`` until the last was
    started) and ``first_batch``. Raises ``Inconclusive`` if too few batches came in time.
    """
    others_before = processes.others_now()
    started = start(opened, job, told)
    built, delivery = started.built, started.delivery
    # Starting 64 workers takes seconds, which say nothing about the rate.
    deadline = delivery.started_at + job.limit_seconds
    side = image_side(delivery.last)
    told("first_batch")
    if not job.workers:
        _hopeful(started.first_seconds, job.limit_seconds)
    largest, rows_of_a_sample = _warm_up(started, job, deadline)
    clock_deadline = deadline
    if built.collate is not None:
        # What a sample takes on one thread is timed last, and needs at least one batch.
        clock_deadline -= (time.perf_counter() - started.asked_at) / started.batches.came
    workers = [worker.pid for worker in delivery.workers]
    clocked = _clock_while_it_warms(started, job, workers, clock_deadline)
    timed = _timed(started, job, clocked)
    # Before anything else is read: reading a process's memory takes as long as some batches do.
    spent = {} if clocked.meter is None else clocked.meter.each(timed.samples)
    probe = {
        "workers": job.workers,
        "prefetch_factor": job.prefetch_factor,
        "samples_per_s": timed.samples_per_s,
        "relative_error": relative_error(clocked.marks, max(1, job.workers)),
        "samples": timed.samples,
        "seconds": clocked.seconds,
        "discarded_batches": clocked.discarded,
        "first_batch_seconds": started.first_seconds,
        "once_seconds": _once_seconds(started, job, clocked),
        "warming": clocked.warming,
        **processes.used_between(clocked.before, clocked.after),
        "others_before_cpus": others_before,
        "main_memory_bytes": None if workers else processes.own_memory(os.getpid()),
        **_worker(workers, clocked.memory_before, clocked.seconds, largest.size_bytes),
        "main_descriptors": processes.open_descriptors(),
        "duplicate_workers": delivery.duplicate_workers(),
        "untold_workers": delivery.untold_workers(),
        # Each has had several turns by now; in a stream a worker may have nothing to give.
        "idle_workers": job.workers - len(delivery.made) if job.workers else 0,
        "own_way": started.own_way,
        "seen_before": not job.ready and (built.order is None or built.order.seen_before),
    }
    found: dict[str, Any] = {"probe": probe, "own_way_problem": started.problem}
    if built.collate is not None:
        if time.perf_counter() + clocked.batch_seconds <= deadline:
            spent |= on_one_thread(started, built.collate, job, deadline)
        batch_size = max(1, round(timed.samples / timed.made))
        found["cost"] = dataclasses.asdict(
            SampleCost(
                batch_size=batch_size,
                seconds=1 / timed.samples_per_s,
                sample_bytes=largest.size_bytes // batch_size,
                shared_bytes=largest.shared_bytes // batch_size,
                tensors_per_batch=largest.tensors,
                batch_p99_over_mean=_p99_over_mean(clocked.marks),
                image_side=side,
                rows=rows_of_a_sample,
                rows_within=rows_within(delivery.last),
                **spent,
            )
        )
    found["next"] = 0 if built.order is None else job.first + built.order.taken
    return found, started


@dataclass(frozen=True, slots=True)
class _Clocked:
    """What the clock saw, ``marks`` as in ``_clock``, and the usage before and after.

    ``discarded`` batches came before it, for which torch had given ``given_before`` batches.
    """

    marks: list[float]
    discarded: int
    given_before: int
    memory_before: int | None
    before: processes.Usage
    after: processes.Usage
    meter: Meter | None
    warming: bool

    @property
    def seconds(self) -> float:
        """Return how long the clock ran."""
        return self.marks[-1] - self.marks[0]

    @property
    def batch_seconds(self) -> float:
        """Return the mean time from one batch to the next."""
        return self.seconds / (len(self.marks) - 1)


class _Timed(NamedTuple):
    """What came while the clock ran: ``made`` of torch's batches, their ``samples``, the rate."""

    made: int
    samples: int
    samples_per_s: float


def _timed(started: Started, job: ProbeJob, clocked: _Clocked) -> _Timed:
    """Count what came while the clock ran, and return its rate.

    Raises ``Inconclusive`` if a class of the user's own made all of it from an earlier batch.
    """
    timed, given_before = len(clocked.marks) - 1, clocked.given_before
    # In torch's batches: a class of the user's own may make fewer or more batches from them.
    came = started.batches.came - clocked.discarded
    made = round(timed * (started.given - given_before) / came)
    if not made:
        raise Inconclusive(
            f"the loader's class gave {format_count(timed, 'batch')} in {clocked.seconds:.1f} s and"
            " took no new one from the data set for them: too few to measure a rate.",
            "give it more time (--seconds)",
        )
    samples = started.built.samples(given_before, given_before + made, started.delivery.sizes)
    rate = samples / clocked.seconds
    rounds = made // max(1, job.workers)
    if rounds < LEAST_ROUNDS and job.workers:
        rate = started.delivery.made_a_second(rounds) * samples / made
    return _Timed(made, samples, rate)


def _once_seconds(started: Started, job: ProbeJob, clocked: _Clocked) -> float:
    """Return what it took until the clock started, apart from making the batches until then."""
    until_clock = clocked.marks[0] - started.asked_at
    return max(0.0, until_clock - (clocked.discarded + job.workers) * clocked.batch_seconds)


def _clock_while_it_warms(
    started: Started, job: ProbeJob, workers: list[int], deadline: float
) -> _Clocked:
    """Time batches, and again later ones instead while they get faster and there is time."""
    built, batches = started.built, started.batches
    # Only with an endless order: at a stream's end nothing of what was timed would be left.
    endless = built.order is not None or job.ready
    while True:
        discarded = batches.came
        memory_before = processes.own_memory(workers[0]) if workers else None
        meter = None if built.collate is None else Meter(built.collate, started.own_part)
        before, given_before = processes.usage(workers), started.given
        marks = _clock(batches, job, deadline)
        after = processes.usage(workers)
        warming = gets_faster(marks, max(1, job.workers))
        if not (warming and endless and 2 * marks[-1] - marks[0] < deadline):
            return _Clocked(
                marks, discarded, given_before, memory_before, before, after, meter, warming
            )


def _warm_up(started: Started, job: ProbeJob, deadline: float) -> tuple[BatchSize, float | None]:
    """Take the batches that do not count; return the size of the largest, and the rows of a sample.

    Batches of texts or of boxes differ; the resources are to suffice for the largest. The rows are
    None if nobody can tell.
    """
    batches, delivery = started.batches, started.delivery
    largest = measure_batch(delivery.last)
    seen = [_rows_and_drawn(started)]
    discard = discarded_batches(job.workers)
    while batches.came < discard and time.perf_counter() < deadline:
        if not job.workers and is_warm(batches.came, time.perf_counter() - started.asked_at, job):
            break
        processes.look_for_killed(delivery.workers)
        batches.take()
        largest = max(largest, measure_batch(delivery.last))
        seen.append(_rows_and_drawn(started))
    if batches.came < discard and job.workers:
        # The first one also had to wait for the workers to start.
        since = time.perf_counter() - started.asked_at - started.first_seconds
        raise _too_slow(
            f"{format_count(batches.came, 'batch')} with {format_count(job.workers, 'worker')} took"
            f" {job.limit_seconds:.0f} s; the first {discard} do not count, so no rate could be"
            " measured.",
            batches.came - 1,
            since,
        )
    told = [(rows, drawn) for rows, drawn in seen if rows is not None]
    drawn = sum(drawn for _, drawn in told)
    return largest, sum(rows for rows, _ in told) / drawn if drawn else None


def _rows_and_drawn(started: Started) -> tuple[int | None, int]:
    """Return the rows of the last batch, and how many samples it was made of."""
    delivery = started.delivery
    drawn = started.built.samples(delivery.came - 1, delivery.came, delivery.sizes)
    return rows_for(delivery.last, drawn), drawn


def _worker(
    workers: list[int], memory_before: int | None, seconds: float, batch_bytes: int
) -> dict[str, Any]:
    """Return what there is to know of a worker, the first one, as fields of ``Probe``.

    A difference of a few times ``batch_bytes`` is no growth: see ``_IN_HAND``.
    """
    memory = processes.own_memory(workers[0]) if workers else None
    growth = None
    if memory is not None and memory_before is not None:
        grown_bytes = memory - memory_before
        growth = grown_bytes / seconds if grown_bytes > _IN_HAND * batch_bytes else 0.0
    threads, affinity = processes.threads_and_affinity(workers[0]) if workers else (None, None)
    return {
        # When a stream has ended, so have its workers.
        "worker_memory_bytes": memory_before if memory is None else memory,
        "worker_growth_bytes_per_s": growth,
        "worker_threads": threads,
        "worker_affinity_cpus": affinity,
    }


def _hopeful(first_seconds: float, limit_seconds: float) -> None:
    """Raise ``Inconclusive`` if the first batch took all the time there was."""
    if first_seconds > limit_seconds:
        raise Inconclusive(
            f"the first batch took {first_seconds:.0f} s, and there were only {limit_seconds:.0f} s"
            " for several: no rate could be measured.",
            "give it more time (--seconds), or a smaller --batch-size",
        )


def _too_slow(message: str, batches: int, seconds: float) -> Inconclusive:
    """Return the error for a loader that gave ``batches`` in ``seconds``, too few for a rate."""
    hint = "give it more time (--seconds), or a smaller --batch-size"
    if batches < 1:
        return Inconclusive(message, hint)
    return TooSlow(message, hint, batches / seconds)


def _clock(batches: Batches, job: ProbeJob, deadline: float) -> list[float]:
    """Return when each batch came; the first mark is the start of the clock."""
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
            return marks  # without workers they come one by one: the next one would be too late
        if marks[-1] > deadline and count >= SLOW_BATCHES:
            if count >= step:
                return marks[: 1 + count // step * step]
            raise _too_slow(
                f"{format_count(count, 'batch')} with {format_count(job.workers, 'worker')} came in"
                " the time available, too few to measure a rate.",
                count,
                elapsed,
            )


def gets_faster(marks: list[float], step: int) -> bool:
    """Return whether batches came clearly faster towards the end, in blocks of whole rounds.

    Each part has to be faster than the one before: batches that merely vary hardly ever do that.
    """
    rates = _rates(marks, step, _MOST_PARTS)
    rises = all(later > earlier for earlier, later in itertools.pairwise(rates))
    return len(rates) >= _FEWEST_PARTS and rises and rates[-1] > _MUCH_FASTER * rates[0]


def relative_error(marks: list[float], step: int) -> float:
    """Return the relative standard error of the mean rate, of blocks of whole rounds."""
    found = relative_standard_error(_rates(marks, step, _BLOCKS))
    return 0.1 if found is None else found  # a single round says nothing: assume a wide error


def _rates(marks: list[float], step: int, most: int) -> list[float]:
    """Return the rounds a second in each of at most ``most`` blocks of whole rounds."""
    rounds = (len(marks) - 1) // step
    blocks = min(most, rounds)
    edges = [round(block * rounds / blocks) for block in range(blocks + 1)] if blocks else [0]
    return [
        (later - earlier) / (marks[later * step] - marks[earlier * step])
        for earlier, later in itertools.pairwise(edges)
    ]


def _p99_over_mean(marks: list[float]) -> float:
    times = sorted(later - earlier for earlier, later in itertools.pairwise(marks))
    return times[min(len(times) - 1, int(0.99 * len(times)))] / statistics.fmean(times)
