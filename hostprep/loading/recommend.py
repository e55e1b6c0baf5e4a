"""Recommending: from the host alone, from files, or from the user's own loader."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hostprep.errors import Inconclusive
from hostprep.loading import decoders, hazards, verdict
from hostprep.loading.bounds import MOST_WORKERS, bounds, starting_point
from hostprep.loading.curve import Curve, curve_of
from hostprep.loading.failures import WorkersFailed
from hostprep.loading.files import Listing, list_samples
from hostprep.loading.measure import WINDOW_SECONDS, Measurer, Observer, share_of_cpus
from hostprep.loading.model import (
    Binding,
    Bound,
    FailedProbe,
    Hazard,
    HostShare,
    Probe,
    Recommendation,
    SampleCost,
    Stage,
    Stages,
    Subject,
    Transport,
)
from hostprep.loading.search import Point, Search, choose, contenders
from hostprep.loading.variants import Variant, Winner, compare_files, compare_prefetching, winners
from hostprep.loading.verdict import Known

DEFAULT_BATCH = 32
_STAGES_SHARE = 0.12
_PROBE_PREFETCH = 2


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked for. ``seconds`` is the budget of all measuring, comparing apart."""

    batch_size: int | None
    gpu_rate: float | None
    seconds: float
    image_side: int
    measure: bool
    compare: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The recommendation with everything that it was made from."""

    mode: str
    host: HostShare
    recommendation: Recommendation
    hazards: tuple[Hazard, ...] = ()
    bounds: tuple[Bound, ...] = ()
    subject: Subject | None = None
    listing: Listing | None = None
    stages: Stages | None = None
    cost: SampleCost | None = None
    transport: Transport | None = None
    curve: Curve | None = None
    model_agreed: bool | None = None
    gpu_rate: float | None = None
    gpu_rate_from: str | None = None
    points: tuple[Point, ...] = ()
    probes: tuple[Probe, ...] = ()
    failures: tuple[FailedProbe, ...] = ()
    variants: tuple[Variant, ...] = ()
    winners: tuple[Winner, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def from_host(host: HostShare, *, gpus: int) -> Report:
    """Return a starting point from the host alone; nothing is measured."""
    workers, words = starting_point(host)
    recommendation = Recommendation(
        num_workers=workers,
        prefetch_factor=_PROBE_PREFETCH,
        pin_memory=gpus > 0,
        persistent_workers=True,
        binding=None,
        remedy=None,
        expected_samples_per_s=None,
        relative_error=None,
        confirmed=False,
        change_needed=None,
        verdict=f"{workers} workers a rank are a starting point, not a measurement",
        reasons=(words, "how long a sample waits for its storage decides, and is not known"),
        memory_bytes=None,
        shm_bytes=None,
        code=verdict.code(DEFAULT_BATCH, workers, _PROBE_PREFETCH, pin=gpus > 0, persistent=True),
    )
    return Report("host", host, recommendation, hazards.of_host(host))


def from_dataset(directory: str, host: HostShare, wish: Wish, observer: Observer) -> Report:
    """Measure a data set's files, and confirm with real DataLoaders where torch is installed.

    Raises ``UsageError`` where ``directory`` is none, ``Inconclusive`` where it has no samples.
    """
    began = time.monotonic()
    listing = list_samples(directory)
    kind, decoder, notes = _how_to_read(listing)
    with _listed(listing, kind, decoder, wish.image_side, directory) as files:
        run = _Run(_measurer({"files": files}, directory, host, wish, observer, began), wish, began)
        run.notes += notes
        run.listing = listing
        batch_size = wish.batch_size or DEFAULT_BATCH
        run.stages = _stages_of(
            run.measurer.stages(files, batch_size, max(3.0, _STAGES_SHARE * wish.seconds))
        )
        # Each sample takes two files there: one is read as it is, and one cold.
        run.measurer.first = 2 * run.stages.samples
        if run.stages.unreadable:
            run.notes.append(f"{run.stages.unreadable} files could not be read or decoded")
        if wish.measure and importlib.util.find_spec("torch") is not None:
            run.measure()
        else:
            if wish.measure:
                run.notes.append(
                    "torch is not installed: the model alone, not confirmed by a DataLoader"
                )
            run.model(batch_size)
        report = run.report("dataset")
        if wish.compare:
            report = run.compared(report, image=kind == "image")
        return report


def from_loader(name: str, host: HostShare, wish: Wish, observer: Observer) -> Report:
    """Measure the user's own loader, ``MODULE:NAME``, in fresh processes.

    Raises ``LoaderFailed`` where it raises or hangs, ``Inconclusive`` where it is too short to be
    timed or needs a GPU that is not here, ``UsageError`` where there is no such thing.
    """
    began = time.monotonic()
    run = _Run(_measurer({"loader": name}, name, host, wish, observer, began), wish, began)
    run.measure()
    report = run.report("loader")
    return run.compared(report, image=False) if wish.compare else report


@dataclass(slots=True)
class _Run:
    """A recommendation in the making."""

    measurer: Measurer
    wish: Wish
    began: float
    listing: Listing | None = None
    stages: Stages | None = None
    cost: SampleCost | None = None
    transport: Transport | None = None
    curve: Curve | None = None
    search: Search | None = None
    gpu_rate: float | None = None
    gpu_rate_from: str | None = None
    iterable: dict[str, Any] | None = None
    failures: list[FailedProbe] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def measure(self) -> None:
        """Measure with real DataLoaders: alone, the transport, then the search."""
        measurer = self.measurer
        found = measurer.alone()
        self.gpu_rate, self.gpu_rate_from = self._gpu()
        if isinstance(found, dict):
            self.iterable = found
            return
        alone, self.cost = found
        ready_workers = min(max(1, math.ceil(measurer.host.capacity_per_rank)), self._most())
        if ready_workers and measurer.left() > 3 * (measurer.opening_seconds + WINDOW_SECONDS):
            try:
                self.transport = measurer.transport(ready_workers)
            except WorkersFailed as error:
                self.failures.append(FailedProbe(ready_workers, error.binding, error.message))
        self.curve = curve_of(self.cost, self.transport, measurer.host.capacity_per_rank)
        self.search = Search(self.curve, self.gpu_rate, self._probe, self._most, [alone])
        self.search.failures += self.failures
        subject = measurer.subject
        self.search.run(None if subject is None else subject.current_workers)
        self.search.repeat(contenders(self.search.points(), self.gpu_rate))
        if len(self.search.probes) == 1 and self._most() > 0:
            self.notes.append("there was no time for a probe with workers: --seconds gives more")

    def model(self, batch_size: int) -> None:
        """Make the cost and the curve from the stages alone, without DataLoaders."""
        assert self.stages is not None
        self.gpu_rate = self.wish.gpu_rate
        self.gpu_rate_from = "--gpu-rate" if self.gpu_rate else None
        self.cost = cost_of_stages(self.stages, batch_size)
        self.curve = curve_of(self.cost, None, self.measurer.host.capacity_per_rank)

    def report(self, mode: str) -> Report:
        """Put together what is known, and judge it."""
        host = self.measurer.host
        if self.iterable is not None:
            return self._report_iterable(mode)
        assert self.cost is not None and self.curve is not None
        probes = tuple(self.search.probes) if self.search else ()
        failed = tuple(self.search.failures) if self.search else ()
        points = self.search.points() if self.search else ()
        subject = self.measurer.subject
        length = len(self.listing.names) if self.listing else subject.length if subject else None
        found_bounds = self._bounds()
        known = Known(
            host=host,
            subject=subject,
            length=length,
            cost=self.cost,
            curve=self.curve,
            points=points,
            probes=probes,
            bounds=found_bounds,
            stages=self.stages,
            gpu_rate=self.gpu_rate,
            cuda=subject is not None and subject.cuda,
            data_bytes=self._data_bytes(),
        )
        chosen = choose(points or self._modelled(found_bounds), self.gpu_rate)
        made = verdict.recommend(known, chosen)
        epoch = (
            None
            if length is None or not made.expected_samples_per_s
            else (length / made.expected_samples_per_s)
        )
        wanted = self.curve.proposal(self.gpu_rate)
        return Report(
            mode=mode,
            host=host,
            recommendation=made,
            hazards=(
                *hazards.of_host(host),
                *hazards.of_bounds(wanted, found_bounds),
                *(() if subject is None else hazards.of_subject(subject)),
                *hazards.of_probes(host, probes, failed, epoch),
            ),
            bounds=found_bounds,
            subject=subject,
            listing=self.listing,
            stages=self.stages,
            cost=self.cost,
            transport=self.transport,
            curve=self.curve,
            model_agreed=self.search.agreed if self.search else None,
            gpu_rate=self.gpu_rate,
            gpu_rate_from=self.gpu_rate_from,
            points=points,
            probes=probes,
            failures=failed,
            notes=(*self.notes, *self._caveats(probes)),
            seconds=time.monotonic() - self.began,
        )

    def compared(self, report: Report, *, image: bool) -> Report:
        """Return the report with the comparisons of what people try by hand."""
        from dataclasses import replace

        workers = report.recommendation.num_workers
        if workers is None or report.mode == "host" or not report.probes:
            return replace(report, notes=(*report.notes, "nothing to compare without torch"))
        self.measurer.deadline = time.monotonic() + 60 + self.wish.seconds
        variants: tuple[Variant, ...] = ()
        if image and self.listing is not None:
            peak = workers or max(1, math.floor(report.host.capacity_per_rank))
            variants = compare_files(self.measurer, peak, jpeg=self.listing.jpeg)
        variants += compare_prefetching(self.measurer, workers)
        seconds = time.monotonic() - self.began
        return replace(report, variants=variants, winners=winners(variants), seconds=seconds)

    def _report_iterable(self, mode: str) -> Report:
        assert self.iterable is not None
        rate, error = self.iterable["samples_per_s"], self.iterable["relative_error"]
        enough = self.gpu_rate is not None and rate >= self.gpu_rate
        if self.gpu_rate is None:
            words = "how it works inside is its own; whether that is enough --gpu-rate tells"
        elif enough:
            words = f"enough for the GPU's {self.gpu_rate:,.0f}"
        else:
            words = f"the GPU takes {self.gpu_rate:,.0f}: tune it by its own settings"
        made = Recommendation(
            num_workers=None,
            prefetch_factor=None,
            pin_memory=False,
            persistent_workers=False,
            binding=Binding.GPU if enough else Binding.PIPELINE,
            remedy=None if enough else "its own settings: threads, parallel reads, prefetching",
            expected_samples_per_s=rate,
            relative_error=error,
            confirmed=True,
            change_needed=False if enough else None,
            verdict=f"it gives {rate:,.0f} samples/s as it is; {words}",
            reasons=("it is no DataLoader, so it was timed as it is",),
            memory_bytes=None,
            shm_bytes=None,
            code="",
        )
        return Report(
            mode=mode,
            host=self.measurer.host,
            recommendation=made,
            hazards=hazards.of_host(self.measurer.host),
            subject=self.measurer.subject,
            gpu_rate=self.gpu_rate,
            gpu_rate_from=self.gpu_rate_from,
            notes=tuple(self.notes),
            seconds=time.monotonic() - self.began,
        )

    def _gpu(self) -> tuple[float | None, str | None]:
        if self.wish.gpu_rate is not None:
            return self.wish.gpu_rate, "--gpu-rate"
        subject = self.measurer.subject
        if subject is None or not subject.cuda:
            return None, None
        try:
            found = self.measurer.gpu(subject.batch_size or DEFAULT_BATCH, self.wish.image_side)
        except Inconclusive as error:
            self.notes.append(f"the GPU's rate was not measured: {error.message}")
            return None, None
        words = f"{found['network']}, {found['side']} pixels, on {found['device']}"
        return found["samples_per_s"], f"measured: {words}"

    def _probe(self, workers: int) -> Probe | FailedProbe | None:
        assert self.cost is not None and self.curve is not None
        discarded = (2 * workers + 4) * self.cost.batch_size
        needed = 1.3 * discarded / self.curve.rate(workers) + WINDOW_SECONDS
        if self.measurer.left() < needed + self.measurer.opening_seconds:
            return None
        try:
            return self.measurer.with_workers(workers, _PROBE_PREFETCH)
        except Inconclusive as error:
            self.notes.append(error.message)
            return None

    def _bounds(self) -> tuple[Bound, ...]:
        assert self.cost is not None
        subject = self.measurer.subject
        length = subject.length if subject else len(self.listing.names) if self.listing else None
        batch_size = self.cost.batch_size
        probes = self.search.probes if self.search else []
        held = [probe.worker_memory_bytes for probe in probes if probe.worker_memory_bytes]
        return bounds(
            self.measurer.host,
            batch_bytes=self.cost.sample_bytes * batch_size,
            tensors_per_batch=self.cost.tensors_per_batch,
            prefetch_factor=_PROBE_PREFETCH,
            batches=None if length is None else math.ceil(length / batch_size),
            worker_memory_bytes=max(held, default=None),
            main_descriptors=max((probe.main_descriptors for probe in probes[:1]), default=16),
        )

    def _most(self) -> int:
        return min([MOST_WORKERS, *(bound.workers for bound in self._bounds())])

    def _modelled(self, found_bounds: Sequence[Bound]) -> list[Point]:
        """Return the model's points, where nothing was measured with workers."""
        assert self.curve is not None
        most = min([MOST_WORKERS, *(bound.workers for bound in found_bounds)])
        top = max(0, min(most, self.curve.proposal(self.gpu_rate)))
        rates = [(workers, self.curve.rate(workers)) for workers in range(top + 1)]
        return [Point(workers, rate, rate, _MODEL_ERROR, 0) for workers, rate in rates]

    def _data_bytes(self) -> float | None:
        if self.listing is None or not self.listing.whole:
            return None
        return self.listing.mean_bytes * len(self.listing.names)

    def _caveats(self, probes: Sequence[Probe]) -> list[str]:
        notes = []
        if any(probe.disturbed for probe in probes):
            worst = max(probe.others_cpus for probe in probes)
            notes.append(
                f"other programs took up to {worst:.1f} processors meanwhile; the rates are what"
                " remains without them, and less certain for it"
            )
        if self.measurer.seen_before and self.listing is None:
            notes.append(
                "the data is too short, or comes in a stream: some samples were read more than"
                " once, and may have come from the page cache"
            )
        if self.measurer.host.ranks > 1:
            notes.append(
                f"measured as one of {self.measurer.host.ranks} ranks, on its share of the"
                " processors; the ranks' contention for the storage is not in the figures"
            )
        return notes


# Of the model alone, against the public grid that it was fitted to.
_MODEL_ERROR = 0.08


def cost_of_stages(stages: Stages, batch_size: int) -> SampleCost:
    """Return what a sample takes by the stages: as read now, decoded, resized and collated."""
    read, collate = stages.stage("read_as_is"), stages.stage("collate")
    parts: tuple[Stage, ...] = (read, stages.stage("decode"), stages.stage("resize"), collate)
    seconds = sum(part.seconds for part in parts)
    cpu_seconds = min(seconds, sum(part.cpu_seconds for part in parts))
    return SampleCost(
        batch_size=batch_size,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        waiting_seconds=max(0.0, read.seconds - read.cpu_seconds),
        collate_seconds=collate.seconds,
        collate_cpu_seconds=collate.cpu_seconds,
        sample_bytes=stages.sample_bytes,
        tensors_per_batch=1,
        batch_p99_over_mean=1.0,
    )


def _measurer(
    source: dict[str, Any],
    what: str,
    host: HostShare,
    wish: Wish,
    observer: Observer,
    began: float,
) -> Measurer:
    return Measurer(
        source=source,
        what=what,
        batch_size=wish.batch_size,
        host=host,
        deadline=began + wish.seconds,
        observer=observer,
        cpus=share_of_cpus(host),
    )


def _how_to_read(listing: Listing) -> tuple[str, str | None, list[str]]:
    """Return the kind to treat the files as, the decoder, and what to note of it."""
    usable = decoders.installed()
    notes = [] if listing.whole else ["the directory is large: not all of its files were listed"]
    if listing.others:
        notes.append(f"{listing.others} files of other kinds were left out")
    if listing.kind == "image":
        fitting = [name for name in usable if listing.jpeg or name != "simplejpeg"]
        if fitting:
            return "image", fitting[0], notes
        words = "neither Pillow nor OpenCV is installed: files are read, not decoded"
        return "bytes", None, [*notes, f"{words} (pip install 'hostprep[images]')"]
    if listing.kind == "npy" and importlib.util.find_spec("numpy") is None:
        return "bytes", None, [*notes, "numpy is not installed: files are read, not parsed"]
    return listing.kind, None, notes


@contextmanager
def _listed(
    listing: Listing, kind: str, decoder: str | None, side: int, directory: str
) -> Iterator[str]:
    """Write the list of files where the measuring processes find it."""
    told = {
        "names": listing.names,
        "kind": kind,
        "decoder": decoder,
        "side": side,
        "directory": os.fspath(directory),
    }
    with tempfile.NamedTemporaryFile("w", prefix="hostprep-", suffix=".json") as file:
        json.dump(told, file)
        file.flush()
        yield file.name


def _stages_of(found: dict[str, Any]) -> Stages:
    stages = tuple(Stage(**stage) for stage in found["stages"])
    return Stages(**{**found, "stages": stages})
