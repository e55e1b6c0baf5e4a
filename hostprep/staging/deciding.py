"""Decides what a ``stage`` run is to do, once the source is scanned; changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hostprep.errors import HostprepError, Refused, UsageError, reading_hint
from hostprep.host.block import PathStorage, StorageClass
from hostprep.host.memory import read_headroom
from hostprep.host.mounts import Mount, mount_containing, read_mounts
from hostprep.staging.comparing import plan_files
from hostprep.staging.failures import name_in, unstage_first
from hostprep.staging.forbidding import empty_refusal, nested_refusal, ownership_refusal
from hostprep.staging.model import StageRequest, Verify
from hostprep.staging.observer import Observer
from hostprep.staging.planning import StagePlan, cores
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.plans.space import (
    Space,
    check_memory,
    check_space,
    directory_space,
    room_for,
    volume_request,
    volume_space,
)
from hostprep.staging.publishing.published import open_published
from hostprep.staging.publishing.removing import cut_short_refusal
from hostprep.staging.record.records import Record, load_record, staged_in
from hostprep.staging.resuming import is_in_ram
from hostprep.staging.source.opening import is_served, patience_for
from hostprep.staging.source.reading import choose_reading, within_memory
from hostprep.staging.source.sampling import Sample, take_sample, take_sample_apart
from hostprep.staging.source.scan import Scan
from hostprep.staging.source.submounts import missing_refusal, submounts
from hostprep.staging.target.place import (
    locked_refusal,
    moved_refusal,
    open_parent,
    read_only_refusal,
    standing_directory,
    unmounted_refusal,
)
from hostprep.staging.target.strangers import exchanged_refusal
from hostprep.system.following import followed
from hostprep.volumes.facts import gather
from hostprep.volumes.live import check_visible
from hostprep.volumes.model import RamBudget
from hostprep.volumes.plan import VolumePlan, plan_volume


def decide(
    request: StageRequest,
    source_fd: int,
    scan: Scan,
    storage: PathStorage,
    started: float,
    seconds: dict[str, float],
    observer: Observer,
    stack: ExitStack,
) -> StagePlan:
    """Return the plan for a scanned source; ``stack`` closes what it holds open.

    ``started`` is when planning began, on the monotonic clock, and ``seconds`` has the durations of
    phases. A rule that forbids the run is the plan's ``refusal``.
    """
    previous = load_record(request.name, request.target)
    parent_fd = _open_parent(request, stack)
    with target_read(request):
        published_fd = None if parent_fd is None else open_published(parent_fd, request.name)
    if published_fd is not None:
        stack.callback(os.close, published_fd)
    published = published_fd is not None
    mounts = read_mounts()
    refusal = _refusal_before_planning(request, scan, previous, published_fd, mounts)
    files = CopyPlan()
    if refusal is None:
        with target_read(request):
            files = plan_files(
                request, scan, previous, parent_fd, published_fd, observer, source_fd
            )
            if parent_fd is not None:
                refusal = cut_short_refusal(
                    parent_fd, request.name, request.target, previous, observer
                )
    served = is_served(request.source, storage.storage_class)
    sample = _sample_of(request, source_fd, scan, files, storage.storage_class, observer, served)
    files.attribute_bytes = round(files.copied.files * sample.attribute_bytes)
    available_bytes = read_headroom().cache_bytes
    reading = choose_reading(
        storage.storage_class,
        sample,
        cpus=cores(),
        files=files.copied.files,
        size_bytes=files.copied.bytes,
        available_bytes=available_bytes,
        readers=request.readers,
        order=request.order,
        gentle=request.gentle,
    )
    if request.readers is None:
        reading = within_memory(reading, available_bytes)
    volume, space, memory = _room_of(request, files, parent_fd)
    if refusal is None:
        refusal = _refusal_of_target(request, files, previous, parent_fd, volume, space, memory)
    plan = StagePlan(
        request=request,
        source_fd=source_fd,
        scan=scan,
        files=files,
        space=space,
        volume=volume,
        budget=memory if volume is None else volume.budget or memory,
        storage=storage,
        sample=sample,
        reading=reading,
        previous=previous,
        submounts=submounts(request.source, scan, mounts),
        served=served,
        published=published,
        in_ram=volume is not None or is_in_ram(request.parent),
        started=started,
        seconds=seconds,
        refusal=refusal,
    )
    exchanged = exchanged_refusal(previous, published_fd)
    if not plan.nothing_to_do and (forbidden := exchanged or files.opens):
        raise forbidden
    return plan


@contextmanager
def target_read(request: StageRequest) -> Iterator[None]:
    """Make an error of the target's disk or server say so."""
    try:
        yield
    except OSError as error:
        name = name_in(error, request)
        where = f" ({name})" if name else ""
        raise HostprepError(
            f"the target {request.target} cannot be looked at: {error.strerror or error}{where};"
            " nothing was changed.",
            reading_hint(error),
        ) from error


def _refusal_before_planning(
    request: StageRequest,
    scan: Scan,
    previous: Record | None,
    published_fd: int | None,
    mounts: Sequence[Mount],
) -> Refused | None:
    """Return the first rule that forbids the run before its files are planned, if one does."""
    return (
        (moved_refusal(previous) if previous is not None else None)
        or locked_refusal(request.parent)
        or (unmounted_refusal(request.parent) if request.volume_size_bytes is None else None)
        or nested_refusal(request, previous)
        or ownership_refusal(request, previous, published_fd)
        or empty_refusal(request, scan, previous, published_fd is not None)
        or missing_refusal(request, scan, previous, mounts)
    )


def _refusal_of_target(
    request: StageRequest,
    files: CopyPlan,
    previous: Record | None,
    parent_fd: int | None,
    volume: VolumePlan | None,
    space: Space,
    memory: RamBudget | None,
) -> Refused | None:
    """Return the first rule of where the files would lie that forbids the run, if one does."""
    refusal = None
    if volume is not None:
        there = () if volume.refusal is None else staged_in(request.parent)
        refusal = unstage_first(volume.refusal, there)
    if parent_fd is not None or volume is None:
        refusal = refusal or _read_only_refusal(request, files)
    refusal = refusal or _room_refusal(request, space, previous)
    if memory is not None:
        refusal = refusal or check_memory(request, memory)
    return refusal


def _room_of(
    request: StageRequest, files: CopyPlan, parent_fd: int | None
) -> tuple[VolumePlan | None, Space, RamBudget | None]:
    """Return the plan for the volume, the room on the target, and the memory budget.

    The budget is None if the volume's own plan has one, because it is mounted or grown, and if
    nothing is copied.
    """
    volume = None
    if request.volume_size_bytes is None:
        space = directory_space(request, files)
    else:
        facts = gather(request.parent)
        volume = plan_volume(volume_request(request, files, facts.live), facts)
        space = volume_space(request, files, volume)
    in_memory = bool(files.copied.files) and (volume is None or volume.budget is None)
    return volume, *room_for(request, files, space, parent_fd, in_memory=in_memory)


def _open_parent(request: StageRequest, stack: ExitStack) -> int | None:
    """Return a descriptor of the directory that data sets lie in, None if it does not exist yet."""
    volume, mounts = None, read_mounts()
    if request.volume_size_bytes is not None:
        volume = mount_containing(followed(request.parent), mounts)
        if volume is None or volume.target != request.parent or volume.fstype != "tmpfs":
            return None
    try:
        descriptor = open_parent(request.parent)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise UsageError(
            f"the target {request.parent} is a file, or lies below one; nothing was changed.",
            "name a directory; the data set gets a directory of its own in it",
        ) from None
    except OSError as error:
        raise HostprepError(
            f"the target {request.parent} cannot be opened: {error.strerror}; nothing was changed.",
            reading_hint(error),
        ) from None
    stack.callback(os.close, descriptor)
    if volume is not None:
        check_visible(descriptor, volume, mounts)
    return descriptor


def _read_only_refusal(request: StageRequest, files: CopyPlan) -> Refused | None:
    """Refuse to write to a read-only file system, for instance ext4 after an error."""
    path = standing_directory(request.parent)
    if files.nothing_to_do or not os.statvfs(path).f_flag & os.ST_RDONLY:
        return None
    return read_only_refusal(path)


def _sample_of(
    request: StageRequest,
    source_fd: int,
    scan: Scan,
    files: CopyPlan,
    storage_class: StorageClass,
    observer: Observer,
    served: bool,
) -> Sample:
    """Sample how the source answers, if anything is to be read from it."""
    if not files.copied.files:
        return Sample(0, None, None)
    arm = storage_class is StorageClass.ARM
    if not served:
        return take_sample(source_fd, scan, arm=arm)
    on_wait = patience_for(request.source, observer)
    return take_sample_apart(source_fd, scan, arm=arm, on_wait=on_wait)


def _room_refusal(request: StageRequest, space: Space, previous: Record | None) -> Refused | None:
    refusal = check_space(request, space)
    unverified = (
        previous is not None and previous.phase != "copying" and previous.verify == Verify.NONE
    )
    if refusal is not None and unverified and request.verify is not Verify.NONE:
        refusal.hint = f"{refusal.hint}; or --verify none, which keeps what was staged so"
    return refusal
