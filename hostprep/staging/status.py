"""How staged data sets are now: there or not, whole or not, fresh or stale against their source."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from hostprep.errors import HostprepError
from hostprep.host.boot import boot_id
from hostprep.staging.manifest import (
    ManifestIndex,
    Record,
    all_records,
    folder_of,
    manifest_path,
)
from hostprep.staging.publish import open_published
from hostprep.staging.scan import scan_tree
from hostprep.staging.source import open_source
from hostprep.staging.tree import DIRECTORY_FLAGS
from hostprep.staging.update import plan_update
from hostprep.system.bounded import NoAnswerInTime, ask_in_child
from hostprep.system.locks import is_locked
from hostprep.units import format_count
from hostprep.volumes.live import read_live

SOURCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """A data set on record and what was found of it.

    ``state``: ``staged``; ``partial`` (published without what failed); ``copying`` (a run is at
    work); ``interrupted`` (a run was, and is not any more); ``missing`` (not on the target, as
    after a reboot). ``freshness``: ``fresh``, ``stale``, ``unknown``; ``reason`` says why.
    """

    record: Record
    state: str
    freshness: str
    reason: str


def dataset_statuses(*, check_source: bool = True) -> tuple[DatasetStatus, ...]:
    """Return the status of every data set on record; a source that hangs is left after 10 s."""
    return tuple(dataset_status(record, check_source=check_source) for record in all_records())


def dataset_status(
    record: Record, *, check_source: bool = True, patience_seconds: float = SOURCE_SECONDS
) -> DatasetStatus:
    """Return the status of one data set; a source that takes longer is left, and it is unknown."""
    state, why = _state(record)
    if state not in ("staged", "partial"):
        return DatasetStatus(record, state, "unknown", why)
    if not check_source:
        return DatasetStatus(record, state, "unknown", "the source was not looked at")
    freshness, reason = _freshness(record, patience_seconds)
    return DatasetStatus(record, state, freshness, reason)


def _state(record: Record) -> tuple[str, str]:
    if is_locked("stage-" + record.id):
        return "copying", "a run is at work on it"
    try:
        if record.volume is not None and read_live(record.volume) is None:
            since = "" if record.boot_id == boot_id() else " since the machine was rebooted"
            return "missing", f"its volume {record.volume} is not mounted{since}"
    except HostprepError as error:  # hidden, or not for this user to see: the others can be told
        return "missing", error.message.removesuffix(".").removesuffix("; nothing was changed")
    if record.phase in ("copying", "publishing", "updating"):
        return "interrupted", "a run did not get to its end; the same `hostprep stage` goes on"
    if not os.path.isdir(record.target):
        return "missing", "it is not on the target"
    return ("partial" if record.partial else "staged"), ""


def _freshness(record: Record, patience_seconds: float) -> tuple[str, str]:
    try:
        answer = ask_in_child(lambda: _compare(record), patience_seconds=patience_seconds)
    except NoAnswerInTime:
        return "unknown", f"the source was not read through within {patience_seconds:g} s"
    except ChildProcessError as error:
        return "unknown", str(error)
    if answer["unreadable"]:
        count = format_count(answer["unreadable"], "folder")
        return "unknown", f"not readable of the source: {count}"
    parts = [
        f"{answer[key]} {words}"
        for key, words in (
            ("copy", "to copy"),
            ("delete", "to delete"),
            ("folders", "to bring up to date among the folders"),
            ("foreign", "not staged by hostprep"),
        )
        if answer[key]
    ]
    stale = answer["copy"] or answer["delete"] or answer["folders"]
    return ("stale" if stale else "fresh"), ", ".join(parts)


def _compare(record: Record) -> dict[str, Any]:
    """Scan source and target and count what a run of stage would do; in a child of its own."""
    parent_fd = os.open(os.path.dirname(record.target), DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    published_fd = open_published(parent_fd, record.name)
    if published_fd is None:
        raise HostprepError("it is not on the target")
    with open_source(record.source) as source_fd:
        scan = scan_tree(source_fd, processes=0)
        manifest = ManifestIndex([manifest_path(folder_of(record))])
        plan = plan_update(
            scan,
            manifest=manifest,
            journal=ManifestIndex([]),
            published_fd=published_fd,
            private_fd=None,
        )
    failed = {item.path for item in record.skipped if item.failed}
    return {
        "copy": max(0, plan.copied.files + len(plan.links) - len(failed)),
        "delete": len(plan.delete) + len(plan.delete_directories),
        "folders": len(plan.make_directories),
        "foreign": len(plan.foreign),
        "unreadable": len(scan.unreadable),
    }
