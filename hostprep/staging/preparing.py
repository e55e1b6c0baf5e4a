"""Where a run begins: the target is opened, its private directory made, and the record of it."""

from __future__ import annotations

import dataclasses
import os
from contextlib import suppress

from hostprep.errors import HostprepError, Refused
from hostprep.host.mounts import Mount
from hostprep.staging.naming import check_names
from hostprep.staging.outcome import record_of
from hostprep.staging.planning import StagePlan, purpose_of
from hostprep.staging.record.records import forget, save_record
from hostprep.staging.target.place import check_in_volume, open_parent
from hostprep.staging.target.private import PrivateDir, is_there, prepare
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

    Before a first publication the record of it comes first, so that ``status`` and ``unstage`` know
    of whatever a run that is killed leaves on the target.
    """
    request = plan.request
    target_mount = None if mount is None else mount.target
    record = dataclasses.replace(record_of(plan, Copied(), None, target_mount), phase="copying")
    if first:
        save_record(record, durable=not plan.in_ram)
    try:
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
        if first and plan.previous is None and not _left_something(parent_fd, request.target):
            forget(record)
        raise


def _left_something(parent_fd: int, target: str) -> bool:
    try:
        return is_there(parent_fd, target)
    except Refused:
        return False  # what is there is somebody else's
