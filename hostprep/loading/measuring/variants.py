"""What people try by hand, measured side by side on their own files: at one core and at the peak.

Decoders, resizing and forms are timed with the files' bytes in memory, so that the storage plays no
part, and one thing differs at a time: decoders share the resizing, forms both.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.loading.files import decoders
from hostprep.loading.measuring.measure import Measurer
from hostprep.loading.model import FailedProbe
from hostprep.units import format_count


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to do it. ``group`` is what it competes in: decoder, resize, form or prefetching.

    ``alone_samples_per_s`` is without workers, ``peak_samples_per_s`` with the recommended number,
    give or take ``relative_error``; None was not measured, and ``problem`` says why.
    """

    group: str
    name: str
    alone_samples_per_s: float | None
    peak_samples_per_s: float | None
    problem: str | None = None
    relative_error: float | None = None


@dataclass(frozen=True, slots=True)
class Winner:
    """The best of a group at the peak, and by which factor over the next one.

    ``relative_error`` is that of the factor.
    """

    group: str
    name: str
    factor: float
    relative_error: float = 0.0


def compare_files(measurer: Measurer, workers: int, *, jpeg: bool) -> tuple[Variant, ...]:
    """Compare decoders, resizing and forms of the image files that ``measurer`` measures."""
    usable = decoders.installed()
    resizer = "opencv" if "opencv" in usable else "pillow"
    found = {}
    for name in decoders.MODULES:
        if name not in usable:
            found[name] = Variant("decoder", name, None, None, "not installed")
        elif name == "simplejpeg" and not jpeg:
            found[name] = Variant("decoder", name, None, None, "reads JPEG alone")
        else:
            found[name] = _decoder(measurer, name, resizer, workers)
    if "pillow" not in usable:
        return tuple(found.values())
    resizing: tuple[Variant, ...] = ()
    if resizer != "pillow":
        theirs = replace(_decoder(measurer, "pillow", "pillow", workers), group="resize")
        resizing = (theirs, replace(found["pillow"], group="resize", name=resizer))
    forms = [_form(measurer, form, resizer, workers) for form in ("jpeg", "png", "npy")]
    return (*found.values(), *resizing, *forms)


def compare_prefetching(measurer: Measurer, workers: int) -> tuple[Variant, ...]:
    """Compare the DataLoader's own prefetching with prefetch_generator's thread around it."""
    group, thread = "prefetching", "prefetch_generator"
    if importlib.util.find_spec(thread) is None:
        return (Variant(group, thread, None, None, "not installed"),)
    with_workers = format_count(workers, "worker") if workers else "no workers"
    own = _timed(measurer, workers)
    alone = _timed(measurer, 0, background=True)
    found = [own.variant(group, f"DataLoader, {with_workers}", own if not workers else None)]
    found.append(alone.variant(group, f"{thread}, no workers", alone))
    if workers:
        both = _timed(measurer, workers, background=True)
        found.append(both.variant(group, f"{thread}, {with_workers}"))
    return tuple(found)


def winners(variants: tuple[Variant, ...]) -> tuple[Winner, ...]:
    """Return the best of each group in which two or more were measured."""
    found = []
    for group in dict.fromkeys(variant.group for variant in variants):
        rates = sorted(
            (
                (variant.peak_samples_per_s, variant.name, variant.relative_error or 0.0)
                for variant in variants
                if variant.group == group and variant.peak_samples_per_s
            ),
            reverse=True,
        )
        if len(rates) > 1:
            (best, name, error), (second, _, its_error) = rates[:2]
            found.append(Winner(group, name, best / second, math.hypot(error, its_error)))
    return tuple(found)


def _decoder(measurer: Measurer, name: str, resizer: str, workers: int) -> Variant:
    with_it = _in_memory(measurer, "as_is", name, resizer)
    alone = peak = _timed(with_it, 0)
    if workers and alone.problem is None:
        peak = _timed(with_it, workers)
    return peak.variant("decoder", name, alone)


def _form(measurer: Measurer, form: str, resizer: str, workers: int) -> Variant:
    return _timed(_in_memory(measurer, form, "pillow", resizer), workers).variant("form", form)


def _in_memory(measurer: Measurer, form: str, decoder: str, resizer: str) -> Measurer:
    what = f"{decoder} on {form} in memory, resized by {resizer}"
    source: dict[str, Any] = {**measurer.source, "form": form, "decoder": decoder}
    return replace(measurer, source={**source, "resizer": resizer}, what=what, first=0)


@dataclass(frozen=True, slots=True)
class _Rate:
    """What a variant gave, or the ``problem`` for which it gave nothing."""

    samples_per_s: float | None = None
    relative_error: float | None = None
    problem: str | None = None

    def variant(self, group: str, name: str, alone: _Rate | None = None) -> Variant:
        """Return the variant of which this is the peak, and ``alone`` what it gave by itself."""
        before = None if alone is None else alone.samples_per_s
        return Variant(group, name, before, self.samples_per_s, self.problem, self.relative_error)


def _timed(measurer: Measurer, workers: int, *, background: bool = False) -> _Rate:
    """Time it with ``workers``: a comparison that fails fails alone."""
    try:
        probe = measurer.with_workers(workers, background=background)
    except HostprepError as error:
        return _Rate(problem=error.message)
    if isinstance(probe, FailedProbe):
        return _Rate(problem=probe.message)
    return _Rate(probe.undisturbed_samples_per_s, probe.relative_error)
