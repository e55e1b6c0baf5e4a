"""``hostprep unstage``: removes what the manifest lists, and nothing of anybody else's."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, after_changes, where_in, without_claim
from hostprep.staging.failures import DISK_FAILS, SEE_DMESG, what_is_fixed
from hostprep.staging.observer import Count, Observer
from hostprep.staging.publishing.removing import hide, remove_hidden, remove_ours
from hostprep.staging.record.records import Record, forget, save_record
from hostprep.staging.target.held import open_held
from hostprep.staging.target.owned import private_name
from hostprep.staging.target.place import check_bare
from hostprep.staging.target.private import moved_away, open_or_make, remove_opened
from hostprep.staging.unstage_plan import UnstagePlan, open_target_parent
from hostprep.system.systemd import NotReloaded
from hostprep.volumes.facts import gather
from hostprep.volumes.live import read_live
from hostprep.volumes.removal import (
    NotUnmounted,
    StillUsed,
    UnmountFailed,
    UnmountRequest,
    apply_unmount,
    check_line_removal,
    gather_and_plan_unmount,
)

_AGAIN = "run the same command again"


@dataclass(frozen=True, slots=True)
class UnstageResult:
    """What was removed. ``unmounted`` is None if no volume was to be unmounted.

    ``problem`` is an error of that after the copies were removed; a volume that is still in use is
    not one, and ``kept_because`` says so. ``line_removed``: its line in fstab was removed.
    ``by_another``: a run that this one waited for had already unstaged the data set, so only the
    volume was left to do.
    """

    record: Record
    removed_entries: int
    foreign: tuple[str, ...]
    unmounted: bool | None
    kept_because: str | None
    changed: bool = True
    by_another: bool = False
    problem: HostprepError | None = None
    line_removed: bool = False


def unstage(plan: UnstagePlan, observer: Observer, *, release_volume: bool = True) -> UnstageResult:
    """Carry out ``plan``. Must be called under the data set's lock.

    If everything is ours, it is first moved out of sight by a single rename, so that no reader sees
    half of it, and an interrupted removal is finished by the next run. What is others' by then is
    put back. The record says that this has begun, and is removed last, so that an interrupted run
    stays known to its end. With ``release_volume`` False, an empty volume stays mounted. Raises
    ``HostprepError`` if something cannot be removed, in which case the data set stays on record;
    or, before anything is removed, if the volume's line in fstab should be removed and cannot be.
    Raises ``Refused`` if something was mounted in it since.
    """
    record = plan.record
    if plan.removes_line and record.volume is not None:
        check_line_removal(record.volume, observer.note)
    foreign = plan.foreign
    parent_fd = open_target_parent(record)
    if parent_fd is not None:
        try:
            foreign = _remove(plan, parent_fd, observer)
        except OSError as error:
            raise _stopped(error, record) from error
        finally:
            os.close(parent_fd)
    if foreign:
        changed = plan.private or plan.files > 0
        if record.volume is None:
            return UnstageResult(record, plan.files, foreign, None, None, changed)
        why = "it holds files of others"
        return UnstageResult(record, plan.files, foreign, False, why, changed)
    with after_changes():
        released = _release_volume(plan, observer) if release_volume else _Released()
        forget(record, "its copies are gone from the target")
        return _result(plan, released)


def _remove(plan: UnstagePlan, parent_fd: int, observer: Observer) -> tuple[str, ...]:
    """Remove the copies, unfinished ones too; return others' entries, which stay.

    Raises OSError if something cannot be removed, and ``Refused`` as ``unstage`` does.
    """
    record, foreign = plan.record, plan.foreign
    hides = plan.published and not foreign
    check_bare(record.target)  # comparing a large one took a while
    private_fd = None
    # The same descriptor for all steps, so that nothing can be exchanged in between.
    try:
        find = open_or_make if hides or plan.hidden else open_held
        private_fd = find(parent_fd, record.target)
    except OSError as error:
        if not hides or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        hides = False  # a full target has no room to hide it: remove it in place
    try:
        observer.phase("remove", files=plan.files)
        if plan.published or plan.hidden:
            with contextlib.suppress(OSError):  # a full disk must not prevent the removal of files
                _note(record, left=None)
        with after_changes():
            if private_fd is not None and (plan.hidden or hides):
                if hides:
                    hide(parent_fd, private_fd, record)
                foreign = remove_hidden(parent_fd, private_fd, record, observer)
            elif plan.published:
                foreign = remove_ours(parent_fd, record, observer)
            if private_fd is not None:
                _remove_private(parent_fd, private_fd, record, observer)
            if foreign:
                _note(record, left=len(foreign))
            elif record.volume is None:
                os.fsync(parent_fd)  # what a power cut brings back must still be on record
    finally:
        if private_fd is not None:
            os.close(private_fd)
    return foreign


def unstaged_by_another(plan: UnstagePlan, observer: Observer) -> UnstageResult:
    """Unmount the volume of a data set that another run has meanwhile removed and forgotten.

    That run may not have been asked to. ``plan`` is that of ``plan_forgetting``.
    """
    record = plan.record
    had_line = _has_line(record)
    released = _release_volume(plan, observer)
    changed = bool(released.unmounted) or had_line != _has_line(record)
    return replace(_result(plan, released), changed=changed, by_another=True)


def _has_line(record: Record) -> bool:
    return record.volume is not None and gather(record.volume).fstab_entry is not None


def _remove_private(parent_fd: int, private_fd: int, record: Record, observer: Observer) -> None:
    name = private_name(record.name)
    observer.phase("clear")
    if not remove_opened(parent_fd, name, private_fd, Count(observer).add):
        observer.note(moved_away(os.path.dirname(record.target), name))


def _note(record: Record, *, left: int | None) -> None:
    """Record that the copies are no longer complete, and how many entries had to stay."""
    noted = replace(record, phase="removing", left=left)
    save_record(noted, durable=record.volume is None)


def _stopped(error: OSError, record: Record) -> HostprepError:
    hint = "fix that and run the same command again: it goes on where this one stopped"
    if error.errno == errno.EPERM:
        hint = f"{what_is_fixed(os.path.dirname(record.target))}; {hint}"
    elif error.errno in DISK_FAILS:  # ext4 is read-only then, but seems to be mounted for writing
        hint = f"{SEE_DMESG}: {hint}"
    elif error.errno == errno.ENOTEMPTY:  # although all that was seen in it is removed
        # Only what is left of it: to look through the other data sets of a share takes long.
        left = record.target
        if not os.path.lexists(left):
            above, name = os.path.split(left)
            left = os.path.join(above, private_name(name))
        hint = (
            "does a program still read a file of it? On a share such a file stays, as .nfs and a"
            f" number, until it is closed: `lsof +D {shlex.quote(left)}`"
            " names the program. Then run the same command again: it goes on where this one stopped"
        )
    elif error.errno == errno.EDQUOT:
        hint = (
            "have the quota raised until all is removed, since on Btrfs removing takes up some of"
            " it (`btrfs qgroup show` names the group, and the limit is set at the mount point of"
            " the whole), and run the same command again: it goes on where this one stopped"
        )
    said = f"{error.strerror or error}{where_in(error)}"
    return HostprepError(
        f"{record.target} could not be removed: {said}; what is left of it stays on record, and the"
        " source was not touched.",
        hint,
    )


@dataclass(frozen=True, slots=True)
class _Released:
    """What happened to the volume: see ``UnstageResult``."""

    unmounted: bool | None = None
    kept_because: str | None = None
    problem: HostprepError | None = None


def _result(plan: UnstagePlan, released: _Released) -> UnstageResult:
    return UnstageResult(
        plan.record,
        plan.files,
        (),
        released.unmounted,
        released.kept_because,
        problem=released.problem,
        line_removed=plan.removes_line and not _has_line(plan.record),
    )


def _release_volume(plan: UnstagePlan, observer: Observer) -> _Released:
    """Unmount the volume if it is hostprep's and empty, and remove its line if that was asked."""
    volume = plan.record.volume
    if volume is None:
        return _Released()
    facts = gather(volume)
    if facts.live is None and not plan.fstab:
        return _Released()
    if facts.live is not None and not facts.is_ours:
        return _Released(False, "it was not mounted by hostprep")
    if facts.live is not None and facts.place.entries:
        return _Released(False, f"it still holds {', '.join(facts.place.entries[:3])}")
    try:
        request = UnmountRequest(volume, fstab=plan.fstab)
        apply_unmount(gather_and_plan_unmount(request), on_wait=observer.note)
    except HostprepError as error:
        return _not_released(plan, volume, error, was_mounted=facts.live is not None)
    return _Released(None if facts.live is None else True)


def _not_released(
    plan: UnstagePlan, volume: str, error: HostprepError, *, was_mounted: bool
) -> _Released:
    """Distinguish a volume that has to stay for a while from a failure, mostly one of fstab."""
    # By now the copies are gone, which the volume's own plan does not know.
    why = without_claim(error.message).removesuffix(".")
    later = f"hostprep unmount {shlex.quote(volume)}{' --fstab' if plan.fstab else ''}"
    stays = read_live(volume) is not None
    kept_because = f"{why}; once that is over: {later}" if stays else None
    unmounted = not stays if was_mounted else None
    is_used = isinstance(error, StillUsed | NotUnmounted)
    is_tried = plan.fstab or isinstance(error, UnmountFailed)
    if stays and (is_used or not is_tried):
        return _Released(unmounted, kept_because)
    what = f", but the volume {volume} stays: {why}" if stays else f"; {why}"
    problem = HostprepError(f"the copies are gone{what}.", hint_after(error, later))
    return _Released(unmounted, kept_because, problem)


def hint_after(error: HostprepError, later: str) -> str:
    """Return the hint after a volume's ``error``; it ends with ``later``, the command to continue.

    The same command as before would not know the data set any more; ``later`` also makes systemd
    read fstab.
    """
    if error.hint is None or isinstance(error, NotReloaded):
        return f"once that is over: {later}"
    if _AGAIN in error.hint:
        return error.hint.replace(_AGAIN, f"run `{later}`")
    return f"{error.hint}; then: {later}"
