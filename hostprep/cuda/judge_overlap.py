"""Whether copies and compute overlap: phi, its thresholds and its negative controls. Pure."""

from __future__ import annotations

from statistics import median

from hostprep.cuda.results import OWN, RUN_AGAIN, Check, Status, Threshold
from hostprep.cuda.traces import REPEATS, OverlapTrace, Trace

PHI_PASS, PHI_FAIL = 0.6, 0.2
PHI_MOST = 1.1  # 1 is a full overlap; the rest is noise
PHI_SAME_STREAM = 0.15
PHI_PAGEABLE = 0.3
CALL_HELD = 0.5
RATIO_LOW, RATIO_HIGH = 0.7, 1.5

_PHI = Threshold(f"phi >= {PHI_PASS}, {PHI_MOST} at most; below {PHI_FAIL} fails", OWN)
_REMEDY_OVERLAP = (
    "look for a profiler or debugger that serialises (CUDA_LAUNCH_BLOCKING=1,"
    " CUDA_DEVICE_MAX_CONNECTIONS=1), another process on the GPU, a virtual GPU without a copy"
    " engine of its own"
)


def phi(copy_seconds: float, compute_seconds: float, both_seconds: float) -> float:
    """Return which share of the shorter of copy and compute was hidden by the longer one.

    1 is perfect overlap, 0 none; noise may push it slightly beyond either end.
    """
    return (copy_seconds + compute_seconds - both_seconds) / min(copy_seconds, compute_seconds)


def phi_of(trace: OverlapTrace) -> float:
    """Return phi of the medians."""
    return phi(
        median(trace.copy_seconds), median(trace.compute_seconds), median(trace.both_seconds)
    )


def judge_overlaps(trace: Trace) -> list[Check]:
    """Return a check of each arrangement, including missing ones; none without any trace."""
    subject = trace.subject
    overlaps = {overlap.kind: overlap for overlap in trace.overlaps}
    if not overlaps:
        return []
    checks = [_same_stream(subject, overlaps.get("same_stream"))]
    trusted = checks[0].status is Status.PASS
    for kind in ("spin", "matmul", "prefetcher", "pageable"):
        if kind not in overlaps:
            if not trace.is_incomplete("overlap"):
                checks.append(_absent(subject, kind))
        elif kind == "pageable":
            checks.append(_pageable(subject, overlaps[kind]))
        else:
            checks.append(_overlap(subject, overlaps[kind], trusted))
    return checks


def _absent(subject: str, kind: str) -> Check:
    """Return a SKIP for an arrangement whose absence nothing explains."""
    name, words = f"overlap.{kind}", "nothing was recorded of it"
    return Check(name, subject, Status.SKIP, words, threshold=_PHI, remedy=RUN_AGAIN)


def _overlap(subject: str, trace: OverlapTrace, trusted: bool) -> Check:
    value = phi_of(trace)
    ratio = median(trace.compute_seconds) / median(trace.copy_seconds)
    remedy: str | None = RUN_AGAIN
    if not trusted:
        status, words = Status.ERROR, "its negative control failed, so this proves nothing"
    elif len(trace.both_seconds) < REPEATS:
        status = Status.INCONCLUSIVE
        words = f"only {len(trace.both_seconds)} of {REPEATS} repeats"
    elif not RATIO_LOW <= ratio <= RATIO_HIGH:
        status = Status.INCONCLUSIVE
        words = (
            f"compute took {ratio:.2f} times as long as the copy, not {RATIO_LOW} to {RATIO_HIGH}"
        )
    elif value > PHI_MOST:
        status, words = Status.INCONCLUSIVE, "more time was hidden than there was to hide"
    elif value >= PHI_PASS:
        status, words, remedy = Status.PASS, "copies and compute overlap", None
    elif value >= PHI_FAIL:
        status, words, remedy = Status.INCONCLUSIVE, "they overlap in part", _REMEDY_OVERLAP
    else:
        status, words, remedy = Status.FAIL, "copies and compute take turns", _REMEDY_OVERLAP
    what = {
        "spin": "a copy beside a spinning kernel",
        "matmul": "a copy beside matrix products",
        "prefetcher": "CudaPrefetcher beside a spinning kernel",
    }[trace.kind]
    return Check(
        f"overlap.{trace.kind}",
        subject,
        status,
        f"{what}: phi {value:z.2f}, {words}",
        measured=round(value, 4),
        unit="phi",
        threshold=_PHI,
        remedy=remedy,
    )


def _same_stream(subject: str, trace: OverlapTrace | None) -> Check:
    threshold = Threshold(f"|phi| < {PHI_SAME_STREAM}", f"{OWN}: one stream cannot overlap")
    name = "overlap.control"
    if trace is None:
        words = "the negative control is missing"
        return Check(name, subject, Status.ERROR, words, threshold=threshold, remedy=RUN_AGAIN)
    value = phi_of(trace)
    # Otherwise the times of the parts are too short, or those of both together too long. In either
    # case the other phis are too low, and would fail.
    holds = abs(value) < PHI_SAME_STREAM
    return Check(
        name,
        subject,
        Status.PASS if holds else Status.ERROR,
        f"negative control, both on one stream: phi {value:z.2f}"
        + ("" if holds else "; the times of its parts do not add up as those of one stream do"),
        measured=round(value, 4),
        unit="phi",
        threshold=threshold,
        remedy=None if holds else RUN_AGAIN,
    )


def _pageable(subject: str, trace: OverlapTrace) -> Check:
    value = phi_of(trace)
    share = median(trace.call_seconds) / median(trace.copy_seconds)
    holds = value < PHI_PAGEABLE or share >= CALL_HELD
    remedy = "none is needed: this machine copies pageable memory asynchronously (unified memory)"
    if value > PHI_MOST:  # more than there was to hide: its times contradict each other
        remedy = RUN_AGAIN
    return Check(
        "overlap.pageable",
        subject,
        Status.PASS if holds else Status.WARN,
        f"negative control, memory that is not page-locked: phi {value:z.2f}, the host was held up"
        f" for {share:.0%} of the copy",
        measured=round(value, 4),
        unit="phi",
        threshold=Threshold(f"phi < {PHI_PAGEABLE}, or the host held up for {CALL_HELD:.0%}", OWN),
        remedy=None if holds else remedy,
    )
