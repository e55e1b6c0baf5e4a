"""``hostprep unstage``: remove what the manifest says, and nothing that somebody else put there."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from contextlib import ExitStack
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, UsageError, one_line
from hostprep.staging.observer import Observer
from hostprep.staging.publishing.publish import open_published
from hostprep.staging.publishing.removing import (
    compare,
    cut_short_refusal,
    hide,
    open_hidden,
    remove_hidden,
    remove_ours,
)
from hostprep.staging.record.records import (
    Record,
    all_records,
    damaged_records,
    folder,
    folder_of,
    forget,
    record_id,
    save_record,
)
from hostprep.staging.target.place import (
    check_bare,
    check_spares_source,
    moved_refusal,
    open_parent,
)
from hostprep.staging.target.private import (
    is_there,
    moved_away,
    open_or_make,
    open_own,
    private_name,
    remove_opened,
)
from hostprep.units import format_count
from hostprep.volumes.facts import gather
from hostprep.volumes.model import Change
from hostprep.volumes.removal import unmount_volume


@dataclass(frozen=True, slots=True)
class UnstagePlan:
    """What would be removed: entries that are as they were staged.

    ``foreign`` are entries that are not: added or changed by somebody else, they stay. With any of
    them, the volume stays too. ``unmount`` tells that the volume will be empty and goes as well.
    ``hidden``: a run that was killed had moved them out of sight already, and not removed all.
    ``in_its_place``: something else has the data set's name on the target, and stays.
    """

    record: Record
    files: int
    foreign: tuple[str, ...]
    published: bool
    private: bool
    unmount: bool
    fstab: bool
    hidden: bool = False
    in_its_place: bool = False

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the steps in words."""
        record, changes = self.record, []
        if self.published or self.hidden:
            changes.append(
                Change(record.target, f"remove {format_count(self.files, 'entry')}", "asked for")
            )
        if self.private:
            changes.append(Change(record.target, "remove unfinished copies", "asked for"))
        if self.unmount and record.volume is not None:
            changes.append(Change(record.volume, "unmount", "nothing else is in the volume"))
        changes.append(Change(record.name, "forget its manifest", "asked for"))
        return tuple(changes)


@dataclass(frozen=True, slots=True)
class UnstageResult:
    """What was removed. ``unmounted`` is None where no volume was to be released.

    ``by_another``: a run that this one waited for had unstaged it, and nothing but the volume was
    left to this one.
    """

    record: Record
    removed_entries: int
    foreign: tuple[str, ...]
    unmounted: bool | None
    kept_because: str | None
    changed: bool = True
    by_another: bool = False


def find_record(name_or_path: str) -> Record:
    """Return the data set that is meant by its name, or by its path on the target.

    Raises ``UsageError`` where none is known, ``HostprepError`` where its record cannot be read.
    """
    records = all_records()
    path = os.path.abspath(name_or_path)
    for record in records:
        if record.target == path:
            return record
    at_path = record_id(os.path.basename(path), path)
    for folder_name, error in damaged_records().items():
        if folder_name == at_path or folder_name.rpartition("-")[0] == name_or_path[:100]:
            raise error
    named = [record for record in records if record.name == name_or_path]
    if len(named) == 1:
        return named[0]
    if named:
        targets = ", ".join(one_line(record.target) for record in named)
        raise UsageError(f"several data sets are called {name_or_path}.", f"name one of: {targets}")
    known = ", ".join(f"{record.name} ({one_line(record.target)})" for record in records)
    raise UsageError(
        f"hostprep knows no data set {name_or_path!r}; nothing was changed.",
        f"it knows: {known or 'none'}",
    )


def plan_unstage(record: Record, *, fstab: bool) -> UnstagePlan:
    """Look at what is there and return the plan; changes nothing.

    Raises ``Refused`` where what is there may be other files than the copies: something is mounted
    in the way, the path leads elsewhere, or the private directory is somebody else's. Raises
    ``HostprepError`` where the data set is on the machine's record, and not on this user's own.
    """
    check_own(record)
    if refusal := moved_refusal(record):
        raise refusal
    parent_fd = _open_parent(record)
    if parent_fd is None:
        return UnstagePlan(record, 0, (), False, False, False, fstab)
    try:
        check_bare(record.target)
        check_spares_source(record)
        private = is_there(parent_fd, record.target)
        found = _look(parent_fd, record)
        unmount = False
        if record.volume is not None and not found.foreign:
            going = {private_name(record.name), *([record.name] if found.ours else [])}
            facts = gather(record.volume)
            unmount = facts.is_ours and set(os.listdir(parent_fd)) <= going
        return UnstagePlan(
            record,
            found.files,
            found.foreign,
            found.ours,
            private,
            unmount,
            fstab,
            found.hidden,
            found.in_its_place,
        )
    except OSError as error:
        raise HostprepError(
            f"{record.target} cannot be looked at: {error.strerror or error}; nothing was changed."
        ) from error
    finally:
        os.close(parent_fd)


@dataclass(frozen=True, slots=True)
class _Found:
    """What is there of a data set: in sight and ours, or hidden. The rest is as in the plan."""

    files: int
    foreign: tuple[str, ...]
    ours: bool
    hidden: bool
    in_its_place: bool


def _look(parent_fd: int, record: Record) -> _Found:
    with ExitStack() as stack:
        published_fd = open_published(parent_fd, record.name)
        if published_fd is not None:
            stack.callback(os.close, published_fd)
            if refusal := cut_short_refusal(parent_fd, record.name, record.target, record):
                raise refusal
        hidden_fd = open_hidden(parent_fd, record.name)
        if hidden_fd is not None:
            # It was moved away from there, so what has its name by now is no copy of ours.
            stack.callback(os.close, hidden_fd)
            files, foreign = compare(record, hidden_fd)
            return _Found(files, foreign, False, True, published_fd is not None)
        # Before its first publication nothing under its name is ours.
        if published_fd is None or record.phase == "copying":
            return _Found(0, (), False, False, published_fd is not None)
        files, foreign = compare(record, published_fd)
        # An empty directory, where a removal was cut short when all that had been hidden was gone.
        removed = record.phase == "removing" and record.left is None and record.entries > 1
        ours = bool(files or foreign) or not removed
        return _Found(files, foreign, ours, False, not ours)


def plan_forgetting(record: Record, *, fstab: bool = False) -> UnstagePlan:
    """Return the plan to forget a data set and remove no file: its target is gone for good."""
    check_own(record)
    return UnstagePlan(record, 0, (), False, False, False, fstab)


def check_own(record: Record) -> None:
    """Raise ``HostprepError`` where the record is the machine's, and not this user's own."""
    if folder_of(record) != folder(record.name, record.target):
        raise HostprepError(
            f"{record.target} was staged by root; nothing was changed.", "run it with sudo"
        )


def unstage(plan: UnstagePlan, observer: Observer, *, release_volume: bool = True) -> UnstageResult:
    """Carry out ``plan``. To be called under the data set's lock.

    Where everything is ours it is first moved out of sight by one rename, so that no reader sees
    half of it, and an interrupted removal is finished by the next run. What is of others by then
    is put back. The record says that this began, and is the last to go, so that an interrupted run
    is known of up to its end. ``release_volume`` of False
    leaves a volume mounted that is then empty. Raises ``HostprepError`` where something cannot be
    removed: the data set stays on record then. ``Refused`` where something was mounted in it since.
    """
    record = plan.record
    foreign = plan.foreign
    parent_fd = _open_parent(record)
    if parent_fd is not None:
        private_fd = None
        hides = plan.published and not foreign
        try:
            check_bare(record.target)  # to compare a large one took a while
            # One descriptor for all, so that nothing can be exchanged between the steps.
            try:
                find = open_or_make if hides or plan.hidden else open_own
                private_fd = find(parent_fd, record.target)
            except OSError as error:
                if not hides or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                hides = False  # a full target has no room to hide it: it is removed where it lies
            observer.phase("remove", files=plan.files)
            if plan.published or plan.hidden:
                with contextlib.suppress(OSError):  # a full disk must not keep its files
                    _note(record, left=None)
            if private_fd is not None and (plan.hidden or hides):
                if hides:
                    hide(parent_fd, private_fd, record)
                foreign = remove_hidden(parent_fd, private_fd, record)
            elif plan.published:
                foreign = remove_ours(parent_fd, record)
            if private_fd is not None:
                _remove_private(parent_fd, private_fd, record, observer)
            if foreign:
                _note(record, left=len(foreign))
        except OSError as error:
            raise _stopped(error, record) from error
        finally:
            if private_fd is not None:
                os.close(private_fd)
            os.close(parent_fd)
    if foreign:
        changed = plan.private or plan.files > 0
        if record.volume is None:
            return UnstageResult(record, plan.files, foreign, None, None, changed)
        why = "it holds files of others"
        return UnstageResult(record, plan.files, foreign, False, why, changed)
    unmounted, kept_because = None, None
    if release_volume:
        unmounted, kept_because = _release_volume(plan, observer)
    forget(record, "its copies are gone from the target")
    return UnstageResult(record, plan.files, (), unmounted, kept_because)


def unstaged_by_another(plan: UnstagePlan, observer: Observer) -> UnstageResult:
    """Release the volume of a data set that another run has removed and forgotten meanwhile.

    That one may not have been asked for it. ``plan`` is that of ``plan_forgetting``.
    """
    record = plan.record
    had_line = _has_line(record)
    unmounted, kept_because = _release_volume(plan, observer)
    changed = bool(unmounted) or had_line != _has_line(record)
    return UnstageResult(record, 0, (), unmounted, kept_because, changed, by_another=True)


def _has_line(record: Record) -> bool:
    return record.volume is not None and gather(record.volume).fstab_entry is not None


def _remove_private(parent_fd: int, private_fd: int, record: Record, observer: Observer) -> None:
    name = private_name(record.name)
    if not remove_opened(parent_fd, name, private_fd):
        observer.note(moved_away(os.path.dirname(record.target), name))


def _note(record: Record, *, left: int | None) -> None:
    """Note on record that the copies are no longer whole, and how many entries had to stay."""
    noted = replace(record, phase="removing", left=left)
    save_record(noted, durable=record.volume is None)


def _stopped(error: OSError, record: Record) -> HostprepError:
    where = f" ({error.filename})" if error.filename else ""
    hint = "mend that and run the same command again: it goes on where this one stopped"
    if error.errno == errno.EPERM:
        hint = f"`lsattr` shows whether it is immutable (chattr -i); {hint}"
    return HostprepError(
        f"{record.target} could not be removed: {error.strerror or error}{where}; what is left of"
        " it stays on record, and the source was not touched.",
        hint,
    )


def _release_volume(plan: UnstagePlan, observer: Observer) -> tuple[bool | None, str | None]:
    """Unmount the volume where it is hostprep's and empty: (unmounted, why not)."""
    volume = plan.record.volume
    if volume is None:
        return None, None
    facts = gather(volume)
    if facts.live is None:
        if plan.fstab:
            unmount_volume(volume, fstab=True, on_wait=observer.note)
        return None, None
    if not facts.is_ours:
        return False, "it was not mounted by hostprep"
    if facts.place.entries:
        return False, f"it still holds {', '.join(facts.place.entries[:3])}"
    try:
        unmount_volume(volume, fstab=plan.fstab, on_wait=observer.note)
    except HostprepError as error:
        # By now the copies are gone, which the plan of the volume alone does not know.
        why = error.message
        for end in (". Nothing was changed.", "; nothing was changed."):
            why = why.removesuffix(end)
        later = f"hostprep unmount {shlex.quote(volume)}{' --fstab' if plan.fstab else ''}"
        return False, f"{why}; once that is over: {later}"
    return True, None


def _open_parent(record: Record) -> int | None:
    """Open the directory that the data set lies in, None where it is gone, as after a reboot."""
    parent = os.path.dirname(record.target)
    if record.volume is not None and gather(record.volume).live is None:
        return None  # not mounted: what lies under the mount point is none of our business
    try:
        return open_parent(parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostprepError(
            f"{parent} cannot be opened: {error.strerror}; nothing was changed."
        ) from None
