"""The boot services of a spec's data sets, as objects of its plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import field

from hostprep.converging.boot_facts import BootFacts, gather_boot
from hostprep.converging.boot_units import BootStep, apply_boot, plan_boot
from hostprep.converging.model import Kind, ObjectPlan
from hostprep.dataclass import dataclass
from hostprep.spec.model import DatasetSpec
from hostprep.staging.observer import Observer


@dataclass(frozen=True, slots=True)
class BootTask:
    """Writes the boot service of the one in ``datasets``; if there is none, removes ``unit``.

    ``feeders`` has the data set whose copy contains its source, if there is one.
    """

    datasets: tuple[DatasetSpec, ...]
    unit: str
    reserve_bytes: int | None = None
    feeders: Mapping[str, DatasetSpec] = field(default_factory=dict)

    def carry_out(self, observer: Observer) -> None:
        """Look again, now that volume and data set are there, and carry out the one step."""
        steps = plan_boot(
            self.datasets,
            gather_boot(self.datasets, self.feeders, only=self.unit),
            prune=not self.datasets,
            reserve_bytes=self.reserve_bytes,
        )
        own = [step for step in steps if step.path.name == self.unit]
        for step in own:
            if step.planned.refusal is not None:
                raise step.planned.refusal.as_error()
        apply_boot(own)


@dataclass(frozen=True, slots=True)
class BootLook:
    """The data sets that could be looked at, the names of the others, and facts of the former.

    ``feeders`` has, by a data set's target, the data set whose copy contains its source.
    """

    datasets: tuple[DatasetSpec, ...]
    unknown: frozenset[str]
    facts: BootFacts
    feeders: Mapping[str, DatasetSpec] = field(default_factory=dict)


def look_at_boot(
    datasets: tuple[DatasetSpec, ...],
    unknown: frozenset[str],
    sizes: Mapping[str, int],
    feeders: Mapping[str, DatasetSpec],
) -> BootLook:
    """Read what the boot services depend on.

    ``unknown`` names data sets whose source is away: asking again may hang, and what is there now,
    on another file system, must not be recorded for the boot. ``sizes`` are those that the spec's
    volumes will have, by path, for the record. ``feeders`` are as in ``BootLook``.
    """
    known = tuple(dataset for dataset in datasets if dataset.name not in unknown)
    facts = gather_boot(known, feeders)
    footings = tuple(
        dataclasses.replace(
            footing, volume_size_bytes=sizes.get(footing.parent, footing.volume_size_bytes)
        )
        for footing in facts.footings
    )
    return BootLook(known, unknown, dataclasses.replace(facts, footings=footings), feeders)


def plan_services(
    look: BootLook,
    *,
    prune: bool,
    reserve_bytes: int | None = None,
    refused: Collection[str],
) -> tuple[ObjectPlan, ...]:
    """Return the plan of each boot service, including leftover ones. Pure.

    ``refused`` names data sets that cannot be staged now. Nothing is planned for their services: if
    a target's disk is missing, it is no surprise that its path is on another one.
    """
    steps = plan_boot(look.datasets, look.facts, prune=prune, reserve_bytes=reserve_bytes)
    wanted = {dataset.name: dataset for dataset in look.datasets if dataset.at_boot}
    objects = []
    for step in steps:
        planned, unit = step.planned, step.path.name
        if planned.subject in look.unknown:
            objects.append(_left(step, "the source of its data set is away"))
        elif planned.subject in refused and step.installed is not None:
            objects.append(_left(step, "its data set cannot be staged"))
        else:
            datasets = (wanted[planned.subject],) if planned.subject in wanted else ()
            task = (
                BootTask(datasets, unit, reserve_bytes, look.feeders) if planned.changes else None
            )
            # A data set is called by its name, or by its place if another has the same name.
            names = [name for each in datasets for name in (each.name, each.target)]
            after = tuple((Kind.DATASET, name) for name in names)
            objects.append(dataclasses.replace(planned, task=task, after=after))
    return tuple(objects)


def _left(step: BootStep, why: str) -> ObjectPlan:
    reason = f"{step.path.name} is left as it is while {why}"
    return ObjectPlan.kept(Kind.BOOT, step.planned.subject, reason, step.planned.warnings)
