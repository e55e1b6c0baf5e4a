"""The verdict's mathematics: from a trace to checks. Pure; every threshold has its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hostprep.cuda.judge_delivery import judge_delivery
from hostprep.cuda.judge_device import failing_copies, is_disturbed, judge_bandwidth, judge_device
from hostprep.cuda.judge_overlap import judge_overlaps
from hostprep.cuda.judge_training import judge_training
from hostprep.cuda.results import OWN, RUN_AGAIN, Check, Status, Threshold
from hostprep.cuda.torch_errors import cure_for_the_host
from hostprep.cuda.traces import EPOCHS, EpochTrace, Trace
from hostprep.units import MIB, format_bytes

CALL_PASS, CALL_FAIL = 0.1, 0.5
GROWTH_BYTES = 2 * MIB

# The prefixes of checks of times.
_TIMED = ("copy.", "overlap.", "training.")
_STAGES = Threshold("every stage is carried out", "hostprep: what was not tested has not passed")


def judge(trace: Trace) -> tuple[Check, ...]:
    """Return the checks of one device's run; what was not reached is a SKIP with its reason."""
    checks = judge_device(trace)
    if trace.copies:
        checks += [judge_bandwidth(trace), _call(trace)]
    checks += judge_overlaps(trace)
    checks += judge_delivery(trace)
    if trace.epochs:
        checks.append(_flat(trace.subject, trace.epochs))
    if trace.training is not None:
        checks += judge_training(trace.subject, trace.training)
    if is_disturbed(trace):
        checks = [_while_busy(check) for check in checks]
    return (*checks, *_not_all(trace))


def _not_all(trace: Trace) -> Iterator[Check]:
    """Yield the checks for stages that broke off, were left out, or are not in the trace."""
    missing = dict(trace.missing)
    there = {
        "device": trace.device,
        "copies": trace.copies,
        "overlap": trace.overlaps,
        "delivery": trace.deliveries,
        "flatness": trace.epochs,
        "training": trace.training,
    }
    for stage, why in trace.failed:
        yield Check(
            f"stage.{stage}",
            trace.subject,
            Status.ERROR,
            f"broke off: {why}",
            threshold=_STAGES,
            remedy="dmesg | grep -iE 'nvrm|xid' says what the driver saw; run it once more",
        )
        there.pop(stage)
    for stage, found in there.items():
        if found and stage not in missing:
            continue
        why = missing.get(stage, "nothing was recorded of it")
        again = "run it again" + (" without --quick" if trace.quick else ", on a quiet machine")
        cure = cure_for_the_host(why)
        yield Check(
            f"stage.{stage}",
            trace.subject,
            Status.SKIP,
            f"not carried out, or not to its end: {why}",
            threshold=_STAGES,
            remedy=again if cure is None else f"{cure}; {again}",
        )


def _call(trace: Trace) -> Check:
    """Judge how soon the call of a copy returns, by the largest pinned copy of the sweep."""
    point = max(trace.copies, key=lambda point: point.size_bytes)
    share = point.call_seconds / point.seconds
    status = Status.PASS if share < CALL_PASS else Status.INCONCLUSIVE
    if share >= CALL_FAIL:
        status = failing_copies(trace)
    return Check(
        "copy.call",
        trace.subject,
        status,
        f"the call that starts a copy of {format_bytes(point.size_bytes)} from pinned memory"
        f" returns after {share:.1%} of the copy's time",
        measured=round(share, 5),
        unit="share",
        threshold=Threshold(f"< {CALL_PASS:.0%}; {CALL_FAIL:.0%} fails", OWN),
        remedy=None
        if status is Status.PASS
        else "unset CUDA_LAUNCH_BLOCKING; make sure that the host has free memory to page-lock",
    )


def _flat(subject: str, epochs: tuple[EpochTrace, ...]) -> Check:
    threshold = Threshold(
        f"from epoch 2 to {EPOCHS}: no more threads, no more descriptors, at most"
        f" {GROWTH_BYTES // MIB} MiB more device memory",
        f"{OWN}; 2 MiB is the allocator's smallest segment",
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
            remedy=RUN_AGAIN,
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


def _while_busy(check: Check) -> Check:
    """Return a check that was timed beside another program's load: its failure decides nothing.

    Neither does a negative control: its times show that the test is broken, or was disturbed.
    """
    failed = check.status in (Status.FAIL, Status.ERROR) and check.measured is not None
    if not failed or not check.name.startswith(_TIMED):
        return check
    return replace(
        check,
        status=Status.INCONCLUSIVE,
        message=f"{check.message} (others may have been at work on the GPU)",
        remedy="run it again when nobody else uses the GPU",
    )
