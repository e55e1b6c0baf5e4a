"""What a short end-to-end training says about loader, bus and step. Pure."""

from __future__ import annotations

from hostprep.cuda.results import Check, Status, Threshold
from hostprep.cuda.traces import TrainingTrace

WAIT_SHARE = 0.05
END_TO_END = 0.9


def judge_training(subject: str, trace: TrainingTrace) -> list[Check]:
    """Return the checks of a short training: its rate compared with its parts, and its waits."""
    # Until the prefetcher is ahead, an epoch waits, and no prefetching hides that. Our epochs are
    # so short that this is a tenth of them, and more with more workers; a real training's are not.
    first = trace.first_batch_seconds
    parts = {
        "the loader alone": trace.loader_samples_per_s,
        "the step alone, once the prefetcher is ahead": trace.samples
        / (first + trace.samples / trace.step_samples_per_s),
        "the bus": trace.bus_samples_per_s,
    }
    slowest = min(parts, key=lambda name: parts[name])
    share = trace.samples_per_s / parts[slowest]
    enough = share >= END_TO_END
    waited = trace.gaps_seconds / (trace.seconds - first)
    launching = trace.resident_gaps_seconds / trace.resident_seconds
    wait = max(0.0, waited - launching)
    return [
        Check(
            "training.rate",
            subject,
            Status.PASS if enough else Status.INCONCLUSIVE,
            f"end to end from {trace.storage}: {trace.samples_per_s:,.0f} samples/s, {share:.0%} of"
            f" the slowest part ({slowest}, {parts[slowest]:,.0f})",
            measured=round(share, 4),
            unit="share",
            threshold=Threshold(f">= {END_TO_END:.0%}", "MLPerf Storage: utilisation of 0.90"),
            remedy=None if enough else "run it again on a quiet machine; `hostprep recommend`",
        ),
        Check(
            "training.wait",
            subject,
            Status.PASS if wait < WAIT_SHARE else Status.WARN,
            f"the GPU waited for data for {wait:.1%} of the time (idle {waited:.1%}, of it"
            f" {launching:.1%} also without any loading)",
            measured=round(wait, 4),
            unit="share",
            threshold=Threshold(f"< {WAIT_SHARE:.0%}", "xprof: under 5% is not input-bound"),
            remedy=None
            if wait < WAIT_SHARE
            else "`hostprep recommend` for the workers, `hostprep probe` and `hostprep stage` for"
            " the storage; a step that computes more waits less",
        ),
    ]
