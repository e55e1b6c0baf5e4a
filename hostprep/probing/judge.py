"""What the numbers mean: the class, the epoch, the verdict. Pure."""

from __future__ import annotations

from hostprep.probing.behaviour import what_it_is
from hostprep.probing.contradictions import contradictions, holes, is_sparse
from hostprep.probing.epoch import predict, predict_large
from hostprep.probing.judgement import Epoch, Judgement, Need, Reason, Remedy, Verdict
from hostprep.probing.model import Measured
from hostprep.probing.rates import PASS_SHARE, compare, is_certain, rates_of
from hostprep.probing.remedies import remedies
from hostprep.units import format_count


def judge(measured: Measured, need: Need | None) -> Judgement:
    """Draw the conclusions from a measurement."""
    invalid = contradictions(measured)
    behaviour, found = what_it_is(measured, invalid)
    epoch, epoch_note = _epoch(measured)
    ratio = None
    if measured.small is not None and measured.sequential is not None:
        ratio = measured.small.best.bytes_per_s / measured.sequential.bytes_per_s

    judged = compare(rates_of(measured), need) if need else None
    if need and judged is None:
        text = "what the requirement asks for was not measured"
        if measured.dataset.large_files and need.bytes_per_s is None:
            text = "how many samples the shards here hold is not known: require bytes a second"
        invalid = (*invalid, Reason("not_measured", text))
    if judged is None:
        verdict = Verdict.INVALID if invalid else Verdict.MEASURED
    elif not is_certain(judged, [(reason.code, reason.of) for reason in invalid]):
        verdict = Verdict.INVALID
    else:
        verdict = Verdict.PASS if judged.share >= PASS_SHARE else Verdict.FAIL
    ways_out: tuple[Remedy, ...] = ()
    if verdict is Verdict.FAIL and need and judged:
        ways_out = remedies(measured, behaviour, need, judged)
    return Judgement(
        storage_class=found.storage_class,
        behaviour=behaviour,
        agrees=found.agrees,
        class_reason=found.reason,
        ratio=ratio,
        epoch=epoch,
        epoch_note=epoch_note,
        invalid=invalid,
        verdict=verdict,
        judged=judged,
        remedies=ways_out,
    )


def _epoch(measured: Measured) -> tuple[Epoch | None, str | None]:
    """Return the predicted epoch, or why there is none."""
    dataset, small, sequential = measured.dataset, measured.small, measured.sequential
    if not dataset.complete:
        return None, f"more than {dataset.files:,} files: there was no time to count them all"
    if small is not None and small.source == "dataset" and dataset.files:
        if is_sparse(measured):
            return None, f"{holes(measured)}, and time that was not measured"
        return predict(dataset, small, measured.memory_bytes, sequential), None
    if dataset.large_files and dataset.hole_bytes == dataset.size_bytes:
        return None, f"{holes(measured)}, and time that was not measured"
    if dataset.large_files and sequential is not None:
        return predict_large(dataset, sequential, measured.memory_bytes), None
    links = ""
    if dataset.links > dataset.files:
        links = (
            f", and {format_count(dataset.links, 'symbolic link')} to elsewhere: probe the folder"
            " that they lead to"
        )
    if dataset.files:
        return None, f"too few of the files under the path were read for that{links}"
    return None, f"there is no data set under the path{links}"
