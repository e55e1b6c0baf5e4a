"""Runs that change nothing, because what is published is as it should be, or as it can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from hostprep.staging.failures import gone
from hostprep.staging.model import StageRequest, StageResult
from hostprep.staging.observer import Observer
from hostprep.staging.outcome import concluded, result_of, still_there
from hostprep.staging.planning import StagePlan
from hostprep.staging.preparing import open_target
from hostprep.staging.publishing.listable import who_may_list
from hostprep.staging.publishing.published import open_published
from hostprep.staging.record.manifest import manifest_path
from hostprep.staging.record.readers import Readers, are_roots, let_read, readers_of
from hostprep.staging.record.records import Record, folder, save_record
from hostprep.staging.record.skipped import skipped_path
from hostprep.staging.target.owned import private_name
from hostprep.staging.target.place import open_parent
from hostprep.staging.target.private import not_removed, sweep
from hostprep.staging.tasks import Copied
from hostprep.system.descriptors import closing_fd
from hostprep.volumes.model import LiveVolume


def left_as_it_is(plan: StagePlan, live: LiveVolume | None, observer: Observer) -> StageResult:
    """Return the result of a run whose data set is already there, complete and fresh."""
    request = plan.request
    with closing_fd(open_target(plan)) as parent_fd:
        with _published(parent_fd, request) as published_fd:
            put_readers_right(plan, published_fd)
        try:
            sweep(parent_fd, request.target)
        except OSError as error:  # a complete copy is fine on a read-only file system too
            observer.note(not_removed(request.parent, private_name(request.name), error))
    there = result_of(plan, Copied(), still_there(plan), live, changed=False)
    return concluded(plan, there)


@contextmanager
def _published(parent_fd: int, request: StageRequest) -> Iterator[int]:
    published_fd = open_published(parent_fd, request.name)
    if published_fd is None:
        raise gone(request)
    with closing_fd(published_fd):
        yield published_fd


def readers_of_names(
    plan: StagePlan, passing: Mapping[str, Readers]
) -> tuple[Readers, Readers] | None:
    """Return who can read the names in root's records, and who should be able to.

    ``passing`` is that of ``who_may_list``. None if the records are not root's. Changes nothing.
    Raises ``HostprepError`` or ``OSError`` if the copies cannot be opened.
    """
    request = plan.request
    home = folder(request.name, request.target)
    if plan.previous is None or not are_roots(home):
        return None
    now = readers_of(manifest_path(home))
    with (
        closing_fd(open_parent(request.parent)) as parent_fd,
        _published(parent_fd, request) as published_fd,
    ):
        return now, who_may_list(plan.scan, published_fd, request.parent, passing)


def put_readers_right(plan: StagePlan, published_fd: int) -> None:
    """Make the names on record readable for those who may list them, as far as possible.

    Earlier versions left them readable for all, and somebody may have closed or opened a folder
    above.
    """
    record, request = plan.previous, plan.request
    home = folder(request.name, request.target)
    if record is None or not are_roots(home):
        return
    files = [manifest_path(home), *([skipped_path(home)] if record.skipped else [])]
    readers = who_may_list(plan.scan, published_fd, request.parent)
    if _are_for(readers, files):
        return
    with suppress(OSError):  # the disk is read-only, or full
        let_read(files[0], readers)
        if not _are_for(readers_of(files[0]), files):  # as far as readers could be set
            save_record(record, durable=not plan.in_ram)


def _are_for(readers: Readers, files: Sequence[Path]) -> bool:
    return all(path.exists() and readers_of(path) == readers for path in files)


def came_to_nothing(plan: StagePlan, copied: Copied, record: Record, before: Record) -> bool:
    """Whether a run failed with everything that it had to copy, just as the run before it did.

    ``record`` is that of the data set with what this run copied, ``before`` that of the run before.
    Publishing again would change nothing but the time, and whoever reacts to changes would do so
    after every run. The reasons of failures are not compared: for a file with several names, the
    reason names the one that was found first, which varies from run to run.
    """
    files = plan.files
    if not plan.published:
        return False
    if plan.volume is not None and plan.volume.changes:
        return False
    if copied.files or files.resumed.files or files.make_directories:
        return False
    if files.delete or files.delete_directories:
        return False
    same = replace(
        record,
        staged_at=before.staged_at,
        verified_at=before.verified_at,
        boot_id=before.boot_id,
        skipped=before.skipped,
        needed_bytes=before.needed_bytes,
        needed_inodes=before.needed_inodes,
        failure=before.failure,
        target_identity=before.target_identity,
    )
    # The record of an interrupted run has another phase.
    return same == before and _missing(record) == _missing(before)


def _missing(record: Record) -> set[tuple[str, bool]]:
    return {(item.path, item.failed) for item in record.skipped}
