"""Whether records, locks and services can be written: asked before the first change.

Nothing is tried out, because a plan changes nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from hostprep.converging.model import Kind, ObjectPlan, Problem
from hostprep.errors import HostprepError, Refused, UsageError, without_claim
from hostprep.host.block import MADE_UP
from hostprep.host.mounts import mount_containing, read_mounts
from hostprep.system.files import new_file_obstacle
from hostprep.system.following import followed
from hostprep.system.state import (
    cannot_lock,
    cannot_remember,
    readable_state_dirs,
    remembered,
    run_dir,
    state_dir,
)
from hostprep.system.systemd import unit_dir

# Where each kind is recorded, below the state directory; the system records packages itself.
_FOLDERS = {
    Kind.VOLUME: "volumes",
    Kind.FSTAB: "volumes",
    Kind.DATASET: "datasets",
    Kind.BOOT: "boot",
}


def check_readable() -> None:
    """Raise ``Refused`` if the records cannot be read, because then it is unknown what is ours.

    Raises ``UsageError`` if a variable names a place that cannot be one for records.
    """
    folders = tuple(dict.fromkeys(_FOLDERS.values()))
    try:
        for place in (state / folder for state in readable_state_dirs() for folder in folders):
            if os.path.lexists(place) and not place.is_dir():
                raise Refused(
                    f"{place} is not a directory, and hostprep's records should be in it: what"
                    " hostprep made on this host is not known; nothing was changed.",
                    "move it away, or name another directory for its records:"
                    " HOSTPREP_STATE_DIR=DIR",
                )
        for folder in folders:
            tuple(remembered(folder))
    except UsageError:
        raise
    except HostprepError as error:
        raise Refused(error.message, error.hint) from None


def unkept_kinds() -> dict[Kind, HostprepError]:
    """Return the kinds for which nothing can be done here, because its records cannot be written.

    To be called as the user who would carry the plan out; any user may look at root's plan.
    """
    found: dict[Kind, HostprepError] = {}
    state, run = state_dir(), run_dir()
    for kind, folder in _FOLDERS.items():
        if why := unwritable(state) or unwritable(state / folder):
            found[kind] = cannot_remember(state, why)
        elif kind is not Kind.BOOT and (why := unwritable(run)):
            found[kind] = cannot_lock(run, why)
        elif kind is Kind.BOOT and (why := unwritable(unit_dir())):
            found[kind] = Refused(
                f"hostprep could not change its services in {unit_dir()}: {why}; nothing was"
                " changed.",
                "fix that",
            )
    return found


def refuse_unkept(
    objects: Iterable[ObjectPlan], unkept: Mapping[Kind, HostprepError]
) -> tuple[ObjectPlan, ...]:
    """Return the plans, the first of those with the same obstacle as a refusal. Pure."""
    told: set[str] = set()
    found = []
    for each in objects:
        problem = unkept.get(each.kind) if each.task is not None else None
        if problem is not None and problem.message not in told:
            told.add(problem.message)
            refusal = Problem.of(each.kind, each.subject, problem)
            each = replace(each, changes=(), refusal=refusal, task=None)
        found.append(each)
    return tuple(found)


def check_kept(kinds: Collection[Kind]) -> None:
    """Raise ``Refused`` if something of one of ``kinds`` could not be done."""
    for kind, problem in unkept_kinds().items():
        if kind in kinds:
            raise problem


def unwritable(directory: Path) -> str | None:
    """Say why no file can be made in a directory (made if it is missing); otherwise None."""
    place = directory
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return f"{place} is not a directory"
    try:
        mount = mount_containing(followed(place), read_mounts())
    except HostprepError as error:
        return f"{place} cannot be looked at: {without_claim(error.message).removesuffix('.')}"
    except OSError as error:
        return f"{place} cannot be looked at: {error.strerror or error}"
    if mount is not None and mount.fstype in MADE_UP:
        return f"the kernel generates all that is in {place} ({mount.fstype})"
    code = new_file_obstacle(place)
    match code:
        case None:
            return None
        case errno.EROFS:
            return f"the file system of {place} is mounted read-only"
        case errno.ENOSPC:
            return f"the file system of {place} is full"
        case errno.EPERM | errno.EACCES:
            return f"{place} may not be written to"
    return f"{place} cannot be looked at: {os.strerror(code)}"
