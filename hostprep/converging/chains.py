"""Data sets whose source is another one's copy: from a share to a disk, from there to memory.

When the host is planned, such a source may not exist yet, or be about to change. So the data set
that it comes from is planned and staged first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from hostprep.converging.datasets import DatasetLook
from hostprep.converging.looking import Looker
from hostprep.errors import Refused
from hostprep.host.mounts import lies_in
from hostprep.spec.feeding import holder_of, staged_before
from hostprep.spec.model import DatasetSpec
from hostprep.system.links import links_to


def look_at_datasets(specs: Iterable[DatasetSpec], looker: Looker) -> tuple[DatasetLook, ...]:
    """Look at the data sets of a spec; return them in the order in which to stage them.

    That is the spec's order, except that a data set whose copy contains another's source goes
    before that one.
    """
    looks = [looker.look(spec) for spec in specs]
    targets = {look.target: index for index, look in enumerate(looks)}
    feeders = [holder_of(source_of(look), targets) for look in looks]
    settled: dict[int, DatasetLook] = {}
    for index in sorted(range(len(looks)), key=lambda index: len(staged_before(index, feeders))):
        feeder = feeders[index]
        # None too if symlinks lead two data sets into each other: neither source can ever exist.
        before = None if feeder is None else settled.get(feeder)
        look = looks[index]
        settled[index] = look if before is None else _fed(look, before, looker)
    return tuple(settled.values())


def feeders_of(looks: Sequence[DatasetLook]) -> dict[str, DatasetSpec]:
    """Return whose copy contains each data set's source, by the data set's target in the spec.

    Not if the source only passes through a copy by an absolute symlink: then it does not need it.
    """
    by_target = {look.target: look.spec for look in looks}
    return {
        look.spec.target: by_target[look.feeder]
        for look in looks
        if look.feeder in by_target and lies_in(source_of(look), look.feeder)
    }


def as_of_boot(
    datasets: Iterable[DatasetSpec], looks: Sequence[DatasetLook]
) -> tuple[DatasetSpec, ...]:
    """Return the data sets of a spec in the form in which a boot is to stage them.

    If a source goes through symlinks in a copy, it is recorded with where they will lead, because
    nobody could follow them while the copy does not exist yet.
    """
    fed = {look.spec.target: source_of(look) for look in looks if look.feeder is not None}
    return tuple(
        dataclasses.replace(each, source=fed.get(each.target, each.source)) for each in datasets
    )


def sources_of(looks: Iterable[DatasetLook]) -> set[str]:
    """Return what a spec stages from: without symlinks, as written, and the links in between."""
    found: set[str] = set()
    for look in looks:
        found |= {source_of(look), look.spec.source}
        if look.source is not None:  # otherwise it may not answer
            found.update(links_to(look.spec.source))
    return found


def source_of(look: DatasetLook) -> str:
    """Return the source without symlinks, if it could be looked at."""
    return look.spec.source if look.source is None else look.source


def _fed(look: DatasetLook, feeder: DatasetLook, looker: Looker) -> DatasetLook:
    """Look at a data set again, now that it is known what happens to its source."""
    name = feeder.spec.name
    if not look.missing:
        if feeder.action is not None and look.problem is None and look.request is not None:
            look = looker.look_behind(look, feeder)
    elif feeder.problem is None and feeder.action is not None:
        look = looker.look_ahead(look, feeder)
    elif look.problem is not None and feeder.is_for_root_to_tell:
        look = dataclasses.replace(
            look, problem=None, reason=f"only root can tell what to do, as with {name}"
        )
    elif look.problem is not None:
        why = "which is refused" if feeder.problem else "which is whole and does not hold it"
        problem = Refused(
            f"its source {look.source} would be in the copy of {name}, {why}; nothing was changed.",
            f"first solve the problem of {name}" if feeder.problem else "correct its `source`",
        )
        look = dataclasses.replace(look, problem=problem)
    return dataclasses.replace(look, feeder=feeder.target)
