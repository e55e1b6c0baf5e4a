"""Where a run begins: the target is opened, its private directory made, and the record of it."""

from __future__ import annotations

import dataclasses
import os
from contextlib import suppress

from hostprep.errors import HostprepError, Refused
from hostprep.host.capabilities import Capability, has_capability
from hostprep.host.mounts import Mount
from hostprep.staging.naming import check_names
from hostprep.staging.outcome import record_of
from hostprep.staging.planning import StagePlan, purpose_of
from hostprep.staging.plans.in_flight import in_flight, in_flight_in_memory, taken_in_the_end
from hostprep.staging.plans.space import (
    check_memory,
    check_space,
    directory_space,
    fits,
    memory_budget,
    reclaiming,
)
from hostprep.staging.record.records import forget, save_record
from hostprep.staging.target.place import check_in_volume, open_parent
from hostprep.staging.target.private import PrivateDir, footprint, is_there, prepare
from hostprep.staging.target.spelling import Spelling
from hostprep.staging.tasks import Copied


def open_target(plan: StagePlan) -> int:
    """Open what the data set is to lie in; an error where that is not the plan's volume."""
    parent = plan.request.parent
    descriptor = open_parent(parent, make=plan.volume is None)
    try:
        if plan.volume is not None:
            check_in_volume(descriptor, parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def begin(
    plan: StagePlan, parent_fd: int, mount: Mount | None, *, first: bool
) -> tuple[PrivateDir, Spelling]:
    """Return the private directory, and how names are kept in it.

    The record comes first: before a first publication, so that ``status`` and ``unstage`` know of
    whatever a run that is killed leaves on the target, and always, so that other runs know of what
    this one is still to take there. Raises ``Refused`` where one that has begun since the plan was
    made needs the room.
    """
    request, previous = plan.request, plan.previous
    record = previous
    if first or previous is None:
        blank = record_of(plan, Copied(), None, mount)
        record = dataclasses.replace(blank, phase="copying")
    assert record is not None
    takes = first or bool(plan.files.copied.files)
    if takes:
        needed_bytes, needed_inodes = taken_in_the_end(plan.files, first=first)
        record = dataclasses.replace(record, needed_bytes=needed_bytes, needed_inodes=needed_inodes)
        save_record(record, durable=not plan.in_ram)
    try:
        if takes:
            _check_room_beside_others(plan, parent_fd)
        private = prepare(parent_fd, purpose_of(request))
        try:
            return private, check_names(plan.scan, private, None if mount is None else mount.fstype)
        except (HostprepError, OSError):
            if not private.resumable:
                with suppress(OSError):
                    private.remove()
            private.close()
            raise
    except (HostprepError, OSError):
        if takes and not first and previous is not None:
            with suppress(OSError):
                save_record(previous, durable=not plan.in_ram)
        if first and previous is None and not _left_something(parent_fd, request.target):
            forget(record)
        raise


def _check_room_beside_others(plan: StagePlan, parent_fd: int) -> None:
    """Raise ``Refused`` where others have begun since the plan was made, and the room is theirs.

    By now they know of this run too: of two that begin in the same moment none may go on.
    """
    request, files = plan.request, plan.files
    in_memory = plan.volume is None and plan.in_ram
    names = in_flight(request).names
    names += in_flight_in_memory(request).names if in_memory else ()
    if frozenset(plan.space.others.names).issuperset(names):
        return
    space = directory_space(request, files)
    if not fits(space):
        space = reclaiming(space, *footprint(parent_fd, request.name), files)
    refusal = check_space(request, space)
    if refusal is None and in_memory and (memory := memory_budget(request, space)):
        refusal = check_memory(request, memory)
    if refusal is not None:
        raise refusal


def _left_something(parent_fd: int, target: str) -> bool:
    try:
        return is_there(parent_fd, target)
    except Refused:
        return False  # what is there is somebody else's


def is_all_new(plan: StagePlan, private: PrivateDir, spelling: Spelling, *, first: bool) -> bool:
    """Whether what is copied is final: nothing is there before, and nothing comes after it.

    What goes to a disk may be copied once more, and to who keeps to modes, as root does in some
    containers, directories that are closed to their owner would be in the way of the run that goes
    on after an interruption.
    """
    may_go_on = os.geteuid() == 0 and has_capability(Capability.DAC_OVERRIDE)
    return first and plan.in_ram and not private.resumable and spelling.sure and may_go_on
