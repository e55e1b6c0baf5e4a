"""Whether each value arrived, and whether the test would have noticed if not. Pure."""

from __future__ import annotations

from hostprep.cuda.results import OWN, Check, Status, Threshold
from hostprep.cuda.traces import ControlTrace, DeliveryTrace, Trace


def judge_delivery(trace: Trace) -> list[Check]:
    """Return the checks of what was delivered; none if nothing was."""
    if not trace.deliveries:
        return []
    checks = [_delivery(trace.subject, delivery) for delivery in trace.deliveries]
    checks += [_control(trace.subject, control) for control in trace.controls]
    if not any(control.mismatches for control in trace.controls) and (
        trace.controls or not trace.is_incomplete("delivery")
    ):
        checks.append(_unseen(trace))
    return checks


def _unseen(trace: Trace) -> Check:
    """Return the check for when none of the deliberate faults was seen.

    One or another may have no effect: because of the memory that the allocator chose, or if the
    host takes longer for a batch than its copy is late. If none has an effect, streams may not run
    in parallel at all; that no fault of the prefetcher itself was seen then proves nothing.
    """
    tried = len(trace.controls)
    return Check(
        "delivery.control",
        trace.subject,
        Status.INCONCLUSIVE if tried else Status.SKIP,
        f"none of {tried} deliberate faults was seen, so it is not shown that this test sees any"
        if tried
        else "nothing was recorded of it",
        measured=0 if tried else None,
        unit="faults seen" if tried else None,
        threshold=Threshold("at least 1 of the faults is seen", OWN),
        remedy="look at overlap.*: if nothing overlaps, nothing can go wrong; run it again"
        " on a quiet machine",
    )


def _delivery(subject: str, trace: DeliveryTrace) -> Check:
    if trace.mismatches is None:
        status, words = Status.FAIL, f"failed: {trace.problem}"
    elif trace.mismatches:
        status, words = Status.FAIL, f"{trace.mismatches:,} of {trace.values:,} values are wrong"
    elif trace.batches != trace.expected_batches:
        status = Status.FAIL
        words = f"{trace.batches} batches came, {trace.expected_batches} were sent"
    else:
        status = Status.PASS
        words = f"{trace.batches} batches; {trace.values:,} values compared, all right"
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
        f"a deliberately broken prefetcher ({trace.mutant}) was "
        + (
            f"caught: {trace.mismatches:,} wrong values"
            if fired
            else "not caught: its fault did not occur in this run"
        ),
        measured=trace.mismatches,
        unit="wrong values",
        threshold=Threshold("> 0: the test can see this fault", OWN),
        remedy=None if fired else "run it again on a quiet machine",
    )
