"""What people try by hand, measured side by side on their own files: at one core and at the peak.

Decoders and forms are timed with the files' bytes in memory, so that the storage plays no part.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
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
    """One way to do it. ``group`` is what it competes in: decoder, form or prefetching.

    ``alone_samples_per_s`` is without workers, ``peak_samples_per_s`` with the recommended number;
    None was not measured, and ``problem`` says why.
    """

    group: str
    name: str
    alone_samples_per_s: float | None
    peak_samples_per_s: float | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Winner:
    """The best of a group at the peak, and by which factor over the next one."""

    group: str
    name: str
    factor: float


def compare_files(measurer: Measurer, workers: int, *, jpeg: bool) -> tuple[Variant, ...]:
    """Compare decoders and forms of the image files that ``measurer`` measures."""
    usable = decoders.installed()
    found = []
    for name in decoders.MODULES:
        if name not in usable:
            found.append(Variant("decoder", name, None, None, "not installed"))
        elif name == "simplejpeg" and not jpeg:
            found.append(Variant("decoder", name, None, None, "reads JPEG alone"))
        else:
            found.append(_decoder(measurer, name, workers))
    if "pillow" in usable:
        found += [_form(measurer, form, workers) for form in ("jpeg", "png", "npy")]
    return tuple(found)


def compare_prefetching(measurer: Measurer, workers: int) -> tuple[Variant, ...]:
    """Compare the DataLoader's own prefetching with prefetch_generator's thread around it."""
    group = "prefetching"
    if importlib.util.find_spec("prefetch_generator") is None:
        return (Variant(group, "prefetch_generator", None, None, "not installed"),)
    own = _timed(lambda: _rate(measurer, workers))
    thread = _timed(lambda: _rate(measurer, 0, background=True))
    alone = Variant(group, "prefetch_generator, no workers", thread[0], thread[0], thread[1])
    if not workers:
        return (Variant(group, "DataLoader, no workers", own[0], own[0], own[1]), alone)
    both = _timed(lambda: _rate(measurer, workers, background=True))
    return (
        Variant(group, f"DataLoader, {format_count(workers, 'worker')}", None, own[0], own[1]),
        alone,
        Variant(
            group, f"prefetch_generator, {format_count(workers, 'worker')}", None, both[0], both[1]
        ),
    )


def winners(variants: tuple[Variant, ...]) -> tuple[Winner, ...]:
    """Return the best of each group in which two or more were measured."""
    found = []
    for group in dict.fromkeys(variant.group for variant in variants):
        rates = sorted(
            (
                (variant.peak_samples_per_s, variant.name)
                for variant in variants
                if variant.group == group and variant.peak_samples_per_s
            ),
            reverse=True,
        )
        if len(rates) > 1:
            found.append(Winner(group, rates[0][1], rates[0][0] / rates[1][0]))
    return tuple(found)


def _decoder(measurer: Measurer, name: str, workers: int) -> Variant:
    with_it = _in_memory(measurer, "as_is", name)
    alone, problem = _timed(lambda: _rate(with_it, 0))
    peak = alone
    if workers and problem is None:
        peak, problem = _timed(lambda: _rate(with_it, workers))
    return Variant("decoder", name, alone, peak, problem)


def _form(measurer: Measurer, form: str, workers: int) -> Variant:
    with_it = _in_memory(measurer, form, "pillow")
    peak, problem = _timed(lambda: _rate(with_it, workers))
    return Variant("form", form, None, peak, problem)


def _in_memory(measurer: Measurer, form: str, decoder: str) -> Measurer:
    source: dict[str, Any] = {**measurer.source, "form": form, "decoder": decoder}
    return replace(measurer, source=source, what=f"{decoder} on {form} in memory", first=0)


def _rate(measurer: Measurer, workers: int, *, background: bool = False) -> float:
    probe = measurer.with_workers(workers, background=background)
    if isinstance(probe, FailedProbe):
        raise HostprepError(probe.message)
    return probe.undisturbed_samples_per_s


def _timed(measure: Callable[[], float]) -> tuple[float | None, str | None]:
    """Return the rate, or None and why there is none: a comparison that fails fails alone."""
    try:
        return measure(), None
    except HostprepError as error:
        return None, error.message
