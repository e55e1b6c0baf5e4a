"""What has come of a run: the record that stays of a data set, and the result for who asked."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from hostprep.errors import HostprepError
from hostprep.host.boot import boot_id
from hostprep.staging.manifest import Record
from hostprep.staging.model import Skipped, StageResult, Verify
from hostprep.staging.planning import StagePlan
from hostprep.staging.tasks import Copied
from hostprep.volumes.live import read_live
from hostprep.volumes.model import LiveVolume


def record_of(
    plan: StagePlan,
    copied: Copied,
    digest_text: str | None,
    target_mount: str | None,
    *,
    partial: bool = False,
) -> Record:
    """Return the record of the data set as it is with what was copied now.

    ``digest_text`` is its digest, None where there is none yet; ``target_mount`` the mount point
    that the target lies below.
    """
    request, files = plan.request, plan.files
    now = time.time()
    verified = (
        request.verify is not Verify.NONE and digest_text is not None and not files.unverified
    )
    count = files.kept.files + files.resumed.files + copied.files
    size_bytes = files.kept.bytes + files.resumed.bytes + copied.bytes + copied.linked_bytes
    return Record(
        name=request.name,
        source=request.source,
        target=request.target,
        volume=request.parent if plan.volume is not None else None,
        target_mount=target_mount,
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


def result_of(
    plan: StagePlan,
    copied: Copied,
    record: Record | None,
    left: list[str],
    live: LiveVolume | None,
    *,
    changed: bool,
    published: bool,
) -> StageResult:
    """Return what a run tells: of all that is there, and of what it did itself.

    What only its end shows, ``concluded`` adds.
    """
    request, files = plan.request, plan.files
    skipped: tuple[Skipped, ...] = (*files.skipped, *copied.problems)
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
        seconds=0.0,
        cpu_seconds=copied.cpu_seconds or None,
        lost_attributes=copied.lost_xattrs,
        outward_links=copied.outward,
        outward_named=tuple(copied.outward_named),
        volume=live,
        full_check=files.full_check,
        differing=files.differing,
    )


def concluded(plan: StagePlan, result: StageResult) -> StageResult:
    """Return the result of a run that has let go of all that it held open: time and volume.

    A directory that is removed takes its inode until it is closed.
    """
    volume = result.volume
    if volume is not None:
        # Hidden by a later mount, it is left as it was: the data set is where it was staged.
        with contextlib.suppress(HostprepError):
            volume = read_live(volume.path) or volume
    seconds = time.monotonic() - plan.started
    phases = {**plan.seconds, "total": seconds}
    return replace(result, volume=volume, seconds=seconds, phases=phases)
