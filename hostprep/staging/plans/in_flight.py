"""What other runs have yet to write to the place of a data set, or to the memory that it takes.

Whether a data set fits is checked before anything is written. Two runs that begin one after the
other would both find the same room free, and if it is enough for only one, both would fail
half-way.
Known are the runs of this user and of root that copy anything, from before their first copy until
they publish.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from hostprep.dataclass import dataclass
from hostprep.host.block import IN_MEMORY
from hostprep.host.mounts import read_mounts
from hostprep.staging.model import StageRequest
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.record.records import Record, all_records
from hostprep.staging.target.place import mount_below
from hostprep.staging.target.private import footprint
from hostprep.system.descriptors import closing_fd
from hostprep.system.locks import is_locked
from hostprep.system.trees import DIRECTORY_FLAGS
from hostprep.volumes.facts import is_volume


@dataclass(frozen=True, slots=True)
class InFlight:
    """The bytes and inodes that will still be taken, and by which data sets."""

    size_bytes: int = 0
    inodes: int = 0
    names: tuple[str, ...] = ()


NOTHING = InFlight()


def in_flight(request: StageRequest) -> InFlight:
    """Return what other active runs will still take of the target's file system."""
    at_work = _others(request)
    mount = mount_below(request.parent) if at_work else None
    is_mounted = request.volume_size_bytes is None or (mount and mount.target == request.parent)
    if mount is None or not is_mounted:
        return NOTHING
    return _sum(record for record in at_work if record.target_mount == mount.target)


def in_flight_in_memory(request: StageRequest) -> InFlight:
    """Return what they will still take of the memory, apart from what volumes are promised."""
    if not (at_work := _others(request)):
        return NOTHING
    used = {record.target_mount for record in at_work}
    places = {
        mount.target
        for mount in read_mounts()
        if mount.target in used and mount.fstype in IN_MEMORY and not is_volume(mount)
    }
    return _sum(record for record in at_work if record.target_mount in places)


def _others(request: StageRequest) -> list[Record]:
    return [
        record
        for record in all_records()
        if record.needed_inodes and record.phase != "removing" and record.target != request.target
    ]


def _sum(at_work: Iterable[Record]) -> InFlight:
    found = [
        (*_left_to_take(record), record.name)
        for record in at_work
        if is_locked(record.lock)  # a killed run will take no more than it has
    ]
    sizes, inodes, names = zip(*found, strict=True) if found else ((), (), ())
    return InFlight(sum(sizes), sum(inodes), names)


def taken_in_the_end(files: CopyPlan, *, first: bool) -> tuple[int, int]:
    """Return the (bytes, inodes) that a run's copies take, including what it takes over.

    It is rather too little than too much, because a run that would succeed must not be refused. It
    leaves out the journal, which is removed at the end, and, except for a ``first`` copy,
    directories, most of which already exist.
    """
    size_bytes = files.content_space() + files.resumed.bytes
    inodes = files.inodes_needed() if first else files.copied.files
    return size_bytes, inodes + files.resumed.files


def _left_to_take(record: Record) -> tuple[int, int]:
    size_bytes = inodes = 0
    with (
        suppress(OSError),
        closing_fd(os.open(os.path.dirname(record.target), DIRECTORY_FLAGS)) as parent_fd,
    ):
        size_bytes, inodes = footprint(parent_fd, record.name)
    return max(0, record.needed_bytes - size_bytes), max(0, record.needed_inodes - inodes)
