"""What forbids a ``stage`` run before files are compared: what is there already, and whose."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from hostprep.errors import Refused
from hostprep.staging.model import StageRequest
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.record.records import Record, folder, load_record
from hostprep.staging.source.scan import Scan
from hostprep.staging.target.place import standing_directory
from hostprep.staging.target.strangers import by_another_name
from hostprep.system.files import new_file_obstacle
from hostprep.system.state import cannot_lock, cannot_remember, run_dir, state_dir
from hostprep.units import format_count

_RECORDS_OF_CONTAINERS = (
    "what a container records ends with it, unless HOSTPREP_STATE_DIR and HOSTPREP_RUN_DIR are on a"
    " volume"
)


def unkept_refusal(
    request: StageRequest, files: CopyPlan, previous: Record | None
) -> Refused | None:
    """Refuse a run whose records or locks are on a read-only file system, as in some containers.

    This is for ``stage``, before anything is made or mounted; a plan of the whole host has it from
    ``converging.writable``. It is not for a user who only looks at what root is to do on a volume,
    because their own records do not matter.
    """
    if previous is not None and files.nothing_to_do:
        return None
    if request.volume_size_bytes is not None and os.geteuid() != 0:
        return None
    for directory, refusal in (
        (folder(request.name, request.target), cannot_remember),
        (run_dir(), cannot_lock),
    ):
        place = standing_directory(str(directory))
        if new_file_obstacle(Path(place)) == errno.EROFS:
            return refusal(directory, f"the file system of {place} is mounted read-only")
    return None


def nested_refusal(request: StageRequest, previous: Record | None) -> Refused | None:
    """Refuse to stage into the copy of another data set, which would not know these files.

    Allowed if it is already there from before: it must be possible to update it.
    """
    ancestor = request.parent
    while previous is None and ancestor != "/":
        other = load_record(os.path.basename(ancestor), ancestor)
        if other is not None and other.phase != "copying" and os.path.isdir(ancestor):
            return Refused(
                f"{request.parent} is in the staged copy of {other.name} ({other.target}), which"
                " may hold nothing else; nothing was changed.",
                "choose a target outside it; if it is no longer a staged copy: hostprep unstage"
                f" {shlex.quote(other.target)}",
            )
        ancestor = os.path.dirname(ancestor)
    return None


def ownership_refusal(
    request: StageRequest, previous: Record | None, published_fd: int | None
) -> Refused | None:
    """Refuse to touch something that has the data set's name but is not from this source."""
    if published_fd is None:
        return None
    if previous is None or previous.phase == "copying":
        owner = os.fstat(published_fd).st_uid  # of the open directory: its owner may move it away
        whose = "" if owner == os.geteuid() else f", of uid {owner},"
        renamed = by_another_name(request.name, request.target)
        return Refused(
            f"{request.target}{whose} exists and was not staged by hostprep, according to its"
            f" records in {state_dir()}; nothing was changed.",
            f"choose another --name, or move it away{renamed}; {_RECORDS_OF_CONTAINERS}",
            spec_hint=f"choose another `name`, or move it away{renamed}; {_RECORDS_OF_CONTAINERS}",
        )
    return of_another_source(request, previous) if previous.source != request.source else None


def of_another_source(request: StageRequest, previous: Record) -> Refused:
    """Return the refusal to replace a copy by one from another source."""
    unstaging = f"`hostprep unstage {shlex.quote(request.target)}`"
    return Refused(
        f"{request.target} holds what was staged from {previous.source}, not from "
        f"{request.source}; nothing was changed.",
        f"choose another --name, or run {unstaging} first",
        spec_hint=f"choose another `name`, or run {unstaging} first",
    )


def empty_refusal(
    request: StageRequest, scan: Scan, previous: Record | None, published: bool
) -> Refused | None:
    """Refuse a source that is empty, or now empty: it is probably not mounted."""
    if not scan.holds_nothing:
        return None
    if previous is None or previous.files == 0 or not published:
        return Refused(
            f"the source {request.source} is empty; nothing was changed.",
            f"is its file system mounted? `findmnt -T {shlex.quote(request.source)}` shows it",
        )
    return Refused(
        f"the source {request.source} is empty, and {format_count(previous.files, 'file')} had been"
        f" staged from it: {request.target} would be emptied too; nothing was changed.",
        "mount the source again; if it is meant to be empty: "
        f"hostprep unstage {shlex.quote(request.target)}",
    )
