"""The whole spec against this host: look at everything, then decide, and change nothing."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import field

from hostprep.converging.chains import as_of_boot, feeders_of, look_at_datasets, sources_of
from hostprep.converging.datasets import DatasetLook, plan_datasets
from hostprep.converging.looking import Looker
from hostprep.converging.model import HostPlan, Kind, ObjectPlan
from hostprep.converging.packages import PackageFacts, look_at_packages, plan_packages
from hostprep.converging.prune import Leftovers, going_volumes, look_for_leftovers, plan_leftovers
from hostprep.converging.services import BootLook, look_at_boot, plan_services
from hostprep.converging.sources import SilentOnes
from hostprep.converging.volumes import (
    Freed,
    Need,
    VolumeLook,
    look_at_volume,
    passing_then,
    plan_volumes,
    wanted_size,
)
from hostprep.converging.writable import check_readable, refuse_unkept, unkept_kinds
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.memory import ram_for_percent
from hostprep.host.mounts import lies_in
from hostprep.spec.model import Spec
from hostprep.staging.observer import Observer


@dataclass(frozen=True, slots=True)
class Options:
    """How to converge a host, besides its spec.

    ``prune`` removes what hostprep made and the spec does not name. ``reserve_bytes`` is the memory
    that volumes must leave for the machine, None for the default.
    """

    prune: bool = False
    reserve_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything about this host that the plan for a spec depends on.

    ``sources`` are the paths from which the spec stages, see ``sources_of``.
    ``unkept`` has the kinds of objects for which nothing can be done here, and why.
    """

    packages: PackageFacts
    volumes: tuple[VolumeLook, ...]
    datasets: tuple[DatasetLook, ...]
    boot: BootLook
    leftovers: Leftovers
    sources: frozenset[str]
    unkept: Mapping[Kind, HostprepError] = field(default_factory=dict)


def gather_host(spec: Spec, options: Options, observer: Observer, silent: SilentOnes) -> HostFacts:
    """Look at every object of ``spec`` on this host; an object's look says if that failed.

    Scans data sets and their sources, as ``stage`` does; ``observer`` is told the progress.
    ``silent`` are those that did not answer at an earlier look, which are added to it. Changes
    nothing. Raises ``Refused`` if hostprep's own records cannot be read.
    """
    check_readable()
    ram_bytes = ram_for_percent()
    volumes = tuple(look_at_volume(volume, ram_bytes) for volume in spec.volumes)
    sizes = {look.spec.path: wanted_size(look) for look in volumes}
    looker = Looker(sizes, options.reserve_bytes, observer, passing_then(volumes), silent)
    datasets = look_at_datasets(spec.datasets, looker)
    away = frozenset(look.spec.name for look in datasets if look.away)
    sources = frozenset(sources_of(datasets))
    return HostFacts(
        packages=look_at_packages(spec.packages),
        volumes=volumes,
        datasets=datasets,
        boot=look_at_boot(as_of_boot(spec.datasets, datasets), away, sizes, feeders_of(datasets)),
        leftovers=look_for_leftovers(
            {look.target for look in datasets},
            sizes.keys(),
            sources,
            prune=options.prune,
        ),
        sources=sources,
        # Other users look at what root would do, whose records are kept elsewhere.
        unkept=unkept_kinds() if os.geteuid() == 0 else {},
    )


def plan_host(spec: Spec, options: Options, facts: HostFacts) -> HostPlan:
    """Return what makes this host match ``spec``, in the order of execution. Pure.

    Never raises because of the facts: what a rule forbids is the refusal of its object, and does
    not hide other objects.
    """
    first, volumes = _plan_memory(options, facts)
    left = plan_leftovers(facts.leftovers)
    datasets = plan_datasets(facts.datasets, [each.target for each, _ in facts.leftovers.datasets])
    services = plan_services(
        facts.boot,
        prune=options.prune,
        reserve_bytes=options.reserve_bytes,
        refused={each.subject for each in datasets if each.refusal is not None},
    )
    objects = (
        *plan_packages(spec.packages, facts.packages),
        *(each for each in left if _lies_in(each.subject, first)),
        *volumes,
        *datasets,
        *services,
        *(each for each in left if not _lies_in(each.subject, first)),
    )
    return HostPlan(spec.path, refuse_unkept(objects, facts.unkept))


def _plan_memory(
    options: Options, facts: HostFacts
) -> tuple[frozenset[str], tuple[ObjectPlan, ...]]:
    """Return which volumes have to be unmounted first, and the plans of the spec's own.

    Leftovers are removed last, when their replacement is there; they are removed first only if the
    memory would not hold both.
    """
    needs: dict[str, list[Need]] = {}
    for look in facts.datasets:
        if look.spec.volume is not None and look.action is not None:
            need = Need(look.spec.name, look.needed_bytes, look.needed_inodes)
            needs.setdefault(look.spec.volume, []).append(need)
    reserve = options.reserve_bytes
    inside: dict[str, list[str]] = {}
    for record, _ in facts.leftovers.datasets:
        if record.volume is not None:
            inside.setdefault(record.volume, []).append(record.target)
    volumes = plan_volumes(
        facts.volumes, needs, reserve_bytes=reserve, leftovers=inside, prune=options.prune
    )
    needed = {look.spec.path for look in facts.volumes} | facts.sources
    going = going_volumes(facts.leftovers, needed)
    if not going or not any(each.refusal for each in volumes):
        return frozenset(), volumes
    freed = Freed(
        sum(each.used_bytes for each in going.values()),
        sum(each.promised_bytes for each in going.values()),
    )
    without = plan_volumes(facts.volumes, needs, reserve_bytes=reserve, freed=freed)
    if any(each.refusal for each in without):
        return frozenset(), volumes
    return frozenset(going), without


def _lies_in(path: str, volumes: Collection[str]) -> bool:
    return any(lies_in(path, volume) for volume in volumes)


def look_and_plan(
    spec: Spec, options: Options, observer: Observer, silent: SilentOnes | None = None
) -> HostPlan:
    """Look at this host and plan: ``gather_host`` and ``plan_host`` in one.

    Raises ``UsageError`` if ``prune`` would remove what the file does not mention.
    """
    if options.prune:
        spec.check_prunable(spec.path, "here; nothing was changed.")
    return plan_host(spec, options, gather_host(spec, options, observer, silent or SilentOnes()))
