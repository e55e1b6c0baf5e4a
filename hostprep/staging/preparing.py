"""The beginning of a run: the volume, the target, its private directory, and the record."""

from __future__ import annotations

import dataclasses
import os
from contextlib import suppress

from hostprep.errors import HostprepError, Refused
from hostprep.host.capabilities import Capability, has_capability
from hostprep.host.mounts import Mount
from hostprep.staging.model import StageRequest
from hostprep.staging.naming import check_names
from hostprep.staging.observer import Count, Observer
from hostprep.staging.outcome import record_of
from hostprep.staging.planning import StagePlan, purpose_of
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.plans.in_flight import in_flight, in_flight_in_memory, taken_in_the_end
from hostprep.staging.plans.space import (
    check_memory,
    check_space,
    directory_space,
    room_for,
    volume_request,
    volume_space,
)
from hostprep.staging.record.records import Record, forget, save_record
from hostprep.staging.target.held import open_held
from hostprep.staging.target.place import check_in_volume, open_parent
from hostprep.staging.target.private import PrivateDir, is_there, prepare
from hostprep.staging.target.spelling import Spelling
from hostprep.staging.tasks import Copied
from hostprep.system.descriptors import closed_on_error
from hostprep.system.locks import Locked
from hostprep.volumes.apply import AppliedVolume, Overtaken, apply_volume
from hostprep.volumes.facts import gather
from hostprep.volumes.plan import VolumePlan, plan_volume

# How many other runs may overtake this one in growing the same volume.
_OTHER_RUNS = 8


def make_volume(plan: StagePlan, volume: VolumePlan, observer: Observer) -> AppliedVolume:
    """Make the volume as planned and return what was done to it.

    It is planned again if another run has made or grown it meanwhile and nothing of the data set
    was in it, on which the rest of the plan would rely. Raises as ``apply_volume`` does, and
    ``Refused`` if the data set does not fit any more.
    """
    for _ in range(_OTHER_RUNS):
        try:
            return apply_volume(volume, on_wait=observer.note)
        except Overtaken:
            volume = _planned_again(plan.request, plan.files)
            if plan.published or plan.files.resumed.files or volume.mount:
                raise
    return apply_volume(volume, on_wait=observer.note)


def _planned_again(request: StageRequest, files: CopyPlan) -> VolumePlan:
    facts = gather(request.parent)
    volume = plan_volume(volume_request(request, files, facts.live), facts)
    refusal = volume.refusal or check_space(request, volume_space(request, files, volume))
    return dataclasses.replace(volume, refusal=refusal)


def open_target(plan: StagePlan) -> int:
    """Open the directory for the data set; raise an error if it is not in the plan's volume."""
    parent = plan.request.parent
    descriptor = open_parent(parent, make=plan.volume is None)
    with closed_on_error(descriptor):
        if plan.volume is not None:
            check_in_volume(descriptor, parent)
    return descriptor


def begin(
    plan: StagePlan, parent_fd: int, mount: Mount | None, observer: Observer, *, first: bool
) -> tuple[PrivateDir, Spelling]:
    """Return the private directory, and how names are kept in it.

    The record is written first: before a first publication, so that ``status`` and ``unstage`` know
    what a killed run leaves on the target, and whenever something is copied, so that other runs
    know what this one will still take there. Raises ``Refused`` if a run that has begun since the
    plan was made needs the room, ``Locked`` if one without common locks is at work there.
    """
    request, previous = plan.request, plan.previous
    takes = first or bool(plan.files.copied.files)
    # Before anything is recorded: runs without common locks may have the same records.
    found = open_held(parent_fd, request.target)
    with closed_on_error(found):
        record = _recorded(plan, mount, first=first, takes=takes)
    try:
        with closed_on_error(found):
            if takes:
                _check_room_beside_others(plan, parent_fd)
        observer.phase("clear")
        on_removed = Count(observer).add
        private = prepare(parent_fd, purpose_of(request), plan.then, found, on_removed)
        try:
            return private, check_names(plan.scan, private, None if mount is None else mount.fstype)
        except (HostprepError, OSError):
            if not private.resumable:
                with suppress(OSError):
                    private.remove()
            private.close()
            raise
    except (HostprepError, OSError) as error:
        if takes and not first and previous is not None:
            with suppress(OSError):
                save_record(previous, durable=not plan.in_ram)
        others = isinstance(error, Locked)  # what is there is another run's
        if (
            first
            and previous is None
            and (others or not _left_something(parent_fd, request.target))
        ):
            forget(record)
        raise


def _recorded(plan: StagePlan, mount: Mount | None, *, first: bool, takes: bool) -> Record:
    """Return the record of a run that begins, and save it if the run ``takes`` room."""
    record = plan.previous
    if first or record is None:
        blank = record_of(plan, Copied(), None, mount)
        record = dataclasses.replace(blank, phase="copying")
    record = dataclasses.replace(record, failure=None)
    if takes:
        needed_bytes, needed_inodes = taken_in_the_end(plan.files, first=first)
        record = dataclasses.replace(record, needed_bytes=needed_bytes, needed_inodes=needed_inodes)
        save_record(record, durable=not plan.in_ram)
    return record


def _check_room_beside_others(plan: StagePlan, parent_fd: int) -> None:
    """Raise ``Refused`` if others have begun since the plan was made and need the room.

    They know of this run by now too, so if two begin at the same moment, both may have to stop.
    """
    request, files = plan.request, plan.files
    in_memory = plan.volume is None and plan.in_ram
    names = in_flight(request).names
    names += in_flight_in_memory(request).names if in_memory else ()
    if frozenset(plan.space.others.names).issuperset(names):
        return
    space = directory_space(request, files)
    space, memory = room_for(request, files, space, parent_fd, in_memory=in_memory)
    refusal = check_space(request, space)
    if refusal is None and memory is not None:
        refusal = check_memory(request, memory)
    if refusal is not None:
        raise refusal


def _left_something(parent_fd: int, target: str) -> bool:
    try:
        return is_there(parent_fd, target)
    except Refused:
        return False  # what is there is somebody else's


def is_all_new(plan: StagePlan, private: PrivateDir, spelling: Spelling, *, first: bool) -> bool:
    """Whether copies are final: nothing was there before, and nothing comes after them.

    Copies on a disk may be made once more. And if modes bind this user, as they do root in some
    containers, directories that are closed to their owner would block the run that continues after
    an interruption.
    """
    may_go_on = os.geteuid() == 0 and has_capability(Capability.DAC_OVERRIDE)
    return first and plan.in_ram and not private.resumable and spelling.sure and may_go_on
