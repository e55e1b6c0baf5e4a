"""Recommendations: from the host alone, from files, or from the user's own loader."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from hostprep.errors import Inconclusive
from hostprep.loading import hazards
from hostprep.loading.bounds import (
    MOST_UNCONFIRMED,
    PROBE_PREFETCH,
    descriptors_of_a_training,
    starting_point,
)
from hostprep.loading.failures import Hung, LoaderFailed, unsendable
from hostprep.loading.files import decoders
from hostprep.loading.files.listing import Listing, list_samples
from hostprep.loading.files.model import SideBySide, Stage, Stages, Undecoded
from hostprep.loading.measuring.measure import Measurer, Observer
from hostprep.loading.measuring.variants import (
    ROUNDS,
    Variant,
    compare_files,
    compare_prefetching,
    leads,
)
from hostprep.loading.model import Binding, HostShare
from hostprep.loading.naming import OWN_LOADER, parts_of
from hostprep.loading.recommendation import Recommendation
from hostprep.loading.report import Report, Wish
from hostprep.loading.session import DEFAULT_BATCH, Run
from hostprep.loading.share import share_of_cpus
from hostprep.loading.verdict import settings
from hostprep.loading.verdict.binding import remedy_compared
from hostprep.loading.verdict.judging import report_of
from hostprep.loading.verdict.reasons import NO_GPU
from hostprep.system.python import pip_line
from hostprep.system.temporary import temporary_text
from hostprep.units import format_count

_STAGES_SHARE = 0.12
# A probe's clock runs for this share of the budget, within limits: long enough for whole rounds of
# many workers, short enough for eight probes.
_WINDOW_SHARE = 0.05
_WINDOW_SECONDS = (0.8, 2.5)
# The time limit of --compare: that many probes, which mostly take less, with their starts. Four
# without workers, and ten competitors in four rounds, if all are undecided after two.
_MOST_COMPARED, _COMPARED_SECONDS = 44, 8.0
_OTHER_PICTURE = (
    "to make a pixel, opencv (INTER_LINEAR) uses four pixels of the image, pillow all that it"
    " covers: the results differ, not only the times"
)


def from_host(host: HostShare, wish: Wish, *, gpus: int) -> Report:
    """Return a starting point from the host alone; nothing is measured."""
    workers, words = starting_point(host)
    batch_size = wish.batch_size or DEFAULT_BATCH
    recommendation = Recommendation(
        num_workers=workers,
        prefetch_factor=PROBE_PREFETCH,
        pin_memory=gpus > 0,
        persistent_workers=True,
        verdict=(
            f"start with {format_count(workers, 'worker')} per rank"
            " (a starting point, not a measurement)"
        ),
        reasons=(
            words,
            "the best number depends on how long a sample waits for its storage: not measured",
            *(() if gpus else (f"pin_memory: False because {NO_GPU}",)),
        ),
        code=settings.code(batch_size, workers, PROBE_PREFETCH, pin=gpus > 0, persistent=True),
    )
    more = "to measure, give --dataset DIR or --loader MODULE:NAME; --gpu-rate counts only then"
    needed = descriptors_of_a_training(workers, PROBE_PREFETCH)
    return Report("host", host, recommendation, hazards.of_host(host, needed), notes=(more,))


def from_dataset(directory: str, host: HostShare, wish: Wish, observer: Observer) -> Report:
    """Measure a data set's files, and confirm with real DataLoaders if torch is installed.

    Raises ``UsageError`` if ``directory`` is not one, ``Inconclusive`` if it has no samples.
    """
    began = time.monotonic()
    observer.note(f"listing {directory}")
    listing = list_samples(directory)
    undecoded = _undecoded(listing)
    kind, decoder = _how_to_read(listing, undecoded)
    with _listed(listing, kind, decoder, wish.image_side, directory) as files:
        run = Run(_measurer({"files": files}, directory, host, wish, observer, began), wish, began)
        run.notes += _left_out(listing)
        run.listing, run.undecoded = listing, undecoded
        batch_size = wish.batch_size or DEFAULT_BATCH
        torch = importlib.util.find_spec("torch") is not None
        # Timing loaders that only read would answer a different question.
        loaders = wish.measure and torch and undecoded is None
        _time_stages(run, files, batch_size, needed=not loaders)
        if loaders:
            _measure(run, batch_size)
        else:
            if wish.measure and not torch:
                run.notes.append(
                    "torch is not installed: the model alone, not confirmed by a DataLoader"
                )
            run.model(batch_size)
        report = report_of(run, "dataset")
        if wish.compare:
            report = _compared(run, report, image=kind == "image")
        return report


def _measure(run: Run, batch_size: int) -> None:
    """Measure with real DataLoaders; if not a single batch came in time, use the stages."""
    try:
        run.measure()
    except (Hung, Inconclusive) as error:
        # It was opened, so it has enough samples.
        if run.cost is not None or run.stages is None or run.measurer.subject is None:
            raise
        seen = error.seen if isinstance(error, Hung) else error.message.rstrip(".")
        run.notes.append(f"the model alone, not confirmed by a DataLoader: {seen}")
        run.model(batch_size)


def from_loader(name: str, host: HostShare, wish: Wish, observer: Observer) -> Report:
    """Measure the user's own loader, ``MODULE:NAME``, in fresh processes.

    Raises ``LoaderFailed`` if it raises or hangs, ``Inconclusive`` if it is too short to be timed
    or needs a GPU that is not here, ``UsageError`` if it does not exist.
    """
    parts_of(name)  # a malformed name is no reason to begin
    began = time.monotonic()
    run = Run(_measurer({"loader": name}, name, host, wish, observer, began), wish, began)
    run.measure()
    report = report_of(run, "loader")
    _check_sendable(run, report)
    return _compared(run, report, image=False) if wish.compare else report


def _check_sendable(run: Run, report: Report) -> None:
    """Raise if the recommended workers were not tried and would fail when they start."""
    made, subject = report.recommendation, run.measurer.subject
    if subject is None or not made.num_workers or made.confirmed:
        return
    if error := unsendable(run.measurer.what, subject):
        if report.probes:
            error.tell_rate_alone(report.probes[0].samples_per_s)
        raise error


def _compared(run: Run, report: Report, *, image: bool) -> Report:
    """Return the report with the comparisons of what people try by hand."""
    made, notes = report.recommendation, report.notes
    variants: tuple[Variant, ...] = ()
    if made.num_workers is None or not report.probes:
        notes = (*notes, "nothing to compare without DataLoaders")
    else:
        each = _COMPARED_SECONDS + run.measurer.opening_seconds
        measurer = replace(
            run.measurer,
            deadline=time.monotonic() + max(_MOST_COMPARED * each, run.wish.seconds),
            window_seconds=max(_WINDOW_SECONDS[0], run.measurer.window_seconds / ROUNDS),
        )
        if image and run.listing is not None:
            peak = made.num_workers or max(1, math.floor(report.host.capacity_per_rank))
            variants = compare_files(measurer, peak, jpeg=run.listing.jpeg)
        variants += compare_prefetching(measurer, made.num_workers)
    if any(variant.group == "resize" for variant in variants):
        notes = (*notes, _OTHER_PICTURE)
    if image and made.binding is Binding.DECODE and run.stages is not None:
        made = replace(made, remedy=remedy_compared(run.stages.decoder, variants))
    return replace(
        report,
        recommendation=made,
        notes=notes,
        variants=variants,
        leads=leads(variants),
        seconds=time.monotonic() - run.began,
    )


def _measurer(
    source: dict[str, Any],
    what: str,
    host: HostShare,
    wish: Wish,
    observer: Observer,
    began: float,
) -> Measurer:
    shortest, longest = _WINDOW_SECONDS
    return Measurer(
        source=source,
        what=what,
        batch_size=wish.batch_size,
        host=host,
        deadline=began + wish.seconds,
        window_seconds=min(max(_WINDOW_SHARE * wish.seconds, shortest), longest),
        observer=observer,
        cpus=share_of_cpus(host),
    )


def _left_out(listing: Listing) -> list[str]:
    """Return, in sentences, which files below the directory do not count as samples."""
    notes = [] if listing.whole else ["the directory is large: not all of its files were listed"]
    if listing.others:
        notes.append(f"left out {format_count(listing.others, 'file')} of other kinds")
    if listing.closed:
        count = format_count(listing.closed, "folder")
        notes.append(f"left out {count} that cannot be listed, such as {listing.problem}")
    return notes


def _how_to_read(listing: Listing, undecoded: Undecoded | None) -> tuple[str, str | None]:
    """Return the kind to treat the files as, and the decoder, None if none is used."""
    if undecoded is not None:
        return "bytes", None
    return listing.kind, _fitting(listing)[0] if listing.kind == "image" else None


def _fitting(listing: Listing) -> list[str]:
    """Return the installed decoders that can decode such images."""
    return [name for name in decoders.installed() if listing.jpeg or name != "simplejpeg"]


def _undecoded(listing: Listing) -> Undecoded | None:
    """Return what is missing here to make samples of the files, None if nothing is."""
    if listing.kind == "bytes":
        why = "only your own code knows what to make of them"
        return Undecoded("files of this kind are not decoded", why, OWN_LOADER)
    numpy = importlib.util.find_spec("numpy") is not None
    if listing.kind == "npy" and not numpy:
        what, why = "arrays cannot be parsed here", "numpy is not installed"
        return Undecoded(what, why, pip_line("numpy"))
    if listing.kind != "image" or _fitting(listing):
        return None
    what = "images cannot be decoded here"
    modules = (decoders.MODULES[name] for name in ("pillow", "opencv"))
    if not numpy and any(map(importlib.util.find_spec, modules)):
        return Undecoded(what, "numpy is not installed", pip_line("numpy"))
    # Either suffices, and Pillow is the smaller one, and what torchvision's data sets use.
    why = "neither Pillow nor OpenCV is installed"
    return Undecoded(what, why, pip_line("numpy", "pillow"))


def _listed(
    listing: Listing, kind: str, decoder: str | None, side: int, directory: str
) -> AbstractContextManager[str]:
    """Write the list of files for the measuring processes; entering the context gives its path."""
    told = {
        "names": listing.names,
        "kind": kind,
        "decoder": decoder,
        "side": side,
        "directory": directory,
    }
    return temporary_text(json.dumps(told))


def _time_stages(run: Run, files: str, batch_size: int, *, needed: bool) -> None:
    """Time the stages; a failure is only noted, unless nothing else is measured (``needed``)."""
    seconds = max(3.0, _STAGES_SHARE * run.wish.seconds)
    try:
        found = run.measurer.stages(files, batch_size, seconds, MOST_UNCONFIRMED)
    except LoaderFailed as error:
        if needed:
            raise
        run.notes.append(f"the stages were not timed: {error.message}")
        return
    stages = tuple(Stage(**stage) for stage in found["stages"])
    together = found["side_by_side"]
    side_by_side = None if together is None else SideBySide(**together)
    run.stages = Stages(**{**found, "stages": stages, "side_by_side": side_by_side})
    # Each sample takes two files there: one is read as it is, and one cold. So does each file that
    # cannot be read.
    run.measurer.first = 2 * (run.stages.samples + run.stages.unreadable)
    run.measurer.first += 0 if side_by_side is None else side_by_side.files
    if run.stages.unreadable:
        count = format_count(run.stages.unreadable, "file")
        run.notes.append(
            f"left out {count} that cannot be read or decoded, such as {run.stages.problem}"
        )
