"""What an update refuses to do to things that others have put on the target."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Set

from hostprep.errors import Refused
from hostprep.host.capabilities import knows_other_users
from hostprep.host.mounts import mount_of, read_mounts
from hostprep.staging.model import Entry, Recorded
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.plans.target_tree import TargetTree
from hostprep.staging.source.scan import Scan
from hostprep.staging.target.place import keeps_numbers
from hostprep.system.trees import above


def refuse_taken_places(plan: CopyPlan, replaced: Set[str]) -> None:
    """Refuse if the source has something new in a place that others have taken.

    ``replaced`` are places where a file becomes a directory or the reverse. That is impossible if
    the directory has to stay because somebody put something into it, or if the file is somebody's.
    """
    for foreign in plan.foreign:
        theirs = foreign.rstrip("/")
        for path in (theirs, *above(theirs)):
            if path in replaced:
                raise Refused(
                    f"{foreign} on the target is not as hostprep staged it, and {path} of the "
                    "source has to take its place; nothing was changed.",
                    "move it away and run the same command again",
                )


def opening_refusal(
    plan: CopyPlan,
    scan: Scan,
    recorded: Mapping[str, Recorded],
    published: TargetTree,
    published_fd: int,
) -> Refused | None:
    """Return why somebody else's directory, and its contents, may not be opened to others.

    Whoever may write around it may have moved it to the place of a directory of the data set, whose
    mode and owner it would then get. A directory that is as it was staged was not moved there. No
    owner is set if the target makes owners up, or root has nobody to give it to. A closed directory
    also keeps others from what is further down in it.
    """
    chowns = knows_other_users()
    strange: dict[str, str] = {}
    for path in plan.strangers:
        strange.setdefault(path.rstrip("/").rpartition("/")[0], path)
    owners = bool(strange) and keeps_numbers(mount_of(published_fd, read_mounts()))
    holding = frozenset(strange)  # and the others are around those
    for directory, path in tuple(strange.items()):
        for around in (*above(directory), ""):
            strange.setdefault(around, path)
    for directory, path in strange.items():
        wanted, found = scan.directories.get(directory), published.stat(directory)
        if wanted is None or found is None:
            continue
        if _as_staged(recorded.get(directory), found, owners=owners):
            continue
        given = _given(wanted, found, chowns=chowns)
        if given & 0o055:
            words = "is closed to others, though it was not staged so,"
            then = "which would be open to them"
        elif given & 0o022 and directory in holding and owners:
            words = "has another owner or mode than it was staged with,"
            then = "which others could remove once it has those of the source"
        else:
            continue
        return Refused(
            f"{directory or 'the data set'} on the target {words} and holds what hostprep did not"
            f" stage ({path}), {then}; nothing was changed.",
            "look at whose that is, move it away and run the same command again",
        )
    return None


def _as_staged(recorded: Recorded | None, found: Entry, *, owners: bool) -> bool:
    """Whether a directory has the owner and mode that it was staged with; has the target owners?"""
    if recorded is None:
        return False
    mode = stat.S_IMODE(found.mode)
    if not owners and f"{mode:o}" == recorded.content:
        return True  # the target makes up both
    if (recorded.uid, recorded.gid) != (found.uid, found.gid):
        return False
    return mode == recorded.mode or f"{mode:o}" == (recorded.content or "0")


def _given(wanted: Entry, found: Entry, *, chowns: bool) -> int:
    """Return the rights that others get in a directory by ``wanted`` and do not have yet."""
    given = wanted.mode
    if chowns and wanted.uid not in (0, found.uid):
        given |= wanted.mode >> 6
    if chowns and wanted.gid not in (0, found.gid):
        given |= wanted.mode >> 3
    return given & ~found.mode & 0o077
