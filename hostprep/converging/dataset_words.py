"""Texts about a data set to be staged: what would be done, why, and the warnings."""

from __future__ import annotations

import shlex
from contextlib import closing

from hostprep.host.boot import boot_id
from hostprep.staging.cautions import cautions
from hostprep.staging.model import StageRequest
from hostprep.staging.planning import StagePlan
from hostprep.staging.plans.changed import who_changed
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.record.records import Record, manifest_of
from hostprep.units import format_bytes, format_count, size_argument

MOST_NAMED = 3


def stage_command(request: StageRequest) -> str:
    """Return the command that stages a data set of the spec by itself."""
    place = f"--to {shlex.quote(request.parent)}"
    if request.volume_size_bytes is not None:
        size = size_argument(request.volume_size_bytes)
        place = f"--to-tmpfs {size} --at {shlex.quote(request.parent)}"
    source, name = shlex.quote(request.source), shlex.quote(request.name)
    return f"hostprep stage {source} {place} --name {name}"


def action_of(plan: StagePlan) -> str:
    """Return what the run would do."""
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


def reason_of(plan: StagePlan) -> str:
    """Return why it would be done."""
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
    """Say whether source or copy has changed since staging, by the manifest."""
    with closing(manifest_of(previous)) as manifest:
        source, copy = who_changed(files, manifest)
    if source:
        also = ", and files of the copy were changed or deleted by hand" if copy else ""
        return f"the source has changed since it was staged{also}"
    if copy:
        return "the source is as it was staged: files of the copy were changed or deleted by hand"
    return "its directories have other times or modes than the source's"


def warnings_of(plan: StagePlan) -> tuple[str, ...]:
    """Return the warnings about it."""
    warned = []
    if foreign := plan.files.foreign:
        named = ", ".join(foreign[:MOST_NAMED])
        warned.append(
            f"{plan.request.target} holds {format_count(len(foreign), 'entry')} not staged by"
            f" hostprep ({named}), to be left alone"
        )
    return (*warned, *cautions(plan))
