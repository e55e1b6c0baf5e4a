"""The whole spec against this host: look at everything, then decide, and change nothing."""

from __future__ import annotations

from dataclasses import dataclass

from hostprep.converging.datasets import DatasetLook, look_at_dataset, plan_dataset
from hostprep.converging.model import HostPlan
from hostprep.converging.volumes import (
    Need,
    VolumeLook,
    look_at_volume,
    plan_volumes,
    wanted_size,
)
from hostprep.host.memory import ram_for_percent
from hostprep.spec import Spec
from hostprep.staging.observer import Observer


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything about this host that a spec's plan rests on."""

    volumes: tuple[VolumeLook, ...]
    datasets: tuple[DatasetLook, ...]


def gather_host(spec: Spec, observer: Observer, *, reserve_bytes: int | None = None) -> HostFacts:
    """Look at every object of ``spec`` on this host; what cannot be looked at is in its look.

    Reads data sets and their sources through, as ``stage`` does; ``observer`` is told how far that
    is. ``reserve_bytes`` is the memory that volumes must leave, None for the default.
    """
    ram_bytes = ram_for_percent()
    volumes = tuple(look_at_volume(volume, ram_bytes) for volume in spec.volumes)
    sizes = {look.spec.path: wanted_size(look) for look in volumes}
    datasets = tuple(
        look_at_dataset(
            dataset,
            None if dataset.volume is None else sizes[dataset.volume],
            reserve_bytes,
            observer,
        )
        for dataset in spec.datasets
    )
    return HostFacts(volumes, datasets)


def plan_host(spec: Spec, facts: HostFacts, *, reserve_bytes: int | None = None) -> HostPlan:
    """Return what makes this host as ``spec`` says, in the order in which it is to be done. Pure.

    Never raises for what the facts hold: what a rule forbids is the refusal of its object, and
    hides no other object.
    """
    needs: dict[str, list[Need]] = {}
    for look in facts.datasets:
        if look.spec.volume is not None and look.action is not None:
            need = Need(look.spec.name, look.needed_bytes, look.needed_inodes)
            needs.setdefault(look.spec.volume, []).append(need)
    return HostPlan(
        spec.path,
        (
            *plan_volumes(facts.volumes, needs, reserve_bytes=reserve_bytes),
            *(plan_dataset(look) for look in facts.datasets),
        ),
    )


def look_and_plan(spec: Spec, observer: Observer, *, reserve_bytes: int | None = None) -> HostPlan:
    """Look at this host and plan: ``gather_host`` and ``plan_host`` in one."""
    facts = gather_host(spec, observer, reserve_bytes=reserve_bytes)
    return plan_host(spec, facts, reserve_bytes=reserve_bytes)
