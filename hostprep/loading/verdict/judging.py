"""From the measurements of a run to its report: what to recommend, and all the evidence."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from hostprep.loading import hazards
from hostprep.loading.bounds import MOST_WORKERS, descriptors_of_a_training
from hostprep.loading.curve import Ceiling, Curve
from hostprep.loading.measuring.disturbance import others_beside, without_others
from hostprep.loading.model import Pipeline
from hostprep.loading.recommendation import Bound
from hostprep.loading.report import Report
from hostprep.loading.search import Point, choose, points_of
from hostprep.loading.session import Run
from hostprep.loading.verdict import settings
from hostprep.loading.verdict.binding import usable_cpus
from hostprep.loading.verdict.caveats import caveats_of
from hostprep.loading.verdict.known import Known
from hostprep.loading.verdict.once import notes_of_once
from hostprep.loading.verdict.pipelines import of_pipeline
from hostprep.loading.verdict.unconfirmed import handed_over, model_error, modelled
from hostprep.loading.verdict.undecoded import of_undecoded
from hostprep.units import format_seconds

# More than a process takes to start and end on a busy machine.
_LATE_SECONDS = 5.0


def report_of(run: Run, mode: str) -> Report:
    """Collect what is known, and judge it."""
    if run.pipeline is not None:
        return _report_pipeline(run, mode, run.pipeline)
    known = _known(run)
    host, subject, probes = known.host, known.subject, known.probes
    if run.undecoded is not None:
        made = of_undecoded(run.undecoded, known)
    else:
        made = settings.recommend(known, choose(_candidates(run, known), run.gpu_rate))
    epoch = (
        None
        if known.length is None or not made.expected_samples_per_s
        else known.length / (host.ranks * made.expected_samples_per_s)
    )
    # Files that are only read are neither as slow nor as large as the samples made from them.
    wanted = 0 if run.undecoded else min(known.curve.proposal(run.gpu_rate), MOST_WORKERS)
    return Report(
        mode=mode,
        host=host,
        recommendation=made,
        hazards=(
            *hazards.of_host(
                host,
                descriptors_of_a_training(
                    made.num_workers or 0, made.prefetch_factor, known.cost.tensors_per_batch
                ),
            ),
            *hazards.of_bounds(host, wanted, known.bounds, subject),
            *(() if subject is None else hazards.of_setting(host, subject, known.bounds_now)),
            *(() if subject is None else hazards.of_subject(subject)),
            *hazards.of_probes(host, probes, run.failed, known.length),
        ),
        bounds=known.bounds,
        subject=subject,
        listing=run.listing,
        stages=run.stages,
        undecoded=run.undecoded,
        cost=run.cost,
        transport=run.transport,
        curve=run.curve,
        model_agreed=run.search.agreed if run.search else None,
        gpu_rate=run.gpu_rate,
        gpu_rate_from=run.gpu_rate_from,
        points=known.points,
        probes=probes,
        failures=run.failed,
        notes=(
            *run.notes,
            *caveats_of(
                host,
                subject,
                run.stages,
                known.cost,
                probes,
                batch_size_given=run.wish.batch_size is not None,
                seen_before=run.measurer.seen_before,
            ),
            *notes_of_once(made, probes, subject, epoch),
            *_late(run),
        ),
        seconds=time.monotonic() - run.began,
    )


def _known(run: Run) -> Known:
    """Return what the verdict is made from."""
    assert run.cost is not None and run.curve is not None
    subject = run.measurer.subject
    return Known(
        host=run.measurer.host,
        subject=subject,
        length=len(run.listing.names) if run.listing else subject.length if subject else None,
        cost=run.cost,
        curve=run.curve,
        points=points_of(run.probes),
        probes=run.probes,
        bounds=run.bounds(),
        stages=run.stages,
        gpu_rate=run.gpu_rate,
        cuda=_has_gpu(run),
        data_bytes=_data_bytes(run),
        untried=run.better_untried,
        failed=run.failed,
        ahead=run.measurer.prefetch_factor,
        bounds_now=run.bounds(subject.prefetch_now) if subject else (),
    )


def _has_gpu(run: Run) -> bool:
    """Return whether batches go to a GPU.

    For a loader, the environment is the one that trains. Files may be measured by a torch that is
    built for the CPU, or without torch: then it is the host's GPUs that count.
    """
    subject = run.measurer.subject
    if subject is not None and subject.cuda:
        return True
    return run.listing is not None and run.measurer.host.gpus > 0


def _candidates(run: Run, known: Known) -> tuple[Point, ...]:
    """Return the points to choose from: what was measured, or else what the model says."""
    measured = run.search.borne() if run.search else ()
    if any(point.workers for point in measured):
        return measured
    # What was measured, if anything, was without workers; the model supplies the rest.
    by_model = modelled_points(run, known.bounds)
    if not measured:
        return tuple(by_model)
    # That workers work while the GPU does may be worth a lower rate, but not one that nobody saw.
    least = 0.0 if run.gpu_rate is not None else max(point.rate for point in measured)
    return (*measured, *(point for point in by_model if point.workers and point.rate >= least))


def _report_pipeline(run: Run, mode: str, pipeline: Pipeline) -> Report:
    host = run.measurer.host
    return Report(
        mode=mode,
        host=host,
        recommendation=of_pipeline(pipeline, run.gpu_rate, usable_cpus(host)),
        hazards=hazards.of_host(host),
        subject=run.measurer.subject,
        pipeline=pipeline,
        gpu_rate=run.gpu_rate,
        gpu_rate_from=run.gpu_rate_from,
        notes=(*run.notes, *_late(run)),
        seconds=time.monotonic() - run.began,
    )


def _late(run: Run) -> list[str]:
    """Return a sentence on the time taken, if it is clearly more than the budget."""
    seconds, given = time.monotonic() - run.began, run.wish.seconds
    if seconds <= given + _LATE_SECONDS:
        return []
    opening = run.measurer.opening_seconds
    why = (
        "each measurement waits for its first batches, and these, or starting processes, take long"
        " here"
    )
    if opening > _LATE_SECONDS:
        why = (
            f"each measurement opens {run.measurer.what} anew, which takes"
            f" {format_seconds(opening)} here, imports included"
        )
        if run.listing is None:
            why += (
                "; move what else its module does when it is imported below"
                " `if __name__ == '__main__':`"
            )
    return [f"this took {seconds:.0f} s instead of the {given:g} of --seconds: {why}"]


def modelled_points(run: Run, found_bounds: Sequence[Bound]) -> list[Point]:
    """Return the model's points for this run, if nothing was measured with workers."""
    assert run.cost is not None and run.curve is not None
    return modelled(
        run.curve,
        run.gpu_rate,
        capacity_cpus=run.measurer.host.capacity_per_rank,
        bounds=found_bounds,
        failed=run.failed,
        ceiling=without_others(run.ceiling, run.probes),
        distinct=run.distinct_untried(),
        handed_over=handed_over(run.cost) if run.transport is None else math.inf,
        error=_error_of_model(run, run.curve),
    )


def _error_of_model(run: Run, curve: Curve) -> float | None:
    """Return how far off the model may be, by everything that it was made from."""
    points = points_of(run.probes)
    rests_on = [point.relative_error for point in points]
    others = [others_beside(probe) for probe in run.probes]
    if run.transport is not None:
        rests_on.append(run.transport.relative_error)
    if run.stages is not None and (not points or curve.ceiling_from is Ceiling.STORAGE):
        rests_on.append(run.stages.relative_error)
        others.append(run.stages.others_cpus)
    return model_error(rests_on, max(others, default=0.0), run.measurer.host.measured_cpus)


def _data_bytes(run: Run) -> float | None:
    if run.listing is None or not run.listing.whole:
        return None
    return run.listing.mean_bytes * len(run.listing.names)
