"""Plans a spec's data sets together, and stages them with the executor of ``stage``."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from os.path import dirname

from hostprep.converging.model import Change, Kind, ObjectPlan, Staged
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, NoRoom, Refused
from hostprep.host.cpu import usable_cpus
from hostprep.spec.model import DatasetSpec
from hostprep.staging.bound import bound_of
from hostprep.staging.failures import unstage_leftovers
from hostprep.staging.model import StageRequest
from hostprep.staging.observer import Observer
from hostprep.staging.planning import plan_stage, stage_lock
from hostprep.staging.shortfall import shortfall_of
from hostprep.staging.stage import carry_out
from hostprep.system.locks import lock
from hostprep.units import format_bytes
from hostprep.volumes.model import RamBudget


@dataclass(frozen=True, slots=True)
class DatasetTask:
    """Stages one data set, or updates it."""

    request: StageRequest

    def carry_out(self, observer: Observer) -> Staged:
        """Plan again under the data set's lock, now that its volume is there, and stage."""
        with (
            lock(
                stage_lock(self.request),
                purpose=f"hostprep apply: {self.request.name}",
                on_wait=observer.note,
            ),
            plan_stage(self.request, observer) as plan,
        ):
            result = carry_out(plan, observer)
            bound = bound_of(result, plan, usable_cpus())
        if shortfall := shortfall_of(result, partial=False):
            raise shortfall
        return Staged(
            result.dataset,
            result.copied_files,
            result.copied_bytes,
            result.seconds,
            result.digest,
            bound,
        )


@dataclass(frozen=True, slots=True)
class DatasetLook:
    """A data set of the spec and its situation on this host, in words and numbers.

    ``target`` is its path, without symlinks. ``needed_bytes`` and ``needed_inodes`` are what
    staging it will still take on the target. ``action`` is None if it is complete and fresh.
    ``device`` and ``free_bytes`` are of the file system that it is staged to; ``device`` is None
    for a volume, and ``free_bytes`` if there is no limit, or it is unknown.
    ``budget`` is what it takes of the machine's memory, None if it goes to a disk or a volume.
    ``problem`` is why it cannot be staged, if it cannot. ``away``: its source cannot be looked at,
    and must not be tried again; ``missing``: the source was looked for and does not exist.
    ``source`` is without symlinks, None if it is unknown. ``origin`` is what was read instead: it
    is another folder if the source is yet to be staged. ``feeder``: the target of the data set
    whose copy contains the source.
    """

    spec: DatasetSpec
    target: str
    request: StageRequest | None = None
    needed_bytes: int = 0
    needed_inodes: int = 0
    device: int | None = None
    free_bytes: int | None = None
    budget: RamBudget | None = None
    action: str | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    problem: HostprepError | None = None
    away: bool = False
    missing: bool = False
    source: str | None = None
    origin: str | None = None
    feeder: str | None = None

    @property
    def is_for_root_to_tell(self) -> bool:
        """Whether this user may not read its record, so that nothing was planned."""
        return self.problem is None and self.request is None and not self.away


def plan_datasets(
    looks: Sequence[DatasetLook], leftovers: Sequence[str] = ()
) -> tuple[ObjectPlan, ...]:
    """Return the plans of the data sets, from what was seen of them. Pure.

    Those on one file system share its room, as do those on a volume, which the volume's plan takes
    into account; those in memory share the memory, on whichever tmpfs they are. ``leftovers`` are
    the targets of data sets that the spec does not name, for instance because it renamed them.
    """
    taken: dict[int, int] = {}
    in_memory = 0
    names = Counter(look.spec.name for look in looks)
    # Two may have the same name in different places; then each is called by its place.
    subjects = {
        look.target: look.spec.name if names[look.spec.name] == 1 else look.target for look in looks
    }
    plans = []
    for index, look in enumerate(looks):
        problem = look.problem or _in_one_place(look, looks[:index])
        if look.device is not None:
            before = taken.get(look.device, 0)
            taken[look.device] = before + look.needed_bytes
            free = look.free_bytes
            if before and free is not None and taken[look.device] > free:
                problem = _no_room(look, free, before)
        if look.budget is not None:
            together = dataclasses.replace(
                look.budget, growth_bytes=look.budget.growth_bytes + in_memory
            )
            if in_memory and not together.fits:
                problem = problem or _no_memory(look, together, in_memory)
            in_memory = together.growth_bytes
        beside = [each for each in leftovers if dirname(each) == dirname(look.target)]
        unstage_leftovers(problem, beside)
        feeder = subjects.get(look.feeder) if look.feeder is not None else None
        plans.append(_plan_dataset(look, subjects[look.target], problem, feeder))
    return tuple(plans)


def _in_one_place(look: DatasetLook, earlier: Iterable[DatasetLook]) -> Refused | None:
    """Refuse a data set in the place of an earlier one, or one inside the other.

    The spec was checked for that as text; here the symlinks are known.
    """
    for other in earlier:
        if other.target == look.target:
            where = "would lie there too"
        elif other.target.startswith(f"{look.target}/"):
            where = f"would lie inside it, at {other.target}"
        elif look.target.startswith(f"{other.target}/"):
            where = f"would hold it, at {other.target}"
        else:
            continue
        return Refused(
            f"{look.spec.target} is {look.target} without symlinks, and the spec's"
            f" {other.spec.name} ({other.spec.target}) {where}; nothing was changed.",
            "give one of them another `name` or another place",
        )
    return None


def _no_room(look: DatasetLook, free_bytes: int, taken_bytes: int) -> Refused:
    return NoRoom(
        f"{look.spec.name} takes {format_bytes(look.needed_bytes)} on the file system of"
        f" {look.spec.parent}, where {format_bytes(free_bytes)} are free and the spec's other"
        f" data sets take {format_bytes(taken_bytes)} of that; nothing was changed.",
        "free some room there, or put one of them somewhere else",
    )


def _no_memory(look: DatasetLook, together: RamBudget, taken_bytes: int) -> Refused:
    own_bytes = together.growth_bytes - taken_bytes
    return Refused(
        f"{look.spec.name} takes {format_bytes(own_bytes)} of the memory in {look.spec.parent}, and"
        f" the spec's other data sets {format_bytes(taken_bytes)}: with"
        f" {format_bytes(together.reserve_bytes)} reserved for the machine"
        f" {format_bytes(together.missing_bytes)} are missing; nothing was changed.",
        "put one of them onto a disk, or choose a smaller --reserve of `hostprep apply`",
    )


def _plan_dataset(
    look: DatasetLook, name: str, problem: HostprepError | None, feeder: str | None
) -> ObjectPlan:
    if problem is not None:
        return ObjectPlan.refused(Kind.DATASET, name, problem, look.warnings)
    if look.action is None:
        reason = f"{look.target} is {look.reason}"
        return ObjectPlan.kept(Kind.DATASET, name, reason, look.warnings)
    assert look.request is not None
    after = [(Kind.VOLUME, look.spec.volume)] if look.spec.volume else []
    if feeder is not None:
        after.append((Kind.DATASET, feeder))
    return ObjectPlan(
        Kind.DATASET,
        name,
        changes=(Change(Kind.DATASET, name, look.action, look.reason),),
        warnings=look.warnings,
        task=DatasetTask(look.request),
        after=tuple(after),
    )
