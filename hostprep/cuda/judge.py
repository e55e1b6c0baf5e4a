"""The verdict's mathematics: a trace in, checks out. Pure; every threshold with its source."""

from __future__ import annotations

from statistics import median

from hostprep.cuda.judge_device import failing_copies, is_disturbed, judge_bandwidth, judge_device
from hostprep.cuda.judge_training import judge_training
from hostprep.cuda.results import Check, Status, Threshold
from hostprep.cuda.traces import (
    ControlTrace,
    DeliveryTrace,
    EpochTrace,
    OverlapTrace,
    Trace,
)
from hostprep.units import MIB

PHI_PASS, PHI_FAIL = 0.6, 0.2
PHI_SAME_STREAM = 0.15
PHI_PAGEABLE = 0.3
CALL_PASS, CALL_FAIL = 0.1, 0.5
RATIO_LOW, RATIO_HIGH = 0.7, 1.5
REPEATS = 7
EPOCHS = 5
GROWTH_BYTES = 2 * MIB

_OWN = "hostprep's own, see docs/prefetching.md"
_STAGES = Threshold("every stage is carried out", "hostprep: what was not tested is no pass")
_AGAIN = "run it again on a quiet machine; report it if it stays"
_PHI = Threshold(f"phi >= {PHI_PASS}; below {PHI_FAIL} fails", _OWN)
_REMEDY_OVERLAP = (
    "look for a profiler or debugger that serialises (CUDA_LAUNCH_BLOCKING=1,"
    " CUDA_DEVICE_MAX_CONNECTIONS=1), another process on the GPU, a virtual GPU without a copy"
    " engine of its own"
)


def phi(copy_seconds: float, compute_seconds: float, both_seconds: float) -> float:
    """Return the share of the shorter of copy and compute that the other one hid.

    1 is perfect overlap, 0 none; noise may carry it a little over either end.
    """
    return (copy_seconds + compute_seconds - both_seconds) / min(copy_seconds, compute_seconds)


def phi_of(trace: OverlapTrace) -> float:
    """Return phi of the medians."""
    return phi(
        median(trace.copy_seconds), median(trace.compute_seconds), median(trace.both_seconds)
    )


def judge(trace: Trace) -> tuple[Check, ...]:
    """Return the checks of one device's run; what was not reached is a SKIP with its reason."""
    subject = trace.subject
    checks: list[Check] = []
    missing = dict(trace.missing)
    checks += judge_device(trace)
    if trace.copies:
        checks += [judge_bandwidth(trace), _call(trace)]
    overlaps = {overlap.kind: overlap for overlap in trace.overlaps}
    checks += _overlaps(subject, overlaps)
    if trace.deliveries:
        checks += [_delivery(subject, delivery) for delivery in trace.deliveries]
        checks += [_control(subject, control) for control in trace.controls]
    if trace.epochs:
        checks.append(_flat(subject, trace.epochs))
    if trace.training is not None:
        checks += judge_training(subject, trace.training)
    if is_disturbed(trace):
        checks = [_while_busy(check) for check in checks]
    there = {
        "device": trace.device,
        "copies": trace.copies,
        "overlap": trace.overlaps,
        "delivery": trace.deliveries,
        "flatness": trace.epochs,
        "training": trace.training,
    }
    for stage, why in trace.failed:
        checks.append(
            Check(
                f"stage.{stage}",
                subject,
                Status.ERROR,
                f"broke off: {why}",
                threshold=_STAGES,
                remedy="dmesg | grep -iE 'nvrm|xid' says what the driver saw; run it once more",
            )
        )
        there.pop(stage)
    for stage, found in there.items():
        if stage in missing or not found:
            why = missing.get(stage, "the trace has nothing of it")
            words = f"not (or not all) carried out: {why}"
            again = "run it again" + (" without --quick" if trace.quick else ", on a quiet machine")
            checks.append(
                Check(
                    f"stage.{stage}",
                    subject,
                    Status.SKIP,
                    words,
                    threshold=_STAGES,
                    remedy=f"see what its reason asks for, and {again}",
                )
            )
    return tuple(checks)


def _overlaps(subject: str, overlaps: dict[str, OverlapTrace]) -> list[Check]:
    if not overlaps:
        return []
    checks = [_same_stream(subject, overlaps.get("same_stream"))]
    trusted = checks[0].status is Status.PASS
    for kind in ("spin", "matmul", "prefetcher"):
        if kind in overlaps:
            checks.append(_overlap(subject, overlaps[kind], trusted))
    if "pageable" in overlaps:
        checks.append(_pageable(subject, overlaps["pageable"]))
    return checks


def _overlap(subject: str, trace: OverlapTrace, trusted: bool) -> Check:
    value = phi_of(trace)
    ratio = median(trace.compute_seconds) / median(trace.copy_seconds)
    remedy: str | None = _AGAIN
    if not trusted:
        status, words = Status.ERROR, "its negative control does not hold, so this says nothing"
    elif len(trace.both_seconds) < REPEATS:
        status = Status.INCONCLUSIVE
        words = f"only {len(trace.both_seconds)} of {REPEATS} repeats"
    elif not RATIO_LOW <= ratio <= RATIO_HIGH:
        status = Status.INCONCLUSIVE
        words = f"compute took {ratio:.2f} of the copy, not {RATIO_LOW} to {RATIO_HIGH} of it"
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
        f"{what}: phi {value:.2f}, {words}",
        measured=round(value, 4),
        unit="phi",
        threshold=_PHI,
        remedy=remedy,
    )


def _same_stream(subject: str, trace: OverlapTrace | None) -> Check:
    threshold = Threshold(f"phi < {PHI_SAME_STREAM}", f"{_OWN}: one stream cannot overlap")
    name = "overlap.control"
    if trace is None:
        words = "the negative control is missing"
        return Check(name, subject, Status.ERROR, words, threshold=threshold, remedy=_AGAIN)
    value = phi_of(trace)
    holds = value < PHI_SAME_STREAM
    return Check(
        name,
        subject,
        Status.PASS if holds else Status.ERROR,
        f"negative control, both on one stream: phi {value:.2f}"
        + ("" if holds else "; the instrument sees overlap where there can be none"),
        measured=round(value, 4),
        unit="phi",
        threshold=threshold,
        remedy=None if holds else _AGAIN,
    )


def _pageable(subject: str, trace: OverlapTrace) -> Check:
    value = phi_of(trace)
    share = median(trace.call_seconds) / median(trace.copy_seconds)
    holds = value < PHI_PAGEABLE or share >= CALL_FAIL
    return Check(
        "overlap.pageable",
        subject,
        Status.PASS if holds else Status.WARN,
        f"negative control, memory that is not page-locked: phi {value:.2f}, the host was held for"
        f" {share:.0%} of the copy",
        measured=round(value, 4),
        unit="phi",
        threshold=Threshold(f"phi < {PHI_PAGEABLE}, or the host held for {CALL_FAIL:.0%}", _OWN),
        remedy=None
        if holds
        else "none is needed: this machine copies pageable memory asynchronously (unified memory)",
    )


def _call(trace: Trace) -> Check:
    """Judge how soon a pinned copy's call returns, by the copies of 5 ms and so, or the longest."""
    point = max(trace.copies, key=lambda point: point.size_bytes)
    share = point.call_seconds / point.seconds
    status = Status.PASS if share < CALL_PASS else Status.INCONCLUSIVE
    if share >= CALL_FAIL:
        status = failing_copies(trace)
    return Check(
        "copy.call",
        trace.subject,
        status,
        f"the call of a pinned copy of {point.size_bytes // MIB} MiB returns after {share:.1%} of"
        " the copy's time",
        measured=round(share, 5),
        unit="share",
        threshold=Threshold(f"< {CALL_PASS:.0%}; {CALL_FAIL:.0%} fails", _OWN),
        remedy=None
        if status is Status.PASS
        else "unset CUDA_LAUNCH_BLOCKING; see that the host has memory free to page-lock",
    )


def _delivery(subject: str, trace: DeliveryTrace) -> Check:
    if trace.mismatches is None:
        status, words = Status.FAIL, f"failed: {trace.problem}"
    elif trace.mismatches:
        status, words = Status.FAIL, f"{trace.mismatches} of {trace.values} values are wrong"
    elif trace.batches != trace.expected_batches:
        status = Status.FAIL
        words = f"{trace.batches} batches came, {trace.expected_batches} were sent"
    else:
        status, words = Status.PASS, f"{trace.batches} batches, {trace.values} values, all right"
    return Check(
        f"delivery.{trace.case}",
        subject,
        status,
        words,
        measured=trace.mismatches,
        unit="wrong values",
        threshold=Threshold("0 wrong values, every batch in its place", "bit for bit"),
        remedy=None
        if status is Status.PASS
        else "do not train on this machine; run `hostprep verify` again, then test the GPU's and"
        " the host's memory (dcgmi diag -r 3, memtest86+), and report it with --json",
    )


def _control(subject: str, trace: ControlTrace) -> Check:
    fired = trace.mismatches > 0
    return Check(
        f"delivery.control.{trace.mutant}",
        subject,
        Status.PASS if fired else Status.WARN,
        f"a prefetcher broken on purpose ({trace.mutant}) was "
        + (f"caught: {trace.mismatches} wrong values" if fired else "not provoked, not shown safe"),
        measured=trace.mismatches,
        unit="wrong values",
        threshold=Threshold("> 0: the test can see this fault", _OWN),
        remedy=None if fired else "run it again without --quick on a quiet machine",
    )


def _flat(subject: str, epochs: tuple[EpochTrace, ...]) -> Check:
    threshold = Threshold(
        f"from epoch 2 to {EPOCHS}: no thread, no descriptor, at most"
        f" {GROWTH_BYTES // MIB} MiB of device memory more",
        f"{_OWN}; 2 MiB is the allocator's smallest segment",
    )
    if len(epochs) < EPOCHS:
        return Check(
            "epochs.flat",
            subject,
            Status.INCONCLUSIVE,
            f"only {len(epochs)} of {EPOCHS} epochs were run",
            measured=len(epochs),
            unit="epochs",
            threshold=threshold,
            remedy=_AGAIN,
        )
    second, last = epochs[1], epochs[-1]
    grown = last.reserved_bytes - second.reserved_bytes
    threads, descriptors = last.threads - second.threads, last.descriptors - second.descriptors
    flat = grown <= GROWTH_BYTES and threads <= 0 and descriptors <= 0
    return Check(
        "epochs.flat",
        subject,
        Status.PASS if flat else Status.FAIL,
        f"from epoch 2 to {len(epochs)}: {grown / MIB:+.1f} MiB reserved, {threads:+d} threads,"
        f" {descriptors:+d} descriptors",
        measured=grown,
        unit="bytes",
        threshold=threshold,
        remedy=None if flat else "report it with --json: the prefetcher or torch leaks here",
    )


_TIMED = ("copy.", "overlap.", "training.")


def _while_busy(check: Check) -> Check:
    """Return a check that was timed beside another program's load: its failure decides nothing.

    That of a negative control neither: by its times the instrument is broken, or was disturbed.
    """
    failed = check.status in (Status.FAIL, Status.ERROR) and check.measured is not None
    if not failed or not check.name.startswith(_TIMED):
        return check
    return Check(
        check.name,
        check.subject,
        Status.INCONCLUSIVE,
        f"{check.message} (the GPU was busy with something else)",
        check.measured,
        check.unit,
        check.threshold,
        "run it again when nobody else uses the GPU",
    )
