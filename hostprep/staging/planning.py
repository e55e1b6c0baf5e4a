"""Planning a run of ``stage``: look at source and target, decide everything, change nothing."""

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
from hostprep.host.memory import read_headroom
from hostprep.host.mounts import mount_containing, read_mounts
from hostprep.staging.checking import check_kept
from hostprep.staging.manifest import (
    ManifestIndex,
    Record,
    folder_of,
    load_record,
    manifest_path,
    record_id,
)
from hostprep.staging.model import StageRequest
from hostprep.staging.observer import Observer
from hostprep.staging.plan import CopyPlan, plan_fresh
from hostprep.staging.private import TREE, footprint, look
from hostprep.staging.publish import open_published
from hostprep.staging.reading import Reading, choose_reading
from hostprep.staging.sampling import Sample, take_sample
from hostprep.staging.scan import Scan, scan_tree
from hostprep.staging.source import check_apart, open_source
from hostprep.staging.space import (
    Space,
    check_space,
    directory_space,
    fits,
    reclaiming,
    volume_request,
    volume_space,
)
from hostprep.staging.tree import DIRECTORY_FLAGS
from hostprep.staging.update import plan_update
from hostprep.volumes.facts import gather
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
        return self.is_fresh and not (self.volume is not None and self.volume.changes)

    @property
    def is_fresh(self) -> bool:
        """Whether the data set is there, whole and fresh, whatever is to be done to its volume."""
        return (
            self.published
            and self.files.nothing_to_do
            and self.previous is not None
            and self.previous.phase == "staged"
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
        arm = storage.storage_class is StorageClass.ARM
        threads = 1 if arm or storage.storage_class is StorageClass.RAM else 8
        scan = scan_tree(
            source_fd,
            processes=1 if request.gentle or arm else cpus,
            threads=1 if request.gentle else threads,
            by_inode=arm,
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
        sample = (
            take_sample(source_fd, scan, arm=arm) if files.copied.files else Sample(0, None, None)
        )
        reading = choose_reading(
            storage.storage_class,
            sample,
            cpus=cpus,
            size_bytes=files.copied.bytes,
            available_bytes=read_headroom().available_bytes,
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
        if parent_fd is not None and not fits(space):
            space = reclaiming(space, *footprint(parent_fd, request.name), files)
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
    if previous is None or previous.phase == "copying":
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
    private_fd = (
        look(parent_fd, request.name, purpose_of(request)) if parent_fd is not None else None
    )
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
            [manifest_path(folder_of(previous))]
            if published_fd is not None and previous is not None
            else []
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


def purpose_of(request: StageRequest) -> dict[str, str]:
    """Return what a private directory must be for, so that its work can be taken up."""
    return {
        "source": request.source,
        "target": request.target,
        "boot_id": boot_id(),
        # What was only hashed in flight, or not at all, is no use to who wants it read back.
        "verify": request.verify.value,
    }


def _in_ram(path: str) -> bool:
    """Whether ``path``, or the nearest parent that exists, lies on a file system in memory."""
    mount = mount_containing(os.path.realpath(path), read_mounts())
    return mount is not None and mount.fstype in ("tmpfs", "ramfs")
