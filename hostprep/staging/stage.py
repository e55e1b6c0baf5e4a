"""``hostprep stage``: from a request to a plan, and from the plan to a published data set."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, after_changes
from hostprep.host.mounts import Mount
from hostprep.staging.ending import failure_on_record, keep_shortfall
from hostprep.staging.execute import copy_all, settle, sync_file_system
from hostprep.staging.failures import failed, gone, refused_late
from hostprep.staging.forbidding import ownership_refusal
from hostprep.staging.keeping import keep_failed
from hostprep.staging.model import StageResult, Verify
from hostprep.staging.naming import check_kept_names
from hostprep.staging.observer import Observer
from hostprep.staging.outcome import concluded, record_of, result_of
from hostprep.staging.planning import StagePlan, cores, timed
from hostprep.staging.plans.copy_plan import leaves_of
from hostprep.staging.plans.ordering import order_files
from hostprep.staging.preparing import begin, is_all_new, make_volume, open_target
from hostprep.staging.publishing.finishing import finish_directories
from hostprep.staging.publishing.listable import who_may_list
from hostprep.staging.publishing.publish import (
    check_places,
    discard,
    drop_unrecorded,
    publish_new,
    publish_update,
)
from hostprep.staging.publishing.published import has_names, open_published
from hostprep.staging.publishing.structure import (
    close_directories,
    directory_digest,
    directory_lines,
    leave_out_unholdable,
    make_links,
)
from hostprep.staging.record import digest
from hostprep.staging.record.lines import records_in
from hostprep.staging.record.manifest import (
    ManifestIndex,
    extend_manifest,
    manifest_path,
    write_manifest,
)
from hostprep.staging.record.records import Record, check_own, folder, save_record
from hostprep.staging.source.opening import patience_for
from hostprep.staging.target.place import check_in_volume, keeps_numbers, mount_below
from hostprep.staging.target.private import PrivateDir, moved_away, not_removed
from hostprep.staging.target.spelling import Spelling
from hostprep.staging.target.strangers import exchanged_refusal, identity_of
from hostprep.staging.tasks import Copied
from hostprep.staging.untouched import came_to_nothing, left_as_it_is, put_readers_right
from hostprep.system.own_files import remove_unwritten
from hostprep.volumes.model import LiveVolume


def carry_out(plan: StagePlan, observer: Observer) -> StageResult:
    """Carry out the plan and return the result; the caller holds the data set's lock.

    Copies grow in a private directory; nothing is published before all is copied and verified. If
    files failed and ``--partial`` was not given, nothing is published, and the result says so.
    Raises the plan's refusal, and ``HostprepError`` for errors that end the run.
    """
    if plan.refusal is not None:
        raise plan.refusal
    request = plan.request
    if plan.previous is not None and not plan.nothing_to_do:
        check_own(plan.previous, ", or choose another --name")
    # An unfinished manifest may have hundreds of MB. If it cannot be removed, it does no harm.
    with suppress(OSError):
        remove_unwritten(folder(request.name, request.target))
    live, volume_changed = None, False
    if plan.volume is not None:
        with timed(plan.seconds, "volume"):
            made = make_volume(plan, plan.volume, observer)
        live, volume_changed = made.live, bool(made.plan.changes)
    try:
        if plan.is_fresh and not volume_changed:  # another run may have done it already
            return left_as_it_is(plan, live, observer)
        with after_changes() if volume_changed else nullcontext():
            return concluded(plan, _carry_out(plan, live, observer))
    except Refused as refusal:
        if not volume_changed:
            raise
        raise refused_late(refusal, request.parent) from None
    except OSError as error:
        raise failed(error, request, plan.then) from error


def _carry_out(plan: StagePlan, live: LiveVolume | None, observer: Observer) -> StageResult:
    request = plan.request
    with ExitStack() as stack:
        parent_fd = open_target(plan)
        stack.callback(os.close, parent_fd)
        published_fd = open_published(parent_fd, request.name)
        if published_fd is not None:
            stack.callback(os.close, published_fd)
        elif plan.published:
            raise gone(request)
        # Since the plan was made somebody may have put it there, or in the copies' place.
        taken = None if plan.published else ownership_refusal(request, plan.previous, published_fd)
        if refusal := taken or exchanged_refusal(plan.previous, published_fd):
            raise refusal
        mount = mount_below(request.parent)
        private, spelling = begin(plan, parent_fd, mount, observer, first=published_fd is None)
        stack.callback(private.close)
        if plan.files.resumed.files and not private.resumable:
            raise gone(request)
        work = _Work(plan, observer, parent_fd, private, published_fd, mount, spelling)
        with after_changes(), failure_on_record(plan):
            return keep_shortfall(plan, work.run(live))


@dataclass(frozen=True, slots=True)
class _Work:
    """One run, from the private directory to the record; ``mount`` is the target's file system."""

    plan: StagePlan
    observer: Observer
    parent_fd: int
    private: PrivateDir
    published_fd: int | None
    mount: Mount | None
    spelling: Spelling

    def run(self, live: LiveVolume | None) -> StageResult:
        plan, request, files = self.plan, self.plan.request, self.plan.files
        copied = self._copy()
        manifest = ManifestIndex([manifest_path(folder(request.name, request.target))])
        with closing(manifest):
            link_lines = make_links(files, copied, self.private, self.published_fd)
            if not self.spelling.sure:
                directories = plan.scan.directories
                copied.problems += leave_out_unholdable(
                    directories, copied.problems, self.private.tree_fd, self.published_fd
                )
            if self.published_fd is not None:
                keep_failed(files, copied.problems, self.published_fd, manifest)
            if self.private.resumable or copied.problems:
                drop_unrecorded(self.private, link_lines)
            check_kept_names(self.private, link_lines, self.spelling)
            failed = [item for item in (*files.skipped, *copied.problems) if item.failed]
            if failed and not request.partial:
                return result_of(plan, copied, None, live, changed=True)
            record, before = self._record(copied, partial=bool(failed)), plan.previous
            if before is not None and came_to_nothing(plan, copied, record, before):
                before = dataclasses.replace(before, skipped=record.skipped)  # present reasons
                if self.published_fd is not None:
                    put_readers_right(plan, self.published_fd)
                self._save(before, "staged")
                self._clean_up()
                return result_of(plan, copied, before, live, changed=False)
            with self._timed("publish"):
                self.observer.phase("publish")
                left = self._publish(copied, link_lines, record, manifest)
        return result_of(plan, copied, record, live, changed=True, left=left)

    def _copy(self) -> Copied:
        """Copy into the private directory, verified as asked."""
        plan, files = self.plan, self.plan.files
        discard(files, self.private)
        if self.private.resumable:
            self.private.replace_journals(files.done_lines)
        if plan.reading.order != "listed":
            self.observer.phase("order", files=files.copied.files)
            with self._timed("order"):
                order_files(
                    files,
                    plan.reading.order,
                    plan.source_fd,
                    processes=cores(),
                    gentle=plan.request.gentle,
                    served=plan.served,
                    on_tick=lambda asked: self.observer.progress(asked, 0),
                )
        self.observer.phase("copy", files=files.copied.files, size_bytes=files.copied.data_bytes)
        if is_all_new(plan, self.private, self.spelling, first=self.published_fd is None):
            files.leaves = leaves_of(files, plan.scan.directories)
        with self._timed("copy"):
            copied = copy_all(plan, files, self.private, self.observer)
        if not plan.in_ram:
            settle(plan, copied, self.private, self.observer)
        return copied

    def _record(self, copied: Copied, *, partial: bool) -> Record:
        total = digest.add(self.plan.files.digest_sum, copied.digest_sum)
        total = digest.add(total, directory_digest(self.plan.scan.directories))
        text = digest.to_hex(total)
        record = record_of(self.plan, copied, text, self.mount, partial=partial)
        directory_fd = self.private.tree_fd if self.published_fd is None else self.published_fd
        identity = identity_of(directory_fd, self.mount)
        return dataclasses.replace(record, target_identity=identity)

    def _publish(
        self, copied: Copied, lines: list[bytes], record: Record, manifest: ManifestIndex
    ) -> list[str]:
        """Publish and record; return which entries of others could not be removed."""
        self._check_recorded(record, lines)
        if self.published_fd is None:
            self._publish_first(copied, lines, record)
            left = []
        else:
            left = self._publish_over(self.published_fd, copied, lines, record, manifest)
        self._check_mounted(published=True)
        self._save(record, "staged")
        self._clean_up()
        return left

    def _publish_first(self, copied: Copied, lines: list[bytes], record: Record) -> None:
        plan, request, tree_fd = self.plan, self.plan.request, self.private.tree_fd
        directories = plan.scan.directories
        tree_lines = self._finish_directories(copied, tree_fd)
        # By now nobody has looked at the copies any more; those on a disk were just read back.
        if plan.in_ram and not has_names(tree_fd, directories, record.entries - 1):
            raise gone(request)
        # The manifest and the record come before the rename: if we are killed right after it, what
        # is published must be known as ours.
        self._write_manifest([*plan.files.keep_lines, *lines, *tree_lines], tree_fd)
        self._save(record, "publishing")
        try:
            self._check_mounted()
            publish_new(self.private, self.parent_fd, request.name, directories[""])
        except HostprepError:
            # Somebody took the name: what is there now is not ours, whatever the next run is.
            self._save(record, "copying")
            raise
        self._sync_published()

    def _publish_over(
        self,
        published_fd: int,
        copied: Copied,
        lines: list[bytes],
        record: Record,
        manifest: ManifestIndex,
    ) -> list[str]:
        plan, request, files = self.plan, self.plan.request, self.plan.files
        directories = plan.scan.directories
        self._check_mounted()
        check_places(files, self.private, published_fd, manifest, self.spelling, self.observer)
        if plan.previous is not None:
            # If we are killed, old files are next to new ones, which may be verified less.
            less = record.verify if request.verify is Verify.INFLIGHT else plan.previous.verify
            self._save(dataclasses.replace(plan.previous, verify=less), "updating")
        # New entries are recorded as ours before they are in place, and old ones until they are
        # gone, so that an interrupted update leaves nothing that is unknown.
        known = folder(request.name, request.target)
        new = itertools.chain(lines, directory_lines(directories, {}), self._journal_parts())
        extend_manifest(known, new, durable=not plan.in_ram)
        changing = [path for path in files.make_directories if path in directories]
        inodes = self._inodes()
        on_wait = patience_for(request.source, self.observer) if plan.served else None
        close_directories(
            changing, directories, plan.source_fd, published_fd, inodes, on_wait=on_wait
        )
        left = publish_update(
            files, self.private, published_fd, manifest, self.observer, changing, inodes
        )
        # Work in a directory has changed its time, so finish all of them.
        tree_lines = self._finish_directories(copied, published_fd)
        self._sync_published()
        # Not before everything is on the disk: a power cut would bring back files that only the
        # previous manifest knows.
        self._write_manifest([*files.keep_lines, *lines, *tree_lines], published_fd)
        return left

    def _sync_published(self) -> None:
        if not self.plan.in_ram:
            os.fsync(self.parent_fd)
            sync_file_system(self.parent_fd, "the copies are in place, but not yet on record")

    def _clean_up(self) -> None:
        """Remove the private directory; by now all is published and recorded, so only warn."""
        parent, name = self.plan.request.parent, self.private.name
        try:
            if not self.private.remove():
                self.observer.note(moved_away(parent, name))
        except OSError as error:
            self.observer.note(not_removed(parent, name, error))

    def _inodes(self) -> dict[str, int] | None:
        """Return the inodes that identify the copies' directories; None if inodes mean nothing."""
        return self.plan.files.inodes if keeps_numbers(self.mount) else None

    def _finish_directories(self, copied: Copied, tree_fd: int) -> list[bytes]:
        """Finish the directories of a tree and return their manifest lines."""
        directories, reading = self.plan.scan.directories, self.plan.reading
        lost, other_modes = finish_directories(
            directories,
            self.plan.source_fd,
            tree_fd,
            processes=reading.processes,
            threads=reading.lookers,
            finished=copied.finished,
            inodes=self._inodes(),
            gentle=self.plan.request.gentle,
            served=self.plan.served,
            observer=self.observer,
        )
        copied.lost_xattrs += lost
        return directory_lines(directories, copied.other_modes | other_modes)

    def _check_mounted(self, *, published: bool = False) -> None:
        """Raise an error if the volume is gone by now: each step takes a while."""
        if self.plan.volume is not None:
            check_in_volume(self.parent_fd, self.plan.request.parent, published=published)

    def _write_manifest(self, lines: list[bytes], tree_fd: int) -> None:
        """Write the manifest, for those who may list the (finished) tree."""
        request = self.plan.request
        parts = itertools.chain(lines, self._journal_parts())
        home = folder(request.name, request.target)
        readers = who_may_list(self.plan.scan, tree_fd, request.parent)
        write_manifest(home, parts, durable=not self.plan.in_ram, readers=readers)

    def _check_recorded(self, record: Record, lines: list[bytes]) -> None:
        """Raise an error if somebody removed the workers' journals, and so the copies."""
        known = itertools.chain(self.plan.files.keep_lines, lines, self._journal_parts())
        if sum(map(records_in, known)) + len(self.plan.scan.directories) < record.entries:
            raise gone(self.plan.request)

    def _journal_parts(self) -> Iterator[bytes]:
        for path in self.private.journals():
            with open(path, "rb", buffering=1024 * 1024) as journal:
                yield from journal

    def _save(self, record: Record, phase: str) -> None:
        # It has taken all the room that it needs, and an earlier run's failure is over.
        record = dataclasses.replace(record, phase=phase, needed_bytes=0, needed_inodes=0)
        record = dataclasses.replace(record, failure=None)
        save_record(record, durable=not self.plan.in_ram)

    def _timed(self, name: str) -> AbstractContextManager[None]:
        return timed(self.plan.seconds, name)
