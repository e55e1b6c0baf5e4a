"""The outcome of a run: the data set's record, and the result for the caller."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

from hostprep.errors import HostprepError
from hostprep.host.boot import boot_id
from hostprep.host.mounts import Mount
from hostprep.staging.files.copying import leads_out
from hostprep.staging.model import StageResult, Verify
from hostprep.staging.planning import StagePlan
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.processes.copier import MOST_NAMED
from hostprep.staging.reasons import Skipped
from hostprep.staging.record.lines import decode_line
from hostprep.staging.record.records import Record, folder, folder_of, save_record
from hostprep.staging.resuming import begins_anew
from hostprep.staging.target.place import place_on_disk
from hostprep.staging.tasks import Copied
from hostprep.system.trees import join
from hostprep.volumes.live import read_live
from hostprep.volumes.model import LiveVolume

# What a manifest line has between the name and the size of a symlink.
_MAY_HAVE_SYMLINKS = b'","l",'


def record_of(
    plan: StagePlan,
    copied: Copied,
    digest_text: str | None,
    mount: Mount | None,
    *,
    partial: bool = False,
) -> Record:
    """Return the record of the data set, together with what was copied now.

    ``digest_text`` is its digest, None if there is none yet; the target is on ``mount``.
    """
    request, files = plan.request, plan.files
    now = time.time()
    verified = (
        request.verify is not Verify.NONE and digest_text is not None and not files.unverified
    )
    count, size_bytes = _all_of(files, copied)
    return Record(
        name=request.name,
        source=request.source,
        target=request.target,
        volume=request.parent if plan.volume is not None else None,
        target_mount=None if mount is None else mount.target,
        target_place=place_on_disk(request.parent) if plan.volume is None else None,
        files=count,
        bytes=size_bytes,
        entries=count + len(plan.scan.directories),
        digest=digest_text if verified else None,
        verify=_weakest(plan).value,
        verified_at=_verified_at(plan, copied, now) if verified else None,
        staged_at=now,
        boot_id=boot_id(),
        partial=partial,
        skipped=(*files.skipped, *copied.problems),
        submounts=plan.submounts,
    )


def _all_of(files: CopyPlan, copied: Copied) -> tuple[int, int]:
    """Return how many files there are now, and their bytes."""
    return (
        files.kept.files + files.resumed.files + copied.files,
        files.kept.bytes + files.resumed.bytes + copied.bytes + copied.linked_bytes,
    )


def _weakest(plan: StagePlan) -> Verify:
    """Return how everything there is verified; kept files may only have been hashed in flight.

    The manifest does not say what an earlier run read back.
    """
    verify, previous, files = plan.request.verify, plan.previous, plan.files
    if files.unverified:
        return Verify.NONE
    if verify is not Verify.READBACK or files.full_check:
        return verify
    if previous is None or previous.verify == Verify.READBACK or not _keeps_a_file(files):
        return verify
    return Verify.INFLIGHT


def _verified_at(plan: StagePlan, copied: Copied, now: float) -> float:
    """Return when the data set was last verified; a run that copied nothing did not verify it."""
    previous, files = plan.previous, plan.files
    if copied.files or files.resumed.files or files.full_check:
        return now
    if previous is None or previous.phase != "staged":  # an interrupted run had verified more
        return now
    return previous.verified_at or now


def _keeps_a_file(files: CopyPlan) -> bool:
    """Whether any kept entry has content that can be read back."""
    return any(record.kind == "f" for line in files.keep_lines for record in decode_line(line)[1])


def still_there(plan: StagePlan) -> Record | None:
    """Return the record if nothing has to be done; a full check counts as reading back.

    The failure of an earlier run is removed from it.
    """
    previous, request = plan.previous, plan.request
    if previous is None:
        return None
    read = replace(previous, failure=None)
    if previous.verify == Verify.INFLIGHT and plan.files.full_check:
        read = replace(read, verify=Verify.READBACK.value, verified_at=time.time())
    if read == previous:
        return previous
    if folder_of(previous) == folder(request.name, request.target):  # otherwise it is the machine's
        with contextlib.suppress(OSError):  # on a full disk it stays hashed in flight
            save_record(read, durable=not plan.in_ram)
    return read


def result_of(
    plan: StagePlan,
    copied: Copied,
    record: Record | None,
    live: LiveVolume | None,
    *,
    changed: bool,
    left: Sequence[str] = (),
) -> StageResult:
    """Return the result of a run: everything that is there, and what the run did itself.

    Without a ``record`` nothing was published; ``left`` are others' entries that could not be
    removed. ``concluded`` adds what is only known at the end of the run.
    """
    request, files = plan.request, plan.files
    skipped: tuple[Skipped, ...] = (*files.skipped, *copied.problems)
    outward, outward_named = _leading_out(files, copied)
    count, size_bytes = (record.files, record.bytes) if record else _all_of(files, copied)
    return StageResult(
        dataset=request.name,
        source=request.source,
        target=request.target,
        files=count,
        bytes=size_bytes,
        copied_files=copied.files,
        copied_bytes=copied.bytes,
        copied_hole_bytes=copied.hole_bytes,
        kept_files=files.kept.files,
        resumed_files=files.resumed.files,
        deleted_files=len(files.delete) if record else 0,
        skipped=skipped,
        left=(*files.foreign, *left),
        digest=record.digest if record else None,
        verified=bool(record and record.verified_at is not None),
        verify=Verify(record.verify) if record else request.verify,
        copied_verify=request.verify,
        published=record is not None,
        changed=changed,
        seconds=0.0,
        processors=copied.processors,
        readers=(copied.readers or plan.reading.readers) if copied.files else None,
        planned_readers=plan.reading.readers if copied.files else None,
        lost_attributes=copied.lost_xattrs,
        outward_links=outward,
        outward_named=outward_named,
        volume=live,
        full_check=files.full_check,
        differing=files.differing,
        begins_anew=begins_anew(request.verify, full_check=request.full_check, in_ram=plan.in_ram),
    )


def _leading_out(files: CopyPlan, copied: Copied) -> tuple[int, tuple[str, ...]]:
    """Return how many symlinks of the whole data set lead out of it, and some of them."""
    number, named = copied.outward, list(copied.outward_named)
    for line in itertools.chain(files.keep_lines, files.done_lines):
        if _MAY_HAVE_SYMLINKS not in line:
            continue  # this avoids decoding nearly all lines
        directory, records = decode_line(line)
        for record in records:
            if record.kind == "l" and leads_out(directory, record.content or ""):
                number += 1
                if len(named) < MOST_NAMED:
                    named.append(join(directory, record.name))
    return number, tuple(named)


def concluded(plan: StagePlan, result: StageResult) -> StageResult:
    """Return the result of a run that has closed everything it held open: with time and volume.

    A removed directory takes its inode until it is closed.
    """
    volume = result.volume
    if volume is not None:
        # If a later mount hides the volume, leave this: the data set is where it was staged.
        with contextlib.suppress(HostprepError):
            volume = read_live(volume.path) or volume
    seconds = time.monotonic() - plan.started
    phases = {**plan.seconds, "total": seconds}
    return replace(result, volume=volume, seconds=seconds, phases=phases)
