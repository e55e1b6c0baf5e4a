"""What to say about a loader's one-time work, in no rate: opening, reading an index; pure."""

from __future__ import annotations

from collections.abc import Sequence

from hostprep.loading.model import Probe, Subject
from hostprep.loading.naming import with_so_many
from hostprep.loading.recommendation import Recommendation
from hostprep.units import format_number, format_seconds

# Starting many workers takes a second or two, and so do a first read and an import.
_LEAST_SECONDS = 3.0
# Share of an epoch at the reported rate: less is not worth mentioning.
_LEAST_SHARE = 0.05


def notes_of_once(
    made: Recommendation,
    probes: Sequence[Probe],
    subject: Subject | None,
    epoch_seconds: float | None,
) -> tuple[str, ...]:
    """Return, in sentences, what comes before the rate, and when the rate was not steady yet.

    ``epoch_seconds`` is what an epoch takes at that rate, None if that is not known.
    """
    notes = []
    once = min((p.once_seconds for p in probes if p.workers == made.num_workers), default=0.0)
    if once >= max(_LEAST_SECONDS, _LEAST_SHARE * (epoch_seconds or 0.0)):
        beside = ""
        if epoch_seconds is not None:
            beside = f" (an epoch then takes {format_seconds(epoch_seconds)})"
        notes.append(
            f"{with_so_many(made.num_workers or 0)} it takes {format_seconds(once)}, not counting"
            f" the samples, until that rate is reached{beside}: no rate here includes the start and"
            f" what is opened or read once{_how_often(made, subject)}"
        )
    # If other programs played a part, the reason may just be that they ended.
    warming = [probe for probe in probes if probe.warming and not probe.disturbed]
    if warming:
        slowest = min(warming, key=lambda probe: probe.workers)
        notes.append(
            f"{with_so_many(slowest.workers)} it was still getting faster when its time was over,"
            f" at {format_number(slowest.samples_per_s)} samples/s: it seems to keep what it reads,"
            " and then gives more in the long run: give it more time with --seconds"
        )
    return tuple(notes)


def _how_often(made: Recommendation, subject: Subject | None) -> str:
    """Return in words when that happens again."""
    if subject is not None and subject.kind == "stream":
        return "; what a stream's __iter__ does is done in every epoch"
    if not made.num_workers:
        return ""
    if made.persistent_workers:
        return "; with persistent_workers=True it happens only once"
    return "; it happens in every epoch, because without persistent_workers each starts new workers"
