"""What hostprep made on this host but the spec does not name: reported, or removed if asked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable
from dataclasses import replace

from hostprep.converging.model import Change, Kind, ObjectPlan, Unchanged
from hostprep.converging.volume_changes import change_of
from hostprep.converging.volumes import Freed
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, reading_hint
from hostprep.host.answering import PATIENCE_SECONDS, no_answer, silent_ones
from hostprep.host.mounts import lies_in
from hostprep.staging.observer import Observer
from hostprep.staging.record.records import (
    Record,
    all_records,
    damaged_records,
    load_record,
    record_id,
)
from hostprep.staging.target.owned import private_name
from hostprep.staging.unstage import unstage
from hostprep.staging.unstage_plan import UnstagePlan, plan_unstage
from hostprep.system.locks import lock
from hostprep.units import format_count
from hostprep.volumes.facts import gather
from hostprep.volumes.records import damaged_records as damaged_volume_records
from hostprep.volumes.records import record_name
from hostprep.volumes.removal import (
    UnmountPlan,
    UnmountRequest,
    apply_unmount,
    gather_and_plan_unmount,
    lacking_right_to_unmount,
    others_in,
    plan_unmount,
)
from hostprep.volumes.status import volume_statuses

_WHY = "hostprep made it, and the spec does not name it"
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class UnstageTask:
    """Removes a staged data set if all of it is as it was staged; its volume stays."""

    record: Record

    def carry_out(self, observer: Observer) -> None:
        """Plan again under the data set's lock, and remove."""
        purpose = f"hostprep apply --prune: {self.record.name}"
        with lock(self.record.lock, purpose=purpose, on_wait=observer.note):
            record = load_record(self.record.name, self.record.target)
            if record is None:
                return  # another run has unstaged it meanwhile
            plan = plan_unstage(record, fstab=False, observer=observer)
            if plan.foreign:
                raise _foreign(plan)
            left = unstage(plan, observer, release_volume=False).foreign
            if left:
                raise HostprepError(
                    f"{self.record.target}: {format_count(len(left), 'entry')} came while it was"
                    " removed, and was left; what was staged is gone.",
                    "move that away and run the same command again",
                )


@dataclass(frozen=True, slots=True)
class UnmountTask:
    """Unmounts an empty hostprep volume, and removes its line in fstab."""

    path: str

    def carry_out(self, observer: Observer) -> None:
        """Plan again, now that its data sets are gone, and unmount."""
        plan = gather_and_plan_unmount(UnmountRequest(self.path, fstab=True))
        apply_unmount(plan, on_wait=observer.note)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Data sets and volumes that the spec does not name; their plans are None without ``prune``.

    ``damaged`` says what is wrong with unreadable records, by the names of their files: it is not
    known what they describe, and so what would be removed. ``kept`` are those that the spec does
    not name either, but that something in the spec needs. ``prune``: removing was asked for.
    """

    datasets: tuple[tuple[Record, UnstagePlan | HostprepError | None], ...]
    volumes: tuple[tuple[str, UnmountPlan | HostprepError | None], ...]
    damaged: tuple[tuple[Kind, str, HostprepError], ...] = ()
    kept: tuple[Unchanged, ...] = ()
    prune: bool = False


def look_for_leftovers(
    targets: Collection[str],
    volumes: Collection[str],
    sources: Collection[str],
    *,
    prune: bool,
) -> Leftovers:
    """Look for what hostprep made besides the spec's ``targets`` and ``volumes``; changes nothing.

    A volume that contains anything of the spec is kept, and so is a data set that is, contains or
    is inside one of its ``sources``, because the next staging would have nothing to read. With
    ``prune``, plan the removal of all others.
    """
    kept: list[Unchanged] = []
    records: list[Record] = []
    for record in all_records():
        if record.target in targets:
            continue
        if source := _read_from(record.target, sources):
            kept.append(_kept(Kind.DATASET, record.target, f"the spec stages from {source}"))
        else:
            records.append(record)
    paths: list[str] = []
    for status in volume_statuses():
        if status.path in volumes:
            continue
        if why := _needed_for(status.path, targets, volumes, sources):
            also = ", with its line in fstab" if status.in_fstab else ""
            kept.append(_kept(Kind.VOLUME, status.path, why, also))
        else:
            paths.append(status.path)
    paths.sort(key=lambda path: (-path.count("/"), path))  # inner ones before the outer ones
    damaged = _damaged(targets, volumes)
    if not prune:
        return Leftovers(
            tuple((record, None) for record in records),
            tuple((path, None) for path in paths),
            damaged,
            tuple(kept),
        )
    silent = silent_ones([record.target for record in records], PATIENCE_SECONDS)
    datasets = tuple(
        (record, _unanswered(record) if record.target in silent else _look_at_unstaging(record))
        for record in records
    )
    going = [
        record for record, found in datasets if isinstance(found, UnstagePlan) and not found.foreign
    ]
    return Leftovers(datasets, _look_at_volumes(paths, going), damaged, tuple(kept), prune=True)


def _read_from(target: str, sources: Collection[str]) -> str | None:
    """Return the source that the data set at ``target`` is, contains or is inside."""
    meeting = (each for each in sources if lies_in(each, target) or lies_in(target, each))
    return min(meeting, default=None)


def _needed_for(
    path: str, targets: Iterable[str], volumes: Iterable[str], sources: Iterable[str]
) -> str | None:
    """Say what of the spec is in the volume at ``path``, None if nothing is."""
    for places, words in (
        (volumes, "it holds {}, which the spec names"),
        (targets, "it holds {}, where the spec stages to"),
        (sources, "it holds {}, from which the spec stages"),
    ):
        if inside := min((each for each in places if lies_in(each, path)), default=None):
            return words.format(inside)
    return None


def _kept(kind: Kind, subject: str, why: str, also: str = "") -> Unchanged:
    return Unchanged(kind, subject, f"the spec does not name it; {why}, so it stays{also}")


def _damaged(
    targets: Collection[str], volumes: Collection[str]
) -> tuple[tuple[Kind, str, HostprepError], ...]:
    """Return the unreadable records, except the spec's own, whose plans report them."""
    own = {record_id(os.path.basename(target), target) for target in targets}
    own |= {record_name(path) for path in volumes}
    groups = ((Kind.DATASET, damaged_records()), (Kind.VOLUME, damaged_volume_records()))
    return tuple(
        (kind, name, error)
        for kind, found in groups
        for name, error in found.items()
        if name not in own
    )


def going_volumes(leftovers: Leftovers, needed: Collection[str]) -> dict[str, Freed]:
    """Return the mounted volumes that will be unmounted, and the memory that each gives back.

    Without those that contain any of ``needed``: paths that must still exist meanwhile.
    """
    return {
        path: Freed(plan.live.used_bytes, plan.live.promised_bytes)
        for path, plan in leftovers.volumes
        if isinstance(plan, UnmountPlan) and plan.refusal is None and plan.live is not None
        if not any(lies_in(each, path) for each in needed)
    }


def plan_leftovers(leftovers: Leftovers) -> tuple[ObjectPlan, ...]:
    """Return the plans for leftovers, data sets before the volumes that contain them. Pure."""
    return (
        *(_plan_dataset(record, plan) for record, plan in leftovers.datasets),
        *(_plan_volume(path, plan, leftovers) for path, plan in leftovers.volumes),
        *(_plan_damaged(*each, prune=leftovers.prune) for each in leftovers.damaged),
        *(ObjectPlan(each.kind, each.subject, unchanged=(each,)) for each in leftovers.kept),
    )


def _look_at_unstaging(record: Record) -> UnstagePlan | HostprepError:
    try:
        return plan_unstage(record, fstab=False)
    except HostprepError as problem:
        return problem


def _unanswered(record: Record) -> HostprepError:
    return no_answer(
        f"{record.target} did not answer within {PATIENCE_SECONDS:g} s; nothing was changed.",
        f"if it is gone for good: hostprep unstage {shlex.quote(record.target)} --forget",
    )


def _look_at_volumes(
    paths: Iterable[str], records: Collection[Record]
) -> tuple[tuple[str, UnmountPlan | HostprepError], ...]:
    """Plan the unmounting of each, inner ones first, as if the data sets were gone."""
    found: dict[str, UnmountPlan | HostprepError] = {}
    going = _Going({record.target for record in records}, set(), set())
    going.entries.update(
        f"{os.path.dirname(record.target)}/{private_name(record.name)}" for record in records
    )
    for path in paths:
        plan = found[path] = _look_at_unmounting(path, going)
        if isinstance(plan, UnmountPlan) and plan.refusal is None:
            if plan.unmount:  # otherwise something of somebody else's is there, and stays
                going.volumes.add(path)
            going.directories.update(plan.remove_dirs)
    return tuple(found.items())


@dataclass(frozen=True, slots=True)
class _Going:
    """What will be gone: data sets with their private directories, and volumes.

    With the directories that hostprep made for those and removes if they are empty.
    """

    entries: set[str]
    volumes: set[str]
    directories: set[str]

    def leaves(self, path: str) -> bool:
        """Whether what is at ``path`` will still be there."""
        if path in self.entries:
            return False
        if path not in self.directories:
            return True
        if path in self.volumes:
            return False
        if os.path.islink(path) or not os.path.isdir(path):
            return True  # something else is in the place of what hostprep made
        return any(self.leaves(f"{path}/{name}") for name in os.listdir(path))


def _look_at_unmounting(path: str, going: _Going) -> UnmountPlan | HostprepError:
    """Plan as if all of ``going`` were gone already."""
    try:
        facts = gather(path)
        users = others_in(facts.path) if facts.is_ours else ()
    except HostprepError as problem:
        return problem
    below = tuple(each for each in facts.mounts_below if each not in going.volumes)
    facts = replace(facts, mounts_below=below)
    # Do not look into a mount that stays: that may hang, and the mount is a reason to refuse
    # anyway.
    if facts.live is not None and not below and os.access(path, os.R_OK):
        try:
            names = sorted(os.listdir(path))
            entries = tuple(name for name in names if going.leaves(f"{path}/{name}"))
        except OSError as error:
            said = f"what is in {path} cannot be listed: {error.strerror}; nothing was changed."
            return HostprepError(said, reading_hint(error))
        facts = replace(facts, place=replace(facts.place, entries=entries[:_MOST_NAMED]))
    plan = plan_unmount(UnmountRequest(path, fstab=True), facts, users)
    barred = lacking_right_to_unmount(plan) if os.geteuid() == 0 else None
    return barred or plan


def _plan_dataset(record: Record, plan: UnstagePlan | HostprepError | None) -> ObjectPlan:
    target = record.target  # the spec may use its name for another
    if plan is None:
        return ObjectPlan.prunable(Kind.DATASET, target, f"{_WHY}: --prune removes it")
    if isinstance(plan, UnstagePlan) and plan.foreign:
        plan = _foreign(plan)
    if isinstance(plan, HostprepError):
        return ObjectPlan.refused(Kind.DATASET, target, plan)
    action = f"remove its {format_count(plan.files, 'entry')}"
    if not (plan.published or plan.hidden):
        action = "forget it, since it is not there"
    change = Change(Kind.DATASET, target, action, _WHY)
    return ObjectPlan(Kind.DATASET, target, changes=(change,), task=UnstageTask(record))


def _plan_damaged(kind: Kind, name: str, error: HostprepError, *, prune: bool) -> ObjectPlan:
    """Leave unknown things alone, but refuse to prune: claiming success would be a lie."""
    if prune:
        return ObjectPlan.refused(kind, name, error)
    reason = f"{error.message.removesuffix('.')}; whatever it describes is left alone"
    return ObjectPlan.kept(kind, name, reason)


def _foreign(plan: UnstagePlan) -> Refused:
    named = ", ".join(plan.foreign[:_MOST_NAMED])
    hint = "move that away, or name the data set in the spec"
    if plan.hidden:
        hint = f"`hostprep unstage {shlex.quote(plan.record.target)}` puts that back in its place"
    return Refused(
        f"{plan.record.target} holds {format_count(len(plan.foreign), 'entry')} added or"
        f" changed since it was staged ({named}), which hostprep does not remove; nothing was"
        " changed.",
        hint,
    )


def _plan_volume(
    path: str, plan: UnmountPlan | HostprepError | None, leftovers: Leftovers
) -> ObjectPlan:
    if plan is None:
        return ObjectPlan.prunable(Kind.VOLUME, path, f"{_WHY}: --prune removes it")
    if isinstance(plan, UnmountPlan) and plan.refusal is not None:
        plan = plan.refusal
    if isinstance(plan, HostprepError):
        return ObjectPlan.refused(Kind.VOLUME, path, plan)
    inside = [
        (Kind.DATASET, record.target)
        for record, _ in leftovers.datasets
        if record.volume is not None and lies_in(record.volume, path)
    ]
    inside += [(Kind.VOLUME, other) for other, _ in leftovers.volumes if lies_in(other, path)]
    changes = tuple(replace(change_of(step, path), reason=_WHY) for step in plan.changes)
    return ObjectPlan(
        Kind.VOLUME,
        path,
        changes=changes,
        warnings=plan.warnings,
        task=UnmountTask(path) if changes else None,
        after=tuple(key for key in inside if key != (Kind.VOLUME, path)),
    )
