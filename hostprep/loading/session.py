"""One recommendation in the making: what is measured within the budget; ``judging`` judges it."""

from __future__ import annotations

import math
from dataclasses import field

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Inconclusive
from hostprep.loading.bounds import (
    LEAST_PREFETCH,
    MOST_UNCONFIRMED,
    MOST_WORKERS,
    PROBE_PREFETCH,
    distinct_workers,
    main_descriptors,
    main_memory,
)
from hostprep.loading.bounds import bounds as bounds_of
from hostprep.loading.curve import Curve, cost_of_stages, curve_of, storage_ceiling
from hostprep.loading.failures import Hung, LoaderFailed, TooSlow, WorkersFailed
from hostprep.loading.files.listing import Listing
from hostprep.loading.files.model import Stages, Undecoded
from hostprep.loading.gpu_rate import GpuRate, given_rate, measured_rate
from hostprep.loading.measuring.measure import Measurer
from hostprep.loading.model import FailedProbe, Pipeline, Probe, SampleCost, Transport
from hostprep.loading.pace import Pace
from hostprep.loading.recommendation import Bound
from hostprep.loading.report import Wish
from hostprep.loading.search import AGREES, STOP_GAIN, Search, contenders, feeds
from hostprep.units import format_count, format_number

DEFAULT_BATCH = 32
# Whatever is wrong with many workers, this many should work.
_FEW = 2
# Factor on opening and window: what a probe takes including its workers' start and end, and the
# discarded batches.
_WHOLE_PROBE = 1.7
# How much more the additional workers must give, by the model, to let each prepare only one batch
# ahead; then a worker that is done before its turn has to wait for it.
_WORTH_FEWER_AHEAD = 1.25
# By the model, which bends more softly than most loaders if processors bind: if half the workers
# give this share of the rate, they may well give all of it.
_HARDLY_LESS = 0.8


@dataclass(slots=True)
class Run:
    """What was measured so far, and what is still to be measured."""

    measurer: Measurer
    wish: Wish
    began: float
    listing: Listing | None = None
    stages: Stages | None = None
    undecoded: Undecoded | None = None
    cost: SampleCost | None = None
    transport: Transport | None = None
    curve: Curve | None = None
    search: Search | None = None
    gpu_rate: float | None = None
    gpu_rate_from: str | None = None
    pipeline: Pipeline | None = None
    failures: list[FailedProbe] = field(default_factory=list)
    came_to_nothing: set[int] = field(default_factory=set)
    hung: dict[int, Hung] = field(default_factory=dict)
    better_untried: int | None = None
    ceiling: float = math.inf
    notes: list[str] = field(default_factory=list)

    @property
    def probes(self) -> tuple[Probe, ...]:
        """Return the probes that were made so far."""
        return tuple(self.search.probes) if self.search else ()

    @property
    def failed(self) -> tuple[FailedProbe, ...]:
        """Return those that the host's limits stopped."""
        return tuple(self.search.failures if self.search else self.failures)

    def measure(self) -> None:
        """Measure with real DataLoaders: without workers, the transport, then the search."""
        measurer = self.measurer
        found = measurer.alone()
        given = given_rate(self.wish.gpu_rate)
        if isinstance(found, Pipeline):
            self._take(given)
            self.pipeline = found
            return
        alone, self.cost = found
        self._take(given if given.samples_per_s else measured_rate(measurer, self.cost))
        try:
            self._search(alone, self.cost)
        except LoaderFailed as error:
            error.tell_rate_alone(alone.samples_per_s)
            if isinstance(error, Hung):
                error.tell_of_pools(measurer.subject)
            raise

    def _search(self, alone: Probe, cost: SampleCost) -> None:
        """Measure with workers; ``alone`` is the probe without."""
        measurer = self.measurer
        measurer.prefetch_factor = self._batches_ahead(cost)
        self._measure_transport()
        self.curve = self._curve_of(cost, self.transport)
        host = measurer.host
        self.search = Search(
            self.curve,
            self.gpu_rate,
            self._probe,
            self._most,
            lambda: self._pace().affordable(),
            probes=[alone],
            failures=[*self.failures],
            cpus=min(host.processors_per_rank, host.measured_cpus),
        )
        if self.is_stream():
            # Two workers show whether they share it out. If they do not, more are of no use.
            self.search.repeat((2,))
        self.search.run(self._current(), lambda: self._pace().affordable_at_first())
        if self.came_to_nothing and self._pace().is_first and self.search.unfailed():
            self._ask_few()
        if not self._pace().is_first or not self.search.unfailed():
            self.search.repeat(contenders(self.search.borne(), self.gpu_rate))
            # Processes differ by their luck with memory: what is promised should rest on several.
            self.search.settle()
            self._note_untried()
            self._note_fewer_untried()
        else:
            most = "one worker per processor"
            if self.is_stream():
                trusted = format_count(int(self.distinct_untried()), "worker")
                most = f"{trusted}, because more may deliver the same samples again"
            elif not self.search.failures:
                most = f"{MOST_UNCONFIRMED} workers, or one per processor if that is more"
            self.notes.append(
                "no measurement with workers succeeded in time: their rate is the model's, which is"
                f" trusted for at most {most}; give it more time with --seconds"
            )
            if not feeds(self.search.chosen(), self.gpu_rate):
                self.better_untried = self.curve.proposal(self.gpu_rate)

    def _note_untried(self) -> None:
        """Find and note more workers, untried for lack of time, that may be better."""
        assert self.search is not None and self.curve is not None
        more = min(self.search.untried or 0, self.search.unfailed())
        chosen, rate = self.search.chosen(), self._pace().likely_rate(more, alone=True)
        tried = more <= chosen.workers or more in self.came_to_nothing
        if tried or feeds(chosen, self.gpu_rate):
            return
        if rate > (1 + STOP_GAIN) * chosen.rate:
            self.better_untried = more
            self.notes.append(
                f"there was no time to try {format_count(more, 'worker')}: the model predicts"
                f" {format_number(rate)} samples/s; give it more time with --seconds"
            )
        elif self.curve.rate(chosen.workers) < (1 - AGREES) * chosen.rate:
            # The model was wrong: what counts is whether the rate was still rising.
            points = self.search.points()
            fewer = [point.rate for point in points if 0 < point.workers < chosen.workers]
            if fewer and chosen.rate > (1 + STOP_GAIN) * max(fewer):
                self.better_untried = more
                self.notes.append(
                    f"there was no time to try {format_count(more, 'worker')}, and the rate was"
                    f" still rising at {chosen.workers}: give it more time with --seconds"
                )

    def _note_fewer_untried(self) -> None:
        """Note that fewer workers may do as well, if there was no time to try any."""
        assert self.search is not None and self.curve is not None
        chosen = self.search.chosen().workers
        fewer = chosen // 2
        tried = {*(point.workers for point in self.search.points()), *self.came_to_nothing}
        if not fewer or any(0 < workers < chosen for workers in tried):
            return
        if self.curve.rate(fewer) > _HARDLY_LESS * self.curve.rate(chosen):
            self.notes.append(
                f"there was no time to try fewer than {chosen} workers, and {fewer} may do as well:"
                " give it more time with --seconds"
            )

    def _take(self, rate: GpuRate) -> None:
        self.gpu_rate, self.gpu_rate_from = rate.samples_per_s, rate.origin
        if rate.note is not None:
            self.notes.append(rate.note)

    def _batches_ahead(self, cost: SampleCost) -> int:
        """Return how many batches each worker is to prepare ahead: fewer if more workers then fit.

        That happens with large batches, above all in a container's /dev/shm of 64 MB.
        """
        curve = self._curve_of(cost, None)
        wanted = min(curve.proposal(self.gpu_rate), MOST_WORKERS)
        usual, least = (
            min(wanted, *(bound.workers for bound in self.bounds(ahead)))
            for ahead in (PROBE_PREFETCH, LEAST_PREFETCH)
        )
        gains = least > usual and curve.rate(least) > _WORTH_FEWER_AHEAD * curve.rate(usual)
        # One worker is worth having in any case: without it the GPU waits for every batch.
        return LEAST_PREFETCH if gains or least > usual == 0 else PROBE_PREFETCH

    def _current(self) -> int | None:
        """Return the number of workers set now, None if not known."""
        subject = self.measurer.subject
        return None if subject is None else subject.current_workers

    def _measure_transport(self) -> None:
        """Time the transport from workers to the main process, which the search can do without.

        It needs the rate of the present setting more, and that of the model's proposal for
        comparison.
        """
        measurer = self.measurer
        workers = min(max(1, math.ceil(measurer.host.capacity_per_rank)), self._most())
        each = measurer.opening_seconds + measurer.window_seconds
        needed = 3 * _WHOLE_PROBE * each if self._current() else 2 * each
        if not workers or measurer.left() <= needed:
            return
        try:
            self.transport = measurer.transport(workers)
        except WorkersFailed as error:
            self.failures.append(FailedProbe(workers, error.binding, error.message))
        except HostprepError as error:
            self.notes.append(
                f"the hand-over of batches from workers was not timed by itself: {error.message}"
            )

    def model(self, batch_size: int) -> None:
        """Make the cost and the curve from the stages alone, without DataLoaders."""
        assert self.stages is not None
        self._take(given_rate(self.wish.gpu_rate))
        self.cost = cost_of_stages(self.stages, batch_size)
        self.curve = self._curve_of(self.cost, None)

    def _curve_of(self, cost: SampleCost, transport: Transport | None) -> Curve:
        """Return the curve of a rank here, from what is known so far."""
        storage = math.inf if self.stages is None else storage_ceiling(self.stages)
        capacity = self.measurer.host.capacity_per_rank
        return curve_of(cost, transport, capacity, storage_samples_per_s=storage)

    def _probe(self, workers: int) -> Probe | FailedProbe | None:
        pace = self._pace()
        limit = pace.limit_seconds(workers)
        if limit is None:
            return None
        try:
            return self.measurer.with_workers(
                workers,
                limit_seconds=limit,
                first_batch_seconds=pace.first_batch_seconds(workers),
            )
        except (Inconclusive, Hung) as error:
            # Fewer may be faster: many at the same time may wait for one disk arm.
            self._take_note(workers, error)
            return None

    def _take_note(self, workers: int, error: Inconclusive | Hung) -> None:
        """Remember that a probe came to nothing, and what it showed nevertheless."""
        self.came_to_nothing.add(workers)
        if isinstance(error, TooSlow) and self.cost is not None:
            self.ceiling = min(self.ceiling, error.batches_per_s * self.cost.batch_size)
        if isinstance(error, Hung):
            self.hung[workers] = error
        self.notes.append(f"{error.seen}." if isinstance(error, Hung) else error.message)

    def _ask_few(self) -> None:
        """Probe with a few workers, whatever the time; raise ``Hung`` if these hang, too.

        A larger number may just have been more than a busy host can start, which is no fault of the
        loader.
        """
        assert self.search is not None
        workers = min(_FEW, self.search.unfailed())
        hung = next((self.hung[few] for few in sorted(self.hung) if few <= workers), None)
        if hung is not None and self._pace().limit_seconds(workers) is None:
            raise hung  # a new attempt would be given less time than they had
        try:
            result = self.measurer.with_workers(workers)
        except Inconclusive as error:
            self._take_note(workers, error)  # they are slow, but do not hang
            return
        if isinstance(result, Probe):
            self.search.probes.append(result)
            self.search.go_on(workers)
        else:
            self.search.failures.append(result)

    def _pace(self) -> Pace:
        assert self.cost is not None and self.curve is not None and self.search is not None
        batch_size = self.cost.batch_size
        return Pace(self.measurer, batch_size, self.curve, self.search.probes, self.ceiling)

    def bounds(self, prefetch_factor: int | None = None) -> tuple[Bound, ...]:
        """Return what limits the number of workers, from what is known so far.

        Without ``prefetch_factor`` each worker prepares as many batches ahead as in the probes.
        """
        assert self.cost is not None
        subject = self.measurer.subject
        length = subject.length if subject else len(self.listing.names) if self.listing else None
        batch_size = self.cost.batch_size
        probes = self.probes
        seen = [probe.worker_memory_bytes for probe in probes if probe.workers]
        held = max(filter(None, seen), default=0)
        if not held:
            # At least what a worker holds without samples, and what it would be sent.
            ready = None if self.transport is None else self.transport.worker_memory_bytes
            held = (ready or 0) + (0 if subject is None else subject.copied_bytes)
        each = batch_size * self.measurer.host.ranks  # an epoch is shared by the ranks
        return bounds_of(
            self.measurer.host,
            batch_bytes=self.cost.batch_bytes,
            shared_bytes=self.cost.shared_batch_bytes,
            moved_bytes=0 if subject is None else subject.moved_bytes,
            tensors_per_batch=self.cost.tensors_per_batch,
            prefetch_factor=prefetch_factor or self.measurer.prefetch_factor,
            batches=None if length is None else math.ceil(length / each),
            worker_memory_bytes=held or None,
            main_descriptors=main_descriptors(probes),
            main_memory_bytes=main_memory(probes),
            distinct_workers=distinct_workers(probes),
        )

    def _most(self) -> int:
        return min([MOST_WORKERS, *(bound.workers for bound in self.bounds())])

    def distinct_untried(self) -> float:
        """Return how many workers may be assumed to share out the data, if none were tried.

        For a stream it is the number set now: whoever set it knows what nobody here has seen.
        """
        return max(1, self._current() or 0) if self.is_stream() else math.inf

    def is_stream(self) -> bool:
        """Return whether workers of the data set may all give the same samples."""
        subject = self.measurer.subject
        return subject is not None and subject.kind == "stream"
