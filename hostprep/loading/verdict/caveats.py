"""What to bear in mind about the figures of a recommendation; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hostprep.loading.files.model import Stages
from hostprep.loading.measuring.disturbance import MUCH_SHARE, others_beside
from hostprep.loading.model import Batching, HostShare, Probe, SampleCost, Subject
from hostprep.loading.naming import with_so_many
from hostprep.units import format_count, format_number

# A cold read that takes this many times as long is worth mentioning.
_MUCH_COLDER = 3.0
# From this relative difference on, a batch's rows are not the samples drawn for it.
_OTHER_ROWS = 0.05


def caveats_of(
    host: HostShare,
    subject: Subject | None,
    stages: Stages | None,
    cost: SampleCost,
    probes: Sequence[Probe],
    *,
    batch_size_given: bool,
    seen_before: bool,
) -> tuple[str, ...]:
    """Return, in sentences, what makes the figures less certain or true only for the moment.

    ``batch_size_given``: the user said how many samples a batch holds. ``seen_before``: some
    samples were read more than once.
    """
    notes = []
    if disturbed := [probe for probe in probes if probe.disturbed]:
        worst = max(disturbed, key=lambda probe: probe.others_cpus)
        notes.append(
            f"other programs took up to {worst.others_cpus:.1f} processors while the loader was"
            f" timed: beside them it gave {format_number(worst.samples_per_s)} samples/s"
            f" {with_so_many(worst.workers)}, and alone it would give an estimated"
            f" {format_number(worst.undisturbed_samples_per_s)}; the rates here are such estimates,"
            " and less certain"
        )
    elif note := _beside(host, stages, probes):
        notes.append(note)
    in_memory = stages is not None and stages.storage == "ram"
    if stages is not None and not in_memory:
        as_is, cold = (stages.stage(name).seconds for name in ("read_as_is", "read_cold"))
        if cold > _MUCH_COLDER * as_is:
            notes.append(
                f"the files came from the page cache, at {format_number(1e3 * as_is)} ms each; from"
                f" the storage a file takes {format_number(1e3 * cold)} ms, and so will all that do"
                " not fit into memory"
            )
    notes += _of_batches(subject, cost, probes, batch_size_given=batch_size_given)
    if seen_before and not in_memory:
        stream = subject is not None and subject.kind == "stream"
        why = "is a stream, which begins anew each time" if stream else "is small"
        notes.append(
            f"the data set {why}: some samples were read more than once, and may have come from the"
            " page cache, or from a cache of the data set's own"
        )
    if host.ranks > 1:
        notes.append(
            f"measured as one of {host.ranks} ranks, on {_share_of(host)}; the ranks'"
            " contention for the storage is not in the figures"
        )
    return tuple(notes)


def _of_batches(
    subject: Subject | None, cost: SampleCost, probes: Sequence[Probe], *, batch_size_given: bool
) -> Iterator[str]:
    """Yield what is uncertain about the loader's batches: what a sample in them is, and whose."""
    if subject is not None and subject.batching == Batching.DATASET and not batch_size_given:
        yield (
            "the data set makes the batches itself, of"
            f" {format_count(cost.batch_size, 'sample')} as it seems: if that is wrong, give"
            " --batch-size"
        )
    by_itself = subject is not None and subject.current_workers is None  # no DataLoader knows
    if by_itself and (cost.rows_within or 0) > 1:
        yield (
            f"each item of the data set looks like a batch of {cost.rows_within} samples, but"
            " counts as one sample here: if it is a batch, name a DataLoader of the data set with"
            " batch_size=None"
        )
    if cost.rows is not None and abs(cost.rows - 1) > _OTHER_ROWS:
        yield (
            f"batches have {format_number(cost.rows)} rows for each sample that is drawn, as when"
            " collate_fn leaves some out, or makes several of one: all rates here, and --gpu-rate,"
            " count the samples drawn from the data set"
        )
    if any(probe.untold_workers > 1 for probe in probes):
        yield (
            "the batches of this stream are all alike, or cannot be inspected, so hostprep cannot"
            " tell whether its workers divide it among them: unless its __iter__ asks"
            " get_worker_info(), each worker delivers all of it, and more workers only seem faster"
        )


def _beside(host: HostShare, stages: Stages | None, probes: Sequence[Probe]) -> str | None:
    """Return a sentence on busy programs that no rate was corrected for, if there were any."""
    others = [others_beside(probe) for probe in probes]
    others += [] if stages is None else [stages.others_cpus]
    most = max(others, default=0.0)
    if most < MUCH_SHARE * host.measured_cpus:
        return None
    return (
        f"other programs took up to {most:.1f} of {format_count(host.measured_cpus, 'processor')}"
        " during the measurement: without them the loader may be faster"
    )


def _share_of(host: HostShare) -> str:
    """Return in words which processors a rank was measured on."""
    share, had = host.processors_per_rank, host.measured_cpus
    if share < had:
        return f"a whole processor, and scaled down to its share of {share:.2g}"
    if share > had:
        return f"{had} of its share of {share:.3g} processors, so it may give more"
    return "its share of the processors"
