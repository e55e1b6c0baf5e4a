"""What the boot service runs: stages what its boot record names, and nothing else.

It mounts, resizes and asks nothing. If anything differs from the record, it stops before it writes
anything, and leaves the reason in a note for ``status`` and ``wait``.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from hostprep.converging.boot_record import (
    BootNote,
    BootRecord,
    all_boot_records,
    load_boot_record,
    save_boot_record,
    save_note,
)
from hostprep.converging.boot_state import absent_mount
from hostprep.dataclass import dataclass
from hostprep.errors import ROOT_KEPT_OUT, HostprepError, Refused, UsageError
from hostprep.host.answering import wait_for_answers
from hostprep.host.block import locate
from hostprep.host.boot import boot_id
from hostprep.host.fscrypt import locked_out
from hostprep.host.mounts import lies_in, mount_containing, read_mounts
from hostprep.staging.model import StageRequest, StageResult, Verify
from hostprep.staging.observer import Observer
from hostprep.staging.planning import plan_stage, stage_lock
from hostprep.staging.publishing.listable import who_may_list
from hostprep.staging.record.manifest import manifest_path
from hostprep.staging.record.readers import ALL, readers_of
from hostprep.staging.record.records import folder, load_record
from hostprep.staging.shortfall import cure_of, shortfall_of
from hostprep.staging.stage import carry_out
from hostprep.system.following import followed
from hostprep.system.locks import lock
from hostprep.units import PAGE_BYTES, format_bytes, format_count
from hostprep.volumes.facts import VolumeFacts, gather

# How hints of other commands say it.
_SAME = "run the same command again"


@dataclass(frozen=True, slots=True)
class Restaged:
    """The result, also in words."""

    result: StageResult
    summary: str


def restage(name: str, observer: Observer) -> Restaged:
    """Stage the data set ``name`` as its boot record says, and write the note that it is ready.

    Raises ``Refused`` if source or target are not as recorded, and ``HostprepError`` if staging
    fails; from then on ``status`` and ``wait`` report the reason, until it succeeds.
    """
    record = load_boot_record(name)
    if record is None:
        raise UsageError(
            f"no data set {name!r} is to be staged at boot; nothing was changed.",
            "give it `at_boot: true` in the spec, and run `hostprep apply`",
        )
    again = f"`systemctl restart {shlex.quote(record.unit)}`"
    request = _request(record)
    with lock(stage_lock(request), purpose=f"hostprep restage {name}", on_wait=observer.note):
        try:
            _note(name, "staging")
            done = _stage(record, request, again, observer)
        except BaseException as error:
            if isinstance(error, HostprepError):
                _as_of_the_service(error, again)
            _note(name, "failed", *_told(error, again))
            if isinstance(error, HostprepError):
                unnoted = "".join(getattr(error, "__notes__", ()))
                error.message = f"{name}: {error.message}{unnoted}"
            raise
        save_boot_record(dataclasses.replace(record, digest=done.result.digest))
        _note(name, "ready", done.summary, digest=done.result.digest)
    return done


def check_places(record: BootRecord, again: str) -> None:
    """Raise ``Refused`` unless source and target exist, on the recorded file systems.

    ``again`` completes the hint: how to stage it once the cause is fixed.
    """
    remount = f"mount it, which starts this again; if it does not, {again}"
    if absent := absent_mount(record, read_mounts()):
        raise Refused(f"{absent}; nothing was staged.", remount)
    if not os.path.isdir(record.source):
        if locked := locked_out(record.source):
            said, cure = locked
            message = f"its source {record.source} {said}; nothing was staged."
            raise Refused(message, f"{cure}, then {again}")
        if feeder := next((each for each in all_boot_records() if _feeds(each, record)), None):
            raise Refused(
                f"its source {record.source} is in the copy of {feeder.name}, and is not there;"
                " nothing was staged.",
                f"`systemctl restart {shlex.quote(feeder.unit)}`, then {again}",
            )
        try:
            os.stat(record.source)
        except PermissionError as error:
            raise _unreadable(record, error, f"{ROOT_KEPT_OUT}: fix that, then {again}") from None
        except OSError:
            pass
        raise Refused(f"its source {record.source} is not there; nothing was staged.", remount)
    now = f"if that is intended, `hostprep apply` records it; otherwise correct it, then {again}"
    if (real := followed(record.source)) != record.source:
        raise Refused(f"its source {record.source} leads to {real}; nothing was staged.", now)
    # By the kernel's number of the mount.
    lies_on = locate(record.source).mount
    if lies_on.target != record.source_mount or lies_on.fstype == "autofs":
        raise Refused(
            f"its source {record.source} belongs to the file system at {record.source_mount}, and"
            f" lies on {lies_on.target} ({lies_on.fstype}) now; nothing was staged.",
            now,
        )
    _check_target(record, now)
    _check_filled(record, again)


def _feeds(other: BootRecord, record: BootRecord) -> bool:
    return other.name != record.name and lies_in(record.source, other.target)


def _check_filled(record: BootRecord, again: str) -> None:
    try:
        with os.scandir(record.source) as entries:
            empty = next(entries, None) is None
    except OSError as error:
        raise _unreadable(record, error, f"fix it, then {again}") from None
    if empty:
        raise Refused(
            f"its source {record.source} is empty; nothing was staged.", f"fill it, then {again}"
        )


def _unreadable(record: BootRecord, error: OSError, hint: str) -> HostprepError:
    return HostprepError(
        f"its source {record.source} cannot be read: {error.strerror}; nothing was staged.", hint
    )


def _check_target(record: BootRecord, now: str) -> None:
    if (real := followed(record.parent)) != record.parent:
        raise Refused(f"its target {record.parent} leads to {real}; nothing was staged.", now)
    if record.volume is None:
        mount = mount_containing(followed(record.parent), read_mounts())
        if mount is None or mount.target != record.target_mount:
            where = "nowhere" if mount is None else mount.target
            raise Refused(
                f"its target {record.parent} belongs to the file system at"
                f" {record.target_mount}, and lies on {where} now; nothing was staged.",
                now,
            )
        return
    facts = gather(record.volume)
    if facts.live is None or not facts.is_ours:
        raise Refused(
            f"what is mounted on {record.volume} is not a volume of hostprep's; nothing was"
            " staged.",
            "unmount it, and run `hostprep apply`, which mounts the volume and stages into it",
        )
    least = _least_size(record, facts)
    if least is not None and facts.live.size_bytes < least:
        raise Refused(
            f"its volume {record.volume} has {format_bytes(facts.live.size_bytes)} instead of"
            f" {format_bytes(least)}; nothing was staged.",
            now,
        )


def _least_size(record: BootRecord, facts: VolumeFacts) -> int | None:
    """Return the size in bytes below which the volume is not the one that was recorded.

    If hostprep itself has shrunk it since (by `mount --size`, or by an `apply` of a spec that no
    longer names the data set and therefore leaves its boot record alone), that is fine as well:
    whether the data set still fits is up to the plan.
    """
    if record.volume_size_bytes is None or facts.record is None:
        return record.volume_size_bytes
    return min(record.volume_size_bytes, facts.record.size_bytes)


def _request(record: BootRecord) -> StageRequest:
    return StageRequest(
        source=record.source,
        name=record.name,
        parent=record.parent,
        # What is mounted is already larger than this, and stays as it is.
        volume_size_bytes=PAGE_BYTES if record.volume else None,
        reserve_bytes=record.reserve_bytes,
        verify=Verify(record.verify),
    )


def _stage(record: BootRecord, request: StageRequest, again: str, observer: Observer) -> Restaged:
    # Reading the mounts does not make an automounter mount anything; this does.
    wait_for_answers((record.source, record.parent), observer.note)
    check_places(record, again)
    before = _digest_before(record)
    manifest = manifest_path(folder(request.name, request.target))
    earlier = readers_of(manifest) if manifest.exists() else None
    with ExitStack() as stack:
        with _names_kept(record, again, lambda: earlier != ALL):
            plan = stack.enter_context(plan_stage(request, observer))

        def closed() -> bool:
            now = who_may_list(plan.scan, None, request.parent)
            return earlier not in (None, ALL) or now != ALL

        if plan.volume is not None and plan.volume.changes:
            steps = "; ".join(change.action for change in plan.volume.changes)
            raise Refused(
                f"its volume {record.volume} does not suffice any more: {steps}. Nothing was"
                " staged.",
                "`hostprep apply` brings the volume up to date and stages the data set",
            )
        if plan.refusal is not None:
            raise Refused(
                plan.refusal.message, f"fix that (a larger volume, for instance), then {again}"
            )
        with _names_kept(record, again, closed):
            result = carry_out(plan, observer)
    if shortfall := shortfall_of(result, partial=False):
        first = next(item for item in result.skipped if item.failed)
        named = f" The first is {first.path}: {first.reason}."
        if closed():  # the journal's readers may see it, but not everybody who can read the note
            shortfall.add_note(named)
        else:
            shortfall.message += named
        shortfall.hint = shortfall.spec_hint = f"{cure_of(result.skipped)}, then {again}"
        raise shortfall
    changed = None if None in (before, result.digest) else before != result.digest
    return Restaged(result, _summary(result, changed))


@contextmanager
def _names_kept(record: BootRecord, again: str, closed: Callable[[], bool]) -> Iterator[None]:
    """Tell an error of the body only to the journal if names are ``closed`` to some users.

    Everybody can read the note, and most errors of staging name an entry.
    """
    try:
        yield
    except Exception as error:
        if closed():
            reason = f"it could not be staged; the journal of {record.unit} says why"
            if isinstance(error, HostprepError):
                error.add_note(f": {error.message}")
                error.message, error.spec_hint = reason, f"fix that, then {again}"
            else:
                error.add_note(reason)
        raise


def _digest_before(record: BootRecord) -> str | None:
    """Return the digest of the last staging; an interrupted run has none.

    For a tmpfs the data set's own record is not flushed, so a power cut may leave it damaged; then
    it is removed, because the volume is empty anyway.
    """
    try:
        staged = load_record(record.name, record.target)
    except HostprepError:
        if record.volume is None or os.path.lexists(record.target):
            raise
        shutil.rmtree(folder(record.name, record.target))
        staged = None
    if staged is not None and staged.source == record.source and staged.digest is not None:
        return staged.digest
    return record.digest


def _summary(result: StageResult, changed: bool | None) -> str:
    source = {
        None: "there was no earlier digest to compare with",
        False: "the source is as it was when it was last staged",
        True: "the source has changed since it was last staged",
    }[changed]
    return (
        f"{format_count(result.files, 'file')}, {format_bytes(result.bytes)}, digest"
        f" {result.digest}: {source}"
    )


def _as_of_the_service(error: HostprepError, again: str) -> None:
    """Make the hint say how to run the service again: its reader called `status`, or `wait`."""
    if error.hint is not None:
        error.hint = error.hint.replace(_SAME, again)
    if error.spec_hint is not None:
        error.spec_hint = error.spec_hint.replace(_SAME, again)


def _told(error: BaseException, again: str) -> tuple[str, str | None]:
    """Return an error in the form for a note: reason and hint."""
    if isinstance(error, HostprepError):
        return error.message, error.spec_hint
    if isinstance(error, KeyboardInterrupt):
        return "the run that staged it was stopped", again
    if notes := getattr(error, "__notes__", ()):
        return notes[0], None
    return f"unexpected {type(error).__name__}: {error}", None


def _note(
    name: str,
    state: str,
    reason: str = "",
    hint: str | None = None,
    *,
    digest: str | None = None,
) -> None:
    note = BootNote(state, boot_id(), os.getpid(), time.time(), reason, hint, digest)
    save_note(name, note)
