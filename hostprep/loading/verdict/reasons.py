"""Why the recommendation is as it is, in sentences; pure."""

from __future__ import annotations

from typing import NamedTuple

from hostprep.loading.bounds import PROBE_PREFETCH
from hostprep.loading.model import Binding, SampleCost
from hostprep.loading.search import STOP_GAIN, Point
from hostprep.loading.verdict.binding import what_binds
from hostprep.loading.verdict.known import Known
from hostprep.units import format_count, format_number

# Share of a sample's time without workers: less is not worth mentioning.
_MAIN_SHARE = 0.02
# Share of a sample's processor time: two clocks differ by as much as that.
_HARDLY = 0.001
# If the user measures on a login node, say, the line is pasted where a GPU trains.
NO_GPU = "no GPU is visible here; set True where you train on one"


class Choice(NamedTuple):
    """Whether to set something, and why; no reason is given if it is obvious."""

    on: bool
    why: str | None


def reasons_of(
    known: Known,
    point: Point,
    ahead: int | None,
    *,
    persistent: Choice,
    pin: Choice,
    change: bool | None,
) -> tuple[str, ...]:
    """Return, in sentences, why so many workers, and why each other setting is as it is."""
    cost = known.cost
    shared = f", shared by {known.host.ranks} ranks" if known.host.ranks > 1 else ""
    reasons = [
        f"a sample takes {time_taken(cost)}",
        f"processors per rank: {known.host.capacity_per_rank:.3g} ({known.host.cpus_from}{shared})",
    ]
    reasons += _side_by_side(known)
    reasons += _own_way(known)
    if change is not False:  # a user who has set that many knows why
        reasons += _beyond_processors(known, point)
    if point.workers and known.ahead < PROBE_PREFETCH:
        reasons.append(
            f"prefetch_factor={known.ahead}: with the usual {PROBE_PREFETCH}, fewer workers fit"
        )
    elif known.subject is not None and known.subject.current_workers and ahead:
        now = known.subject.prefetch_now
        if ahead != now:  # also if the verdict says that no other number of workers is needed
            varies = "how much the time of batches varies"
            reasons.append(f"prefetch_factor: {now} now, {ahead} given {varies}")
    reasons += _against_none(known, point)
    subject = known.subject
    if point.workers:
        living_on = None if subject is None else subject.current_persistent
        reasons += _of_choice("persistent_workers", persistent, living_on)
    reasons += _of_choice("pin_memory", pin, None if subject is None else subject.current_pin)
    return tuple(reasons)


def _of_choice(name: str, choice: Choice, now: bool | None) -> list[str]:
    """Return why something is to be set, or no longer set; ``now`` is its present value."""
    if now not in (None, choice.on):
        # Also if the verdict says that no other number of workers is needed.
        return [f"{name}: {now} now, {choice.on} because {choice.why}"]
    if not choice.why or (now is False and not choice.on):
        return []
    return [f"{name}: {choice.why}" if choice.on else f"{name}: False because {choice.why}"]


def _side_by_side(known: Known) -> list[str]:
    """Return a sentence on what several readers got from the storage, if that was measured."""
    seen = None if known.stages is None else known.stages.side_by_side
    if known.stages is None or seen is None:
        return []
    alone = format_number(1 / known.stages.stage("read_as_is").seconds)
    got = format_number(seen.files_per_s)
    return [f"{seen.readers} readers at once got {got} files/s from the storage, one got {alone}"]


def _own_way(known: Known) -> list[str]:
    """Return a sentence on what a user's DataLoader class does with its batches."""
    subject = known.subject
    if subject is None or not subject.own_iteration:
        return []
    own = f"{subject.own_class} iterates over its batches in its own way"
    if any(probe.own_way for probe in known.probes):
        share = known.cost.main_seconds / known.cost.seconds
        if share < _MAIN_SHARE:
            return []
        each = f"{format_number(1e3 * known.cost.main_seconds)} ms per sample"
        return [f"{own}: that takes {each} in the main process, with any num_workers"]
    why = f" ({subject.own_way_problem})" if subject.own_way_problem else ""
    return [f"{own}: what it does on top of a DataLoader is not in these rates{why}"]


def _beyond_processors(known: Known, point: Point) -> list[str]:
    """Return a sentence on more workers than processors: every rule of thumb warns of that."""
    processors = known.host.processors_per_rank
    if point.workers <= processors:
        return []
    why = "while one waits, or hands over a batch, another uses its processor"
    within = [p for p in known.points if 0 < p.workers <= processors]
    if within:
        best = max(within, key=lambda p: p.rate)
        why += f"; {format_count(best.workers, 'worker')} gave {format_number(best.rate)} samples/s"
    torch = ", which torch warns about" if point.workers > known.host.affinity_cpus else ""
    return [f"more workers than processors ({processors:.3g}){torch}: {why}"]


def _against_none(known: Known, point: Point) -> list[str]:
    """Return a sentence on the rates with and without workers, if they are close."""
    binding = what_binds(known, point)
    alone = next((p for p in known.points if p.workers == 0), None)
    tried = [p for p in known.points if p.workers]
    if alone is None or not tried or binding is Binding.SHARDING:
        return []
    best = max(tried, key=lambda p: p.rate) if point.workers == 0 else point
    words = (
        f"{format_count(best.workers, 'worker')} gave {format_number(best.rate)} samples/s,"
        f" num_workers=0 gave {format_number(alone.rate)}"
    )
    if point.workers == 0:
        ready = ": samples need almost no work" if binding is Binding.TRANSPORT else ""
        return [f"{words}{ready}", *_unless_slower(known, alone.rate, best)]
    if known.gpu_rate is None and best.rate <= (1 + STOP_GAIN) * alone.rate:
        waits = "but without workers the GPU waits while each batch is made"
        return [f"{words}, {waits}{_unless_quicker(alone.rate, best.rate)}"]
    return []


def _unless_slower(known: Known, alone: float, best: Point) -> list[str]:
    """Return a sentence on how slow a GPU must be for workers to be better than none after all."""
    if known.gpu_rate is not None or alone <= best.rate:
        return []
    gpu = format_number(_as_good_at(alone, best.rate))
    several = format_count(best.workers, "worker")
    are = "is" if best.workers == 1 else "are"
    return [
        f"if the GPU takes less than {gpu} samples/s, {several} {are} better than none: without"
        " workers it waits while each batch is made; give its rate with --gpu-rate"
    ]


def _unless_quicker(alone: float, best: float) -> str:
    """Return in words how quick a GPU must be for no workers to be better after all."""
    if alone <= best:
        return ""
    gpu = format_number(_as_good_at(alone, best))
    return f": num_workers=0 is better only if the GPU takes more than {gpu} samples/s (--gpu-rate)"


def _as_good_at(alone: float, best: float) -> float:
    """Return the GPU's rate at which no workers, which are faster, are as good as the best.

    Without them the times add up, ``1 / (1 / alone + 1 / gpu)``; with them it gets their rate.
    """
    return alone * best / (alone - best)


def time_taken(cost: SampleCost) -> str:
    """Return in words how much processor time a sample takes, and how long it waits."""
    cpu, waiting = cost.cpu_seconds, cost.waiting_seconds
    words = f"{format_number(1e3 * cpu)} ms of processor time"
    if waiting < _HARDLY * cpu:
        return f"{words} and almost no waiting"
    return f"{words} and {format_number(1e3 * waiting)} ms of waiting"
