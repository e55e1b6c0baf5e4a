"""``hostprep stage``: from a request to a plan, and from the plan to a published data set."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from hostprep.errors import HostprepError, Refused
from hostprep.host.block import PathStorage, StorageClass, locate
from hostprep.host.boot import boot_id
from hostprep.host.cpu import usable_cpus
from hostprep.host.memory import read_memory
from hostprep.host.mounts import mount_containing, read_mounts
from hostprep.staging import digest
from hostprep.staging.checking import check_kept, check_written
from hostprep.staging.execute import (
    Copied,
    copy_all,
    directory_lines,
    finish_directories,
    make_links,
    sync_file_system,
)
from hostprep.staging.manifest import (
    ManifestIndex,
    Record,
    encode_line,
    folder,
    load_record,
    manifest_path,
    record_id,
    save_record,
    write_manifest,
)
from hostprep.staging.model import Skipped, StageRequest, StageResult, Verify
from hostprep.staging.observer import Observer
from hostprep.staging.plan import CopyPlan, plan_fresh, plan_update
from hostprep.staging.private import TREE, PrivateDir, look, prepare
from hostprep.staging.publish import discard, open_published, publish_new, publish_update
from hostprep.staging.reading import Reading, Sample, choose_reading, take_sample
from hostprep.staging.scan import Scan, scan_tree
from hostprep.staging.source import check_apart, open_source
from hostprep.staging.space import Space, check_space, directory_space, volume_request, volume_space
from hostprep.staging.tree import DIRECTORY_FLAGS
from hostprep.system.locks import lock
from hostprep.volumes.apply import apply_volume
from hostprep.volumes.facts import gather
from hostprep.volumes.model import LiveVolume
from hostprep.volumes.plan import VolumePlan, plan_volume


@dataclass(slots=True)
class StagePlan:
    """Everything that a run would do, and what it rests on. Valid inside ``plan_stage``."""

    request: StageRequest
    source_fd: int
    scan: Scan
    files: CopyPlan
    space: Space
    volume: VolumePlan | None
    storage: PathStorage
    sample: Sample
    reading: Reading
    previous: Record | None
    published: bool
    in_ram: bool
    seconds: dict[str, float]
    refusal: Refused | None

    @property
    def nothing_to_do(self) -> bool:
        """Whether the data set is there, whole and fresh, and its volume as asked for."""
        return (
            self.published
            and self.files.nothing_to_do
            and self.previous is not None
            and self.previous.phase == "staged"
            and not (self.volume is not None and self.volume.changes)
            and self.previous.partial == any(item.failed for item in self.files.skipped)
        )


def stage_lock(request: StageRequest) -> str:
    """Return the name of the lock that runs for the same target share."""
    return "stage-" + record_id(request.name, request.target)


@contextmanager
def plan_stage(request: StageRequest, observer: Observer) -> Iterator[StagePlan]:
    """Look at source and target and yield the plan; changes nothing.

    Raises ``HostprepError`` where planning itself is impossible. Rules that forbid the run are the
    plan's ``refusal``, so that a dry run can show both.
    """
    check_apart(request.source, request.target)
    with ExitStack() as stack:
        source_fd = stack.enter_context(open_source(request.source))
        storage = locate(request.source)
        seconds: dict[str, float] = {}
        cpus = cores()
        observer.phase("scan")
        started = time.monotonic()
        threads = 1 if storage.storage_class in (StorageClass.ARM, StorageClass.RAM) else 8
        scan = scan_tree(
            source_fd,
            processes=1 if request.gentle else cpus,
            threads=1 if request.gentle else threads,
            on_tick=lambda entries: observer.progress(entries, 0),
        )
        if "" in scan.unreadable:
            raise HostprepError(
                f"the source {request.source} cannot be read: {scan.skipped[0].reason}; "
                "nothing was changed."
            )
        observer.progress(scan.totals.entries, scan.totals.bytes)
        seconds["scan"] = time.monotonic() - started

        previous = load_record(request.name, request.target)
        parent_fd = _open_parent(request, stack)
        published_fd = None
        if parent_fd is not None:
            published_fd = open_published(parent_fd, request.name)
            if published_fd is not None:
                stack.callback(os.close, published_fd)
        refusal = _ownership_refusal(request, previous, published_fd is not None)
        files = (
            CopyPlan()
            if refusal is not None
            else _plan_files(request, scan, previous, parent_fd, published_fd, observer, source_fd)
        )
        sample = take_sample(source_fd, scan) if files.copied.files else Sample(0, None, None)
        reading = choose_reading(
            storage.storage_class,
            sample,
            cpus=cpus,
            size_bytes=files.copied.bytes,
            available_bytes=read_memory().available_bytes,
            readers=request.readers,
            order=request.order,
            gentle=request.gentle,
        )
        volume = None
        if request.volume_size_bytes is not None:
            facts = gather(request.parent)
            volume = plan_volume(volume_request(request, files, facts.live), facts)
            space = volume_space(files, volume)
            refusal = refusal or volume.refusal
        else:
            space = directory_space(request, files)
        refusal = refusal or check_space(request, space)
        yield StagePlan(
            request=request,
            source_fd=source_fd,
            scan=scan,
            files=files,
            space=space,
            volume=volume,
            storage=storage,
            sample=sample,
            reading=reading,
            previous=previous,
            published=published_fd is not None,
            in_ram=volume is not None or _in_ram(request.parent),
            seconds=seconds,
            refusal=refusal,
        )


def carry_out(plan: StagePlan, observer: Observer) -> StageResult:
    """Do what the plan says and return what came of it.

    Copies grow in a private directory; nothing is published before all is copied and verified.
    Where files failed and ``--partial`` was not asked for, nothing is published, and the result
    says so. Raises the plan's refusal, and ``HostprepError`` for what ends the run.
    """
    if plan.refusal is not None:
        raise plan.refusal
    started = time.monotonic()
    request = plan.request
    live = apply_volume(plan.volume) if plan.volume is not None else None
    if plan.nothing_to_do:
        return _result(plan, Copied(), plan.previous, [], live, changed=False, published=True)
    if plan.volume is None:
        os.makedirs(request.parent, exist_ok=True)
    with ExitStack() as stack:
        parent_fd = os.open(request.parent, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
        stack.callback(os.close, parent_fd)
        private = prepare(parent_fd, request.name, _purpose(request))
        stack.callback(private.close)
        published_fd = open_published(parent_fd, request.name)
        if published_fd is not None:
            stack.callback(os.close, published_fd)
        work = _Work(plan, observer, parent_fd, private, published_fd)
        result = work.run(live)
    result.phases["total"] = time.monotonic() - started + sum(plan.seconds.values())
    return result


class _Work:
    """One run, from the private directory to the record."""

    def __init__(
        self,
        plan: StagePlan,
        observer: Observer,
        parent_fd: int,
        private: PrivateDir,
        published_fd: int | None,
    ) -> None:
        self.plan = plan
        self.observer = observer
        self.parent_fd = parent_fd
        self.private = private
        self.published_fd = published_fd
        self.seconds = dict(plan.seconds)

    def run(self, live: LiveVolume | None) -> StageResult:
        plan, request, files = self.plan, self.plan.request, self.plan.files
        discard(files, self.private)
        if self.private.resumable:
            self.private.replace_journals(files.done_lines)
        copied = self._copy()
        manifest = ManifestIndex([manifest_path(folder(request.name, request.target))])
        try:
            link_lines = make_links(files, copied, self.private, self.published_fd, manifest)
            stale_lines = self._still_published(copied, manifest)
        finally:
            manifest.close()
        if not plan.in_ram:
            with self._timed("sync"):
                self.observer.phase("sync")
                sync_file_system(self.private.fd)
            if request.verify is Verify.READBACK:
                with self._timed("verify"):
                    check_written(plan.reading, self.private, copied, self.observer)
        failed = [item for item in (*files.skipped, *copied.problems) if item.failed]
        if failed and not request.partial:
            return _result(plan, copied, None, [], live, changed=True, published=False)
        with self._timed("publish"):
            self.observer.phase("publish")
            record, left = self._publish(copied, [*link_lines, *stale_lines], bool(failed))
        return _result(
            plan, copied, record, left, live, changed=True, published=True, phases=self.seconds
        )

    def _copy(self) -> Copied:
        plan, files = self.plan, self.plan.files
        self.observer.phase("copy", files=files.copied.files, size_bytes=files.copied.bytes)
        with self._timed("copy"):
            inline = plan.request.verify
            if inline is Verify.READBACK and not plan.in_ram:
                inline = Verify.INFLIGHT  # read back from the disk itself once all is written
            return copy_all(
                files,
                plan.source_fd,
                self.private,
                verify=inline,
                reading=plan.reading,
                gentle=plan.request.gentle,
                observer=self.observer,
            )

    def _still_published(self, copied: Copied, manifest: ManifestIndex) -> list[bytes]:
        """Return the lines of what failed now but is published from an earlier run."""
        if self.published_fd is None:
            return []
        lines = []
        for problem in copied.problems:
            parent, _, name = problem.path.rpartition("/")
            record = manifest.records(parent).get(name)
            if record is not None:
                lines.append(encode_line(parent, [record]))
        return lines

    def _publish(
        self, copied: Copied, lines: list[bytes], partial: bool
    ) -> tuple[Record, list[str]]:
        plan, request, files = self.plan, self.plan.request, self.plan.files
        directories = plan.scan.directories
        tree_lines, directory_sum = directory_lines(directories)
        total = digest.add(digest.add(files.digest_sum, copied.digest_sum), directory_sum)
        record = self._record(copied, digest.to_hex(total), partial)
        home = folder(request.name, request.target)
        new = self.published_fd is None
        if new:
            finish_directories(directories, list(directories), plan.source_fd, self.private.tree_fd)
            # The manifest and the record come before the rename: were we killed right after it,
            # what is published must be known as ours.
            self._write_manifest([*files.keep_lines, *lines, *tree_lines])
            self._save(record, "publishing")
            publish_new(self.private, self.parent_fd, request.name, directories[""])
            left: list[str] = []
        else:
            assert self.published_fd is not None
            if plan.previous is not None:
                self._save(plan.previous, "updating")
            left = publish_update(files, self.private, self.published_fd)
            # Work in a directory changed its time, so all are gone over.
            finish_directories(directories, list(directories), plan.source_fd, self.published_fd)
            self._write_manifest([*files.keep_lines, *lines, *tree_lines])
        if not plan.in_ram:
            os.fsync(self.parent_fd)
            sync_file_system(self.parent_fd)
        self._save(record, "staged")
        assert home.is_dir()
        self.private.remove()
        return record, left

    def _write_manifest(self, lines: list[bytes]) -> None:
        request = self.plan.request

        def parts() -> Iterator[bytes]:
            yield from lines
            for path in self.private.journals():
                with open(path, "rb") as journal:
                    while chunk := journal.read(1024 * 1024):
                        yield chunk

        write_manifest(folder(request.name, request.target), parts())

    def _record(self, copied: Copied, digest_text: str, partial: bool) -> Record:
        plan, request, files = self.plan, self.plan.request, self.plan.files
        now = time.time()
        verified = request.verify is not Verify.NONE
        if verified and files.kept.files and plan.previous is not None:
            verified = plan.previous.verified_at is not None
        count = files.kept.files + files.resumed.files + copied.files
        size_bytes = (
            files.kept.bytes
            + files.resumed.bytes
            + copied.bytes
            + sum(link.entry.size for link in files.links)
        )
        return Record(
            name=request.name,
            source=request.source,
            target=request.target,
            volume=request.parent if plan.volume is not None else None,
            files=count,
            bytes=size_bytes,
            entries=count + len(plan.scan.directories),
            digest=digest_text if verified else None,
            verify=request.verify.value,
            verified_at=now if verified else None,
            staged_at=now,
            boot_id=boot_id(),
            partial=partial,
            skipped=(*files.skipped, *copied.problems),
        )

    def _save(self, record: Record, phase: str) -> None:
        import dataclasses

        save_record(dataclasses.replace(record, phase=phase))

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started


def run_stage(
    request: StageRequest,
    observer: Observer,
    *,
    wait_seconds: float | None = None,
) -> StageResult:
    """Plan and carry out under the target's lock; ``wait_seconds`` as for ``locks.lock``."""
    with (
        lock(
            stage_lock(request),
            purpose=f"hostprep stage {request.source}",
            wait_seconds=wait_seconds,
            on_wait=observer.note,
        ),
        plan_stage(request, observer) as plan,
    ):
        return carry_out(plan, observer)


def cores() -> int:
    """Return how many worker processes may be busy at once: affinity and cgroup quota."""
    return max(1, int(usable_cpus() + 0.5))


def _open_parent(request: StageRequest, stack: ExitStack) -> int | None:
    """Return a descriptor of the directory that data sets lie in, None before it is there."""
    if request.volume_size_bytes is not None:
        mount = mount_containing(os.path.realpath(request.parent), read_mounts())
        if mount is None or mount.target != request.parent or mount.fstype != "tmpfs":
            return None
    try:
        descriptor = os.open(request.parent, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostprepError(
            f"the target {request.parent} cannot be opened: {error.strerror}; nothing was changed."
        ) from None
    stack.callback(os.close, descriptor)
    return descriptor


def _ownership_refusal(
    request: StageRequest, previous: Record | None, published: bool
) -> Refused | None:
    if not published:
        return None
    if previous is None:
        return Refused(
            f"{request.target} exists and was not staged by hostprep; nothing was changed.",
            "choose another --name, or move it away",
        )
    if previous.source != request.source:
        return Refused(
            f"{request.target} holds what was staged from {previous.source}, not from "
            f"{request.source}; nothing was changed.",
            f"choose another --name, or run `hostprep unstage {request.name}` first",
        )
    return None


def _plan_files(
    request: StageRequest,
    scan: Scan,
    previous: Record | None,
    parent_fd: int | None,
    published_fd: int | None,
    observer: Observer,
    source_fd: int,
) -> CopyPlan:
    private_fd = look(parent_fd, request.name, _purpose(request)) if parent_fd is not None else None
    if published_fd is None and private_fd is None:
        return plan_fresh(scan)
    with ExitStack() as stack:
        tree_fd = None
        journals: list[str] = []
        if private_fd is not None:
            stack.callback(os.close, private_fd)
            journals = [
                f"/proc/self/fd/{private_fd}/{name}"
                for name in sorted(os.listdir(private_fd))
                if name.startswith("journal.")
            ]
            try:
                tree_fd = os.open(TREE, DIRECTORY_FLAGS, dir_fd=private_fd)
                stack.callback(os.close, tree_fd)
            except FileNotFoundError:
                pass
        manifest = ManifestIndex(
            [manifest_path(folder(request.name, request.target))] if published_fd else []
        )
        stack.callback(manifest.close)
        journal = ManifestIndex(journals)
        stack.callback(journal.close)

        def plan(suspect: frozenset[str] = frozenset()) -> CopyPlan:
            return plan_update(
                scan,
                manifest=manifest,
                journal=journal,
                published_fd=published_fd,
                private_fd=tree_fd,
                suspect=suspect,
            )

        found = plan()
        if request.full_check and published_fd is not None:
            suspect = check_kept(found, source_fd, published_fd, cores(), observer)
            if suspect:
                found = plan(suspect)
        return found


def _purpose(request: StageRequest) -> dict[str, str]:
    return {"source": request.source, "target": request.target, "boot_id": boot_id()}


def _in_ram(path: str) -> bool:
    """Whether ``path``, or the nearest parent that exists, lies on a file system in memory."""
    mount = mount_containing(os.path.realpath(path), read_mounts())
    return mount is not None and mount.fstype in ("tmpfs", "ramfs")


def _result(
    plan: StagePlan,
    copied: Copied,
    record: Record | None,
    left: list[str],
    live: LiveVolume | None,
    *,
    changed: bool,
    published: bool,
    phases: dict[str, float] | None = None,
) -> StageResult:
    request, files = plan.request, plan.files
    skipped: tuple[Skipped, ...] = (*files.skipped, *copied.problems)
    phases = dict(phases or plan.seconds)
    return StageResult(
        dataset=request.name,
        source=request.source,
        target=request.target,
        files=record.files if record else files.kept.files + files.resumed.files + copied.files,
        bytes=record.bytes if record else files.kept.bytes + files.resumed.bytes + copied.bytes,
        copied_files=copied.files,
        copied_bytes=copied.bytes,
        kept_files=files.kept.files,
        resumed_files=files.resumed.files,
        deleted_files=len(files.delete) if published else 0,
        skipped=skipped,
        left=(*files.foreign, *left),
        digest=record.digest if record else None,
        verified=bool(record and record.verified_at is not None),
        verify=request.verify,
        published=published,
        changed=changed or bool(plan.volume is not None and plan.volume.changes),
        seconds=sum(phases.values()),
        phases=phases,
        volume=live,
    )
