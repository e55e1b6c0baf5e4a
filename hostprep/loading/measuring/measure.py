"""Starts fresh processes that measure, within a time budget: hostprep's side of it."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import replace
from typing import Any, Protocol

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.loading import failures
from hostprep.loading.bounds import PROBE_PREFETCH
from hostprep.loading.measuring.disturbance import undisturbed
from hostprep.loading.measuring.following import Following
from hostprep.loading.measuring.leftovers import remove_batches
from hostprep.loading.model import (
    Batching,
    FailedProbe,
    HostShare,
    Pipeline,
    Probe,
    SampleCost,
    Subject,
    Transport,
)
from hostprep.loading.naming import with_so_many
from hostprep.loading.rounds import discarded_batches, least_batches
from hostprep.system.python import own_environment, own_module
from hostprep.system.run import Running, start
from hostprep.system.temporary import temporary_folder
from hostprep.units import format_count

_OPENING_SECONDS = 60.0
# Opening may take this many times as long as the last time.
_OPENING_NEWS = 2.0
_LONGEST_PROBE_SECONDS = 20.0
_SHORTEST_PROBE_SECONDS = 4.0
# Share of the time left: the first timing, on which the rest of the plan is based, may take longer
# than the others if batches take long.
_FIRST_SHARE = 0.5
_GPU_SECONDS = 30.0
_LIKELY_FORK_SECONDS = 0.04


class Observer(Protocol):
    """Is told what is being measured."""

    def note(self, message: str) -> None:
        """Take one sentence."""

    def going_on(self) -> None:
        """Called several times a second while it is still going on."""


@dataclass(slots=True)
class Measurer:
    """Measures one source. ``what`` names it in sentences; ``first`` is the next unseen sample.

    If a sampler draws batches, ``first`` is the next unseen batch. ``source`` is as in
    ``opening.open_source``: ``{"loader": ...}`` or ``{"files": ...}``. The clock of a probe runs
    for at least ``window_seconds``. ``cpus`` are the processors to measure on, None for all that
    this process may use. ``start_seconds`` is what each of several workers took to start, once that
    was seen. ``own_way`` is False once it turned out that the loader's class has no way of its own
    that can be timed. ``prefetch_factor`` is how many batches each worker prepares ahead.
    ``imports_once``: workers are not forked from the loader's process, but from one with the same
    imports.
    """

    source: dict[str, Any]
    what: str
    batch_size: int | None
    host: HostShare
    deadline: float
    window_seconds: float
    observer: Observer
    cpus: list[int] | None = None
    first: int = 0
    opening_seconds: float = 1.5
    start_seconds: float | None = None
    subject: Subject | None = None
    seen_before: bool = False
    own_way: bool = True
    prefetch_factor: int = PROBE_PREFETCH
    imports_once: bool = False

    def left(self) -> float:
        """Return the seconds left of the budget."""
        return self.deadline - time.monotonic()

    def starting_seconds(self, workers: int) -> float:
        """Return how long ``workers`` take to start, before any of them makes a batch.

        Forked ones start one after the other, and with many each takes longer than with the few
        that were timed. Others import everything anew, on the same processors. All that share no
        memory with the loader's process are sent the data set, one after the other.
        """
        each, sending = self.start_seconds, self._sending_seconds()
        if self.forks():
            each = max(_LIKELY_FORK_SECONDS + sending, each or 0.0)
        elif each is None:
            each = self.opening_seconds / max(1.0, self.host.capacity_per_rank) + sending
        return workers * each

    def _sending_seconds(self) -> float:
        return 0.0 if self.subject is None else self.subject.sending_seconds

    def forks(self) -> bool:
        """Return whether workers are forked, and need not import everything anew."""
        forked = self.subject is None or self.subject.start_method == "fork"
        return forked or self.imports_once

    def alone(self) -> tuple[Probe, SampleCost] | Pipeline:
        """Time the loader without workers; for an iterable return its own timing instead."""
        self.observer.note(f"timing {self.what} without workers")
        longest = max(_LONGEST_PROBE_SECONDS, _FIRST_SHARE * self.left())
        try:
            result = self._ask_probe(0, limit_seconds=longest)
        except failures.LoaderFailed as error:
            if not isinstance(error, failures.Hung):
                error.tell_without_workers(self.subject)
            raise
        if "iterable" in result:
            return Pipeline(**result["iterable"])
        cost = SampleCost(**result["cost"])
        self._learn(cost.batch_size, result["own_way_problem"])
        self.own_way = result["probe"]["own_way"]
        # Under a quota of less than one processor the rest of the time is not waiting for data.
        busy = cost.cpu_seconds / min(1.0, self._cpus_had())
        waiting = min(cost.waiting_seconds, max(0.0, cost.worker_seconds - busy))
        probe = self._probe_of(result)
        seconds = 1 / probe.undisturbed_samples_per_s
        return probe, replace(cost, seconds=seconds, waiting_seconds=waiting)

    def _learn(self, batch_size: int, own_way_problem: str | None) -> None:
        """Complete what is known of the loader, now that the samples in a batch are counted."""
        subject = self.subject
        if subject is None:
            return
        length = subject.length
        if subject.batching == Batching.DATASET and length is not None:
            length *= batch_size  # it counted batches
        self.subject = replace(
            subject, batch_size=batch_size, length=length, own_way_problem=own_way_problem
        )

    def transport(self, workers: int) -> Transport:
        """Time ready samples through ``workers`` workers."""
        self.observer.note(
            f"timing the way from {format_count(workers, 'worker')} to the main process"
        )
        result = self._ask_probe(workers, ready=True)
        probe = self._probe_of(result)
        return Transport(
            workers=workers,
            samples_per_s=probe.undisturbed_samples_per_s,
            cpu_seconds=probe.own_cpus / probe.samples_per_s,
            worker_memory_bytes=probe.worker_memory_bytes,
            relative_error=probe.error,
        )

    def with_workers(
        self,
        workers: int,
        *,
        background: bool = False,
        limit_seconds: float = _LONGEST_PROBE_SECONDS,
        first_batch_seconds: float = math.inf,
    ) -> Probe | FailedProbe:
        """Time the loader with workers on unseen samples, for ``limit_seconds`` at most.

        The first batch has ``first_batch_seconds`` from when the workers have started. Returns a
        ``FailedProbe`` if the host's limits stopped the workers, and raises ``LoaderFailed`` if the
        loader itself is at fault.
        """
        self.observer.note(f"timing {self.what} {with_so_many(workers)}")
        try:
            result = self._ask_probe(
                workers,
                background=background,
                limit_seconds=limit_seconds,
                first_batch_seconds=first_batch_seconds,
            )
        except failures.WorkersFailed as error:
            return FailedProbe(workers, error.binding, error.message)
        return self._probe_of(result)

    def gpu(self, batch_size: int, side: int) -> dict[str, Any]:
        """Time training steps on the first GPU."""
        self.observer.note("timing training steps on the GPU")
        job = {"job": "gpu", "device": "cuda:0", "batch_size": batch_size, "side": side}
        return self._ask({**job, "seconds": 2.0}, _GPU_SECONDS, 0)

    def stages(self, files: str, batch_size: int, seconds: float, readers: int) -> dict[str, Any]:
        """Time the stages of loading the files in the list ``files``.

        Takes about ``seconds``; if a single file takes longer, at most half of the time left. If
        storage may bind, ``readers`` then read at once, for a quarter of the time.
        """
        self.observer.note(f"timing the stages of {self.what}")
        job = {"job": "stages", "files": files, "batch_size": batch_size}
        job |= {"seconds": seconds, "readers": readers}
        return self._ask(job, max(seconds, _FIRST_SHARE * self.left()), 0)

    def _ask_probe(
        self,
        workers: int,
        *,
        ready: bool = False,
        background: bool = False,
        limit_seconds: float = _LONGEST_PROBE_SECONDS,
        first_batch_seconds: float = math.inf,
    ) -> dict[str, Any]:
        # Workers that import everything anew, or are sent much, give nothing before that, whatever
        # the time limit.
        sending = workers * self._sending_seconds()
        before = sending if self.forks() else self.starting_seconds(workers)
        shortest = _SHORTEST_PROBE_SECONDS + before
        limit = max(shortest, min(limit_seconds, self.left() - self.opening_seconds))
        job = {
            "job": "probe",
            "source": self.source,
            "batch_size": self.batch_size,
            "workers": workers,
            "prefetch_factor": self.prefetch_factor,
            "first": self.first,
            "seconds": self.window_seconds,
            "limit_seconds": limit,
            "ready": ready,
            "background": background,
            "own_way": self.own_way,
        }
        try:
            result = self._ask(job, limit, workers, first_batch_seconds)
        except HostprepError as error:
            if not ready:
                self._pass_over(workers, error)
            raise
        if "next" in result and not ready:
            self.first = result["next"]
        return result

    def _pass_over(self, workers: int, error: HostprepError) -> None:
        """Count what a probe without a result may have read as seen: it is in the page cache.

        That is the batch that each worker was making or, once batches came, those made ahead and
        the least that a probe takes: it was too slow, or cut short, and took no more.
        """
        each = self.batch_size or 1
        if self.subject is not None:
            by_size = self.subject.batching == Batching.SIZE
            each = (self.subject.batch_size or each) if by_size else 1
        batches = workers
        if not isinstance(error, failures.Hung) or error.first_batch_came:
            ahead = workers * self.prefetch_factor
            batches = ahead + discarded_batches(workers) + least_batches(workers)
        self.first += batches * each

    def _ask(
        self,
        job: dict[str, Any],
        limit: float,
        workers: int,
        first_batch_seconds: float = math.inf,
    ) -> dict[str, Any]:
        """Do one job in a fresh process, which always ends, and return its result."""
        pids: list[int] = []
        os.getcwd()  # torch does not load in a directory that was removed: FileNotFoundError
        began = time.time()
        with temporary_folder() as folder:
            job = {**job, "cpus": self.cpus, "sockets": folder}
            # The child adds the current directory to the path for the loader, as the user expects.
            argv = own_module("hostprep.loading.child.jobs", json.dumps(job))
            wanted_for = "measure in a process of its own"
            try:
                with start(argv, wanted_for=wanted_for, env=own_environment()) as child:
                    pids.append(child.pid)  # what it sends to workers lies there, too
                    return self._listen(child, job, limit, workers, first_batch_seconds, pids)
            finally:
                remove_batches(pids, began)

    def _listen(
        self,
        child: Running,
        job: dict[str, Any],
        limit: float,
        workers: int,
        first_batch_seconds: float,
        pids: list[int],
    ) -> dict[str, Any]:
        """Follow the child to its result; note its workers in ``pids``, and what it reports."""

        def on_opened(seconds: float, event: dict[str, Any]) -> None:
            if "subject" in event:
                self.opening_seconds = seconds
                self.subject = self.subject or Subject(**event["subject"])
                self.imports_once = event["imports_once"]

        def on_workers(event: dict[str, Any]) -> None:
            pids.extend(event["pids"])
            if event["pids"] and self.forks():
                each = event["seconds"] / len(event["pids"])
                self.start_seconds = max(each, self.start_seconds or each)

        # Listing millions of files takes minutes: a larger time budget applies to that as well.
        known = _OPENING_NEWS * self.opening_seconds
        patience = max(_OPENING_SECONDS, _FIRST_SHARE * self.left(), known)
        following = Following(
            job["job"],
            self.what,
            workers,
            patience_seconds=patience,
            limit_seconds=limit,
            first_batch_seconds=first_batch_seconds,
            spare_seconds=self.left() - self.opening_seconds - limit,
            on_opened=on_opened,
            on_workers=on_workers,
            on_waiting=self.observer.going_on,
        )
        return following.result(child)

    def _cpus_had(self) -> float:
        """Return the processors that the measured loader may use; the whole quota is its own."""
        return min(
            len(self.cpus) if self.cpus else self.host.affinity_cpus,
            self.host.quota_cpus or self.host.affinity_cpus,
        )

    def _probe_of(self, result: dict[str, Any]) -> Probe:
        found = result["probe"]
        rate = undisturbed(
            found["samples_per_s"],
            workers=found["workers"],
            own_cpus=found["own_cpus"],
            runnable_cpus=found["runnable_cpus"],
            others_cpus=min(found["others_cpus"], found["others_before_cpus"]),
            cpus=self._cpus_had(),
        )
        # With many ranks each has less than the one processor that it was measured on.
        mine = self.host.processors_per_rank
        used = found["own_cpus"] * rate / found["samples_per_s"]
        if mine < min(used, self._cpus_had()):
            rate *= mine / used
        self.seen_before = self.seen_before or found["seen_before"]
        if found["workers"] and not self.forks():
            each = found["first_batch_seconds"] / found["workers"]
            self.start_seconds = min(each, self.start_seconds or each)
        return Probe(undisturbed_samples_per_s=rate, **found)
