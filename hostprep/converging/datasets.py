"""A spec's data sets: looked at through the planner of ``stage``, staged by its executor."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from hostprep.converging.model import Change, Kind, ObjectPlan, Problem, Staged, Unchanged
from hostprep.converging.sources import Patient, SourceAway, kept_target, real_paths
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused
from hostprep.host.answering import NoAnswer
from hostprep.host.boot import boot_id
from hostprep.host.cpu import usable_cpus
from hostprep.spec import DatasetSpec
from hostprep.staging.bound import bound_of
from hostprep.staging.model import StageRequest, cure_of
from hostprep.staging.observer import Observer
from hostprep.staging.planning import StagePlan, plan_stage, stage_lock
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.plans.space import check_space
from hostprep.staging.plans.update import who_changed
from hostprep.staging.record.manifest import ManifestIndex, manifest_path
from hostprep.staging.record.records import Record, folder_of
from hostprep.staging.shortfall import shortfall_of
from hostprep.staging.source.opening import check_name
from hostprep.staging.stage import carry_out
from hostprep.staging.target.place import standing_directory
from hostprep.system.locks import lock
from hostprep.units import format_bytes, format_count
from hostprep.volumes.model import RamBudget

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class DatasetTask:
    """Stages one data set, or brings it up to date."""

    request: StageRequest

    def carry_out(self, observer: Observer) -> Staged:
        """Plan once more under the data set's lock, now that its volume is there, and stage."""
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
    """A data set of the spec and what this host says to it, in words and numbers.

    ``target`` is where it appears, without symlinks. ``needed_bytes`` and ``needed_inodes`` are
    what staging it will yet take on the target. ``action`` of None: it is whole and fresh.
    ``device`` and ``free_bytes`` are of the file system that it is staged to, None for a volume.
    ``budget`` is what it takes of the machine's memory, None where it goes to a disk or a volume.
    ``problem`` is why it cannot be staged, if it cannot. ``away``: its source cannot be looked at,
    and must not be asked again.
    """

    spec: DatasetSpec
    target: str
    request: StageRequest | None = None
    needed_bytes: int = 0
    needed_inodes: int = 0
    device: int | None = None
    free_bytes: int = 0
    budget: RamBudget | None = None
    action: str | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    problem: HostprepError | None = None
    away: bool = False


def look_at_dataset(
    spec: DatasetSpec, volume_bytes: int | None, reserve_bytes: int | None, observer: Observer
) -> DatasetLook:
    """Plan the staging of a data set and return what came of it; changes nothing.

    ``volume_bytes`` is the size that its volume will have, None for one staged to a directory. A
    source or a target that does not answer is a problem after a while, see ``sources``. One that is
    staged, and whole, needs no source: then all else of the host can be mended without it.
    """
    try:
        source, parent = real_paths(spec)
        request = StageRequest(
            source=source,
            name=check_name(spec.name),
            parent=parent,
            volume_size_bytes=volume_bytes,
            reserve_bytes=reserve_bytes,
        )
        with plan_stage(request, Patient(observer, source)) as plan:
            return _seen(spec, plan)
    except (NoAnswer, SourceAway) as problem:
        return _without_source(spec, problem)
    except HostprepError as problem:
        return DatasetLook(spec, spec.target, problem=problem)


def plan_datasets(looks: Sequence[DatasetLook]) -> tuple[ObjectPlan, ...]:
    """Return the plans of the data sets, from what was seen of them. Pure.

    Those on one file system share its room, as those on a volume do, which the volume's plan sees;
    those in memory share that, on whichever tmpfs they are.
    """
    taken: dict[int, int] = {}
    in_memory = 0
    names = Counter(look.spec.name for look in looks)
    plans = []
    for index, look in enumerate(looks):
        problem = look.problem or _in_one_place(look, looks[:index])
        if look.device is not None:
            before = taken.get(look.device, 0)
            taken[look.device] = before + look.needed_bytes
            if before and taken[look.device] > look.free_bytes:
                problem = _no_room(look, before)
        if look.budget is not None:
            together = dataclasses.replace(
                look.budget, growth_bytes=look.budget.growth_bytes + in_memory
            )
            if in_memory and not together.fits:
                problem = problem or _no_memory(look, together, in_memory)
            in_memory = together.growth_bytes
        # Two may have one name in two places; then each goes by its place.
        subject = look.spec.name if names[look.spec.name] == 1 else look.target
        plans.append(_plan_dataset(look, subject, problem))
    return tuple(plans)


def _in_one_place(look: DatasetLook, earlier: Iterable[DatasetLook]) -> Refused | None:
    """Refuse what would lie where an earlier one does, or one inside the other.

    The spec was checked for that by its words; here the symlinks are known.
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


def _no_room(look: DatasetLook, taken_bytes: int) -> Refused:
    return Refused(
        f"{look.spec.name} takes {format_bytes(look.needed_bytes)} on the file system of"
        f" {look.spec.parent}, where {format_bytes(look.free_bytes)} are free and the spec's other"
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
        "put one of them onto a disk, or choose a smaller --reserve",
    )


def _plan_dataset(look: DatasetLook, name: str, problem: HostprepError | None) -> ObjectPlan:
    if problem is not None:
        refusal = Problem.of(Kind.DATASET, name, problem)
        return ObjectPlan(Kind.DATASET, name, warnings=look.warnings, refusal=refusal)
    if look.action is None:
        kept = Unchanged(Kind.DATASET, name, f"{look.target} is {look.reason}")
        return ObjectPlan(Kind.DATASET, name, unchanged=(kept,), warnings=look.warnings)
    assert look.request is not None
    return ObjectPlan(
        Kind.DATASET,
        name,
        changes=(Change(Kind.DATASET, name, look.action, look.reason),),
        warnings=look.warnings,
        task=DatasetTask(look.request),
        after=((Kind.VOLUME, look.spec.volume),) if look.spec.volume else (),
    )


def _without_source(spec: DatasetSpec, problem: NoAnswer | SourceAway) -> DatasetLook:
    target, away = kept_target(spec), isinstance(problem, NoAnswer)
    if target is None:
        return DatasetLook(spec, spec.target, problem=problem, away=away)
    why = problem.message.removesuffix("; nothing was changed.")
    warning = f"{why}: {target} stays as it was staged, and whether it is fresh is not known"
    reason = "whole by its manifest; whether it is fresh is not known, since its source is away"
    return DatasetLook(spec, target, reason=reason, warnings=(warning,), away=True)


def _seen(spec: DatasetSpec, plan: StagePlan) -> DatasetLook:
    files, request = plan.files, plan.request
    failed = [item for item in files.skipped if item.failed]
    look = DatasetLook(
        spec,
        request.target,
        request,
        warnings=_warnings(plan),
        problem=_problem(plan),
        reason="whole and fresh"
        + (f", but for {format_count(len(failed), 'entry')}" if failed else ""),
    )
    if plan.is_fresh or look.problem is not None:
        return look
    if failed:
        named = ", ".join(f"{item.path} ({item.reason})" for item in failed[:_MOST_NAMED])
        problem = HostprepError(
            f"{format_count(len(failed), 'entry')} of {request.source} cannot be staged: {named};"
            " nothing was changed.",
            f"{cure_of(failed)}, or stage the rest yourself: `{_stage_command(request)} --partial`",
        )
        return dataclasses.replace(look, problem=problem)
    return dataclasses.replace(
        look,
        needed_bytes=max(0, files.space_needed() - _reclaimed(plan)),
        needed_inodes=files.inodes_needed(),
        device=None if plan.volume is not None else _device(request.parent),
        free_bytes=plan.space.free_bytes,
        budget=plan.budget if plan.volume is None else None,
        action=_action(plan),
        reason=_reason(plan),
    )


def _stage_command(request: StageRequest) -> str:
    """Return the command that stages a data set of the spec by itself."""
    place = f"--to {shlex.quote(request.parent)}"
    if request.volume_size_bytes is not None:
        place = f"--to-tmpfs {request.volume_size_bytes} --at {shlex.quote(request.parent)}"
    source, name = shlex.quote(request.source), shlex.quote(request.name)
    return f"hostprep stage {source} {place} --name {name}"


def _problem(plan: StagePlan) -> HostprepError | None:
    """Return what forbids the run, but for what its volume tells of itself: rules, and its room."""
    if plan.volume is None or plan.refusal is None:
        return plan.refusal
    room = check_space(plan.request, plan.space)
    of_volume = (plan.volume.refusal, room)
    told = any(each is not None and each.message == plan.refusal.message for each in of_volume)
    return None if told else plan.refusal


def _reclaimed(plan: StagePlan) -> int:
    """Return what an interrupted run left and this one clears away first, in bytes."""
    if plan.volume is None:
        return 0
    used = plan.volume.live.used_bytes if plan.volume.live is not None else 0
    return max(0, plan.space.free_bytes - max(0, plan.volume.size_bytes - used))


def _device(path: str) -> int:
    """Return which file system ``path``, or the nearest folder above it, lies on."""
    return os.stat(standing_directory(path)).st_dev


def _action(plan: StagePlan) -> str:
    files, request = plan.files, plan.request
    deleted = len(files.delete) + len(files.delete_directories)
    parts = [
        f"{verb} {format_count(count, noun)}{words}"
        for verb, count, noun, words in (
            ("make", len(files.links), "hard link", ""),
            ("delete", deleted, "entry", " that the source lacks"),
            ("take up", files.resumed.files, "file", " of an interrupted run"),
        )
        if count
    ]
    copied = f"{format_count(files.copied.files, 'file')}, {format_bytes(files.copied.bytes)}"
    if not plan.published:
        return ", ".join([f"stage {request.source} to {request.target}: copy {copied}", *parts])
    if files.copied.files:
        parts.insert(0, f"copy {copied}")
    if files.make_directories:
        count = format_count(len(files.make_directories), "directory")
        parts.append(f"set mode, owner and times of {count}")
    return f"bring {request.target} up to date: {', '.join(parts) or 'finish its record'}"


def _reason(plan: StagePlan) -> str:
    previous = plan.previous
    if previous is not None and previous.phase == "removing":
        return "it was unstaged in part"
    if previous is not None and previous.phase != "staged":
        return "a run was interrupted"
    if previous is not None and plan.published:
        return _who_changed(plan.files, previous)
    if previous is None:
        return "it is not there"
    if previous.volume is not None and previous.boot_id != boot_id():
        return "the volume lost it when the machine was rebooted"
    return "it was staged, and is gone from its target"


def _who_changed(files: CopyPlan, previous: Record) -> str:
    """Say whether source or copy is another than at the staging, by the manifest."""
    manifest = ManifestIndex([manifest_path(folder_of(previous))])
    try:
        source, copy = who_changed(files, manifest)
    finally:
        manifest.close()
    if source:
        also = ", and files of the copy were changed or deleted by hand" if copy else ""
        return f"the source has changed since it was staged{also}"
    if copy:
        return "the source is as it was staged: files of the copy were changed or deleted by hand"
    return "its directories have other times or modes than the source's"


def _warnings(plan: StagePlan) -> tuple[str, ...]:
    foreign = plan.files.foreign
    if not foreign:
        return ()
    named = ", ".join(foreign[:_MOST_NAMED])
    return (
        f"{plan.request.target} holds {format_count(len(foreign), 'entry')} not staged by hostprep"
        f" ({named}), to be left alone",
    )
