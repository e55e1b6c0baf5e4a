"""The rates that the spec requires, and the data sets that it names."""

from __future__ import annotations

import math
from decimal import Decimal

from hostprep.probing.judgement import Need
from hostprep.readiness.context import Context
from hostprep.readiness.shell import quote
from hostprep.spec.model import DatasetSpec, RequirementSpec
from hostprep.units import format_rate


def required(context: Context) -> tuple[tuple[DatasetSpec, RequirementSpec], ...]:
    """Return the spec's requirements with their data sets: all of that name, in their order."""
    if context.spec is None:
        return ()
    return tuple(
        (dataset, need)
        for need in context.spec.requirements
        for dataset in context.spec.datasets
        if dataset.name == need.dataset
    )


def need_of(requirement: RequirementSpec) -> Need:
    """Return a requirement in the form that the probe takes."""
    return Need(
        say(requirement), requirement.samples_per_second, requirement.bytes_per_second, "the spec"
    )


def say(requirement: RequirementSpec) -> str:
    """Return a requirement for people."""
    words = []
    if requirement.samples_per_second is not None:
        words.append(f"{requirement.samples_per_second:,.0f} samples/s")
    if requirement.bytes_per_second is not None:
        words.append(format_rate(requirement.bytes_per_second))
    return " and ".join(words)


def probe_line(path: str, requirement: RequirementSpec) -> str:
    """Return the command that measures a path against a requirement."""
    if requirement.samples_per_second is not None:
        # In the form that --need takes: every digit, and no exponent.
        rate = f"{Decimal(repr(requirement.samples_per_second)).normalize():f}"
    else:
        number, units = math.ceil((requirement.bytes_per_second or 0) / 1000), ["kB", "MB", "GB"]
        while number % 1000 == 0 and len(units) > 1:
            number, units = number // 1000, units[1:]
        rate = f"{number}{units[0]}"
    return f"hostprep probe {quote(path)} --need {rate}"
