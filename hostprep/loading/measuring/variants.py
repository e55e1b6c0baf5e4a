"""Compares what people try by hand, on their own files: on one core and at the peak.

Decoders, resizing and forms are timed with the files' bytes in memory, so that storage plays no
part, and only one thing varies at a time: decoders share the resizing, forms share both. At the
peak competitors are timed in turn, there and back (A B C, C B A), each time in fresh processes, so
that a machine that is slow for a while, or a process with bad luck in memory placement, makes no
difference. If one looks slower than the best, but may be so by chance, they are timed there and
back once more.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
from collections.abc import Sequence
from dataclasses import field, replace

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.loading.files import decoders
from hostprep.loading.measuring.measure import Measurer
from hostprep.loading.model import FailedProbe, Probe
from hostprep.units import format_count

# Their time is what a single one would take, plus the start of processes for each.
ROUNDS = 2
# By the rounds that each of two had (pooled, so with 2 and 6 degrees of freedom): at most how many
# standard errors of their difference are chance. These are Student's t for 97.5 and for 95 %: two
# looks are wrong twice as often as one, so the first has to show more.
_BY_CHANCE = {ROUNDS: 6.2, 2 * ROUNDS: 2.45}
# The same for a probe's own error, which rests on many batches.
_BY_CHANCE_WITHIN = 2.0
# By chance two rounds may be so close that any difference would exceed their error.
_WORTH_A_CHANGE = 0.05
_FORMS = ("jpeg", "png", "npy")


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to do it. ``group`` is what it competes in: decoder, resize, form or prefetching.

    ``alone_samples_per_s`` is without workers, ``peak_samples_per_s`` with the recommended number,
    over all ``rounds`` (samples/s of each, in order), give or take ``relative_error``, which is
    None if it failed in one of them. A rate of None was not measured, and ``problem`` says why.
    """

    group: str
    name: str
    alone_samples_per_s: float | None
    peak_samples_per_s: float | None
    problem: str | None = None
    relative_error: float | None = None
    rounds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Lead:
    """The best of a group at the peak, and its lead over the next one as a factor.

    ``relative_error`` is that of the factor. ``rivals`` are those that it is not ahead of, the best
    first: then the factor is over the best rival, and nobody has won.
    """

    group: str
    name: str
    factor: float
    relative_error: float
    rivals: tuple[str, ...] = ()


def compare_files(measurer: Measurer, workers: int, *, jpeg: bool) -> tuple[Variant, ...]:
    """Compare decoders, resizing and forms on the image files that ``measurer`` measures."""
    usable = decoders.installed()
    resizer = "opencv" if "opencv" in usable else "pillow"

    def competing(group: str, name: str, form: str, decoder: str, resizer: str) -> _Competitor:
        what = f"{decoder} on {form} in memory, resized by {resizer}"
        source = {**measurer.source, "form": form, "decoder": decoder, "resizer": resizer}
        return _Competitor(group, name, replace(measurer, source=source, what=what), workers)

    of_decoders = {
        name: competing("decoder", name, "as_is", name, resizer) for name in decoders.MODULES
    }
    for name, each in of_decoders.items():
        if name not in usable:
            each.problem = "not installed"
        elif name == "simplejpeg" and not jpeg:
            each.problem = "reads only JPEG"
    resizing, forms = [], []
    if "pillow" in usable:
        if resizer != "pillow":
            resizing = [competing("resize", "pillow", "as_is", "pillow", "pillow")]
        forms = [competing("form", form, form, "pillow", resizer) for form in _FORMS]
    for each in (*of_decoders.values(), *resizing):
        each.time_alone()
    by_pillow = of_decoders["pillow"]
    found = [*_in_turn([*of_decoders.values()], [by_pillow, *resizing])]
    if resizing:  # with the other resizer, which the decoders were compared with
        found.append(replace(by_pillow.variant(), group="resize", name=resizer))
    return (*found, *_in_turn(forms))


def compare_prefetching(measurer: Measurer, workers: int) -> tuple[Variant, ...]:
    """Compare the DataLoader's own prefetching with prefetch_generator's thread around it."""
    group, thread = "prefetching", "prefetch_generator"
    if importlib.util.find_spec(thread) is None:
        return (Variant(group, thread, None, None, "not installed"),)
    with_workers = format_count(workers, "worker") if workers else "no workers"
    competitors = [
        _Competitor(group, f"DataLoader, {with_workers}", measurer, workers),
        _Competitor(group, f"{thread}, no workers", measurer, 0, background=True),
    ]
    if workers:
        name = f"{thread}, {with_workers}"
        competitors.append(_Competitor(group, name, measurer, workers, background=True))
    return _in_turn(competitors)


def leads(variants: Sequence[Variant]) -> tuple[Lead, ...]:
    """Return the best of each group in which two or more were timed in all rounds."""
    found = []
    for group in dict.fromkeys(variant.group for variant in variants):
        timed = [v for v in variants if v.group == group and competed(v)]
        timed.sort(key=lambda variant: variant.peak_samples_per_s or 0.0, reverse=True)
        if len(timed) > 1:
            best, *others = timed
            close = [other for other in others if not is_ahead(best, other)]
            factor, error = _factor(best, (close or others)[0])
            rivals = tuple(other.name for other in close)
            found.append(Lead(group, best.name, factor, error, rivals))
    return tuple(found)


def competed(variant: Variant) -> bool:
    """Whether it was timed in all rounds: one that failed in any is no rival to the others."""
    return bool(variant.peak_samples_per_s) and variant.relative_error is not None


def is_ahead(best: Variant, other: Variant) -> bool:
    """Return whether one variant is faster than another, certainly and by enough to matter."""
    factor, error = _factor(best, other)
    return factor - 1 > max(error, _WORTH_A_CHANGE)


def undecided(variants: Sequence[Variant]) -> list[Variant]:
    """Return the variants of a group that more rounds may separate; none if they would not.

    These are the best and its rivals, if some rival is slower by enough to matter, though maybe by
    chance. If all rivals are as fast, more rounds would most likely show the same.
    """
    timed = [variant for variant in variants if competed(variant)]
    if not timed:
        return []
    best = max(timed, key=lambda variant: variant.peak_samples_per_s or 0.0)
    close = [variant for variant in timed if not is_ahead(best, variant)]  # itself as well
    slower = any(_factor(best, other)[0] - 1 > _WORTH_A_CHANGE for other in close)
    return close if slower else []


def _factor(best: Variant, other: Variant) -> tuple[float, float]:
    """Return by what factor one variant is faster than another, and the factor's error."""
    assert best.peak_samples_per_s and other.peak_samples_per_s
    assert best.relative_error is not None and other.relative_error is not None
    factor = best.peak_samples_per_s / other.peak_samples_per_s
    return factor, math.hypot(best.relative_error, other.relative_error)


@dataclass(slots=True)
class _Competitor:
    """A variant in the making. If it fails, only it fails, and it is timed no more."""

    group: str
    name: str
    measurer: Measurer
    workers: int
    background: bool = False
    alone_samples_per_s: float | None = None
    problem: str | None = None
    probes: list[Probe] = field(default_factory=list)

    def time_alone(self) -> None:
        """Time it without workers."""
        probe = self._timed(0)
        if probe is not None:
            self.alone_samples_per_s = probe.undisturbed_samples_per_s

    def time_peak(self) -> None:
        """Time it once more as it competes."""
        probe = self._timed(self.workers)
        if probe is not None:
            self.probes.append(probe)

    def _timed(self, workers: int) -> Probe | None:
        if self.problem is not None:
            return None
        try:
            probe = self.measurer.with_workers(workers, background=self.background)
        except HostprepError as error:
            self.problem = error.message
            return None
        if isinstance(probe, FailedProbe):
            self.problem = probe.message
            return None
        return probe

    def variant(self) -> Variant:
        """Return the result."""
        if not self.probes:
            return Variant(self.group, self.name, self.alone_samples_per_s, None, self.problem)
        rounds = tuple(probe.undisturbed_samples_per_s for probe in self.probes)
        rate = statistics.fmean(rounds)
        # What other programs took is not included: they took it from all competitors.
        within = statistics.fmean(probe.relative_error for probe in self.probes)
        return Variant(
            self.group,
            self.name,
            self.alone_samples_per_s if self.workers else rate,
            rate,
            self.problem,
            None if self.problem is not None else relative_error(rounds, within),
            rounds,
        )


def relative_error(rounds: Sequence[float], within: float) -> float:
    """Return the possible relative error of the mean rate over ``rounds``.

    ``within`` is the relative error that each of them has by itself.
    """
    apart = _BY_CHANCE[len(rounds)] * statistics.stdev(rounds) / statistics.fmean(rounds)
    return max(apart, _BY_CHANCE_WITHIN * within) / math.sqrt(len(rounds))


def _in_turn(*groups: Sequence[_Competitor]) -> tuple[Variant, ...]:
    """Time competitors in turn, there and back; and once more those undecided in a group.

    A competitor may be in several groups, and is timed as often as the others.
    """
    competitors = [*{id(each): each for group in groups for each in group}.values()]
    _there_and_back(competitors)
    again = [each for group in groups for each in _undecided(group)]
    _there_and_back([each for each in competitors if each in again])
    return tuple(each.variant() for each in competitors)


def _undecided(group: Sequence[_Competitor]) -> list[_Competitor]:
    variants = [each.variant() for each in group]
    again = undecided(variants)
    return [each for each, variant in zip(group, variants, strict=True) if variant in again]


def _there_and_back(competitors: Sequence[_Competitor]) -> None:
    for each in (*competitors, *reversed(competitors)):
        each.time_peak()
