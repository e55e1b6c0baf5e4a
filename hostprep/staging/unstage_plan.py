"""What ``unstage`` would remove, and of which data set; changes nothing."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, UsageError, one_line, reading_hint, where_in
from hostprep.staging.observer import Observer, Silent
from hostprep.staging.publishing.published import open_published
from hostprep.staging.publishing.removing import compare, cut_short_refusal, open_hidden
from hostprep.staging.record.records import (
    Record,
    all_records,
    check_forgettable,
    check_own,
    check_record,
    is_roots,
)
from hostprep.staging.target.apart import check_spares_source
from hostprep.staging.target.owned import private_name
from hostprep.staging.target.place import (
    check_bare,
    moved_refusal,
    open_parent,
    read_only_refusal,
)
from hostprep.staging.target.private import is_there
from hostprep.staging.target.strangers import exchanged_refusal, may_be_elsewhere
from hostprep.system.following import followed
from hostprep.units import format_count
from hostprep.volumes.facts import check_in_reach, check_in_sight, gather
from hostprep.volumes.model import Step
from hostprep.volumes.removal import without_line


@dataclass(frozen=True, slots=True)
class UnstagePlan:
    """What would be removed: entries that are as they were staged.

    ``foreign`` are entries that are not: somebody else added or changed them, so they stay, and
    then the volume stays too. ``unmount``: the volume will be empty and is unmounted as well.
    ``hidden``: a killed run had already moved them out of sight, but not removed all of them.
    ``in_its_place``: something else has the data set's name on the target, and stays.
    ``removes_line``: the volume has a line in fstab, which is to be removed with it.
    """

    record: Record
    fstab: bool
    files: int = 0
    foreign: tuple[str, ...] = ()
    published: bool = False
    private: bool = False
    unmount: bool = False
    hidden: bool = False
    in_its_place: bool = False
    removes_line: bool = False

    @property
    def changes(self) -> tuple[Step, ...]:
        """Return the steps in words."""
        record, changes = self.record, []
        if self.published or self.hidden:
            changes.append(
                Step(record.target, f"remove {format_count(self.files, 'entry')}", "asked for")
            )
        if self.private:
            changes.append(Step(record.target, "remove unfinished copies", "asked for"))
        if self.unmount and record.volume is not None:
            changes.append(Step(record.volume, "unmount", "nothing else is in the volume"))
        if self.removes_line:
            changes.append(Step("fstab", "remove the volume's line", "asked for"))
        if not self.foreign:  # once they are moved away, the same command continues by the manifest
            changes.append(Step(record.name, "forget its manifest", "asked for"))
        return tuple(changes)


def find_record(name_or_path: str) -> Record:
    """Return the data set with this name, or with this path on the target.

    Raises ``UsageError`` if there is none, ``HostprepError`` if its record cannot be read.
    """
    records = all_records()
    path = _absolute(name_or_path)
    for record in records:
        if record.target == path:
            return record
    check_record(name_or_path, path)
    if "/" in name_or_path:  # or a path through a symlink, which no record has
        above, last = os.path.split(path)
        by_link = os.path.join(followed(above), last)
        for record in records:
            if record.target == by_link:
                return record
    named = [record for record in records if record.name == name_or_path]
    if len(named) == 1:
        return named[0]
    if named:
        lines = (one_line(_unstaging(record)) for record in named)
        raise UsageError(
            f"several data sets are called {name_or_path}; nothing was changed.",
            f"name one by where it lies: {', '.join(f'`{line}`' for line in lines)}",
        )
    known = ", ".join(f"{record.name} ({one_line(record.target)})" for record in records)
    raise UsageError(
        f"hostprep knows no data set {name_or_path!r}; nothing was changed.",
        f"known: {known or 'none'}",
    )


def _unstaging(record: Record) -> str:
    """Return the line that removes a data set, with sudo if only root can do it."""
    sudo = "sudo " if is_roots(record) else ""
    return f"{sudo}hostprep unstage {shlex.quote(record.target)}"


def _absolute(name_or_path: str) -> str:
    """Return the word as an absolute path.

    It stays a name if the current directory has been removed.
    """
    try:
        return os.path.abspath(name_or_path)
    except FileNotFoundError:
        if "/" in name_or_path or name_or_path in (".", ".."):
            raise
        return name_or_path


def plan_unstage(record: Record, *, fstab: bool, observer: Observer | None = None) -> UnstagePlan:
    """Look at what is there and return the plan; changes nothing.

    Raises ``Refused`` if the files there may be others than the copies (something is mounted in the
    way, the path leads elsewhere, or the private directory is somebody else's); if the file system
    is read-only, or the record cannot be removed; if the data set is not here and may be on another
    machine; and if the volume's line in fstab should be removed (``fstab``) and cannot be. Raises
    ``HostprepError`` if the data set is in the machine's records and not in this user's own.
    """
    check_own(record)
    check_forgettable(record)
    if refusal := moved_refusal(record):
        raise refusal
    parent_fd = open_target_parent(record)
    if parent_fd is None:
        _check_not_elsewhere(record)
        return UnstagePlan(record, fstab, removes_line=fstab and _line_goes(record))
    try:
        check_bare(record.target)
        check_spares_source(record)
        private = is_there(parent_fd, record.target)
        plan = _look(parent_fd, record, observer or Silent(), fstab=fstab)
        if not (plan.published or plan.hidden or private):
            _check_not_elsewhere(record)
        elif os.fstatvfs(parent_fd).f_flag & os.ST_RDONLY:
            raise read_only_refusal(os.path.dirname(record.target))
        unmount = False
        if record.volume is not None and not plan.foreign:
            going = {private_name(record.name), *([record.name] if plan.published else [])}
            facts = gather(record.volume)
            unmount = facts.is_ours and set(os.listdir(parent_fd)) <= going
        removes_line = fstab and unmount and _line_goes(record)
        return replace(plan, private=private, unmount=unmount, removes_line=removes_line)
    except OSError as error:
        raise HostprepError(
            f"{record.target} cannot be looked at: {error.strerror or error}{where_in(error)};"
            " nothing was changed.",
            reading_hint(error),
        ) from error
    finally:
        os.close(parent_fd)


def _check_not_elsewhere(record: Record) -> None:
    """Raise ``Refused`` if a data set that is not here may be on another machine with its records.

    That machine would no longer know its copies.
    """
    if elsewhere := may_be_elsewhere(record):
        raise Refused(
            f"{record.target} is not on this machine, and {elsewhere}; nothing was changed.",
            "run it there; if it is gone, as after a reboot:"
            f" hostprep unstage {shlex.quote(record.target)} --forget",
        )


def _line_goes(record: Record) -> bool:
    """Return whether fstab has a line of the volume's, and nothing else is mounted there.

    Raises ``Refused`` if it has one that cannot be removed.
    """
    if record.volume is None:
        return False
    facts = gather(record.volume)
    return (facts.mount is None or facts.is_ours) and without_line(facts) is not None


def _look(parent_fd: int, record: Record, observer: Observer, *, fstab: bool) -> UnstagePlan:
    """Return the plan, as far as it depends on what has the data set's name, or is hidden."""
    with ExitStack() as stack:
        published_fd = open_published(parent_fd, record.name)
        if published_fd is not None:
            stack.callback(os.close, published_fd)
            if refusal := cut_short_refusal(
                parent_fd, record.name, record.target, record, observer
            ):
                raise refusal
        hidden_fd = open_hidden(parent_fd, record.name)
        if hidden_fd is not None:
            # The copy was moved away, so whatever has its name now is not ours.
            stack.callback(os.close, hidden_fd)
            files, foreign = compare(record, hidden_fd, observer)
            taken = published_fd is not None
            return UnstagePlan(record, fstab, files, foreign, hidden=True, in_its_place=taken)
        # Before the first publication nothing with its name is ours.
        if published_fd is None or record.phase == "copying":
            return UnstagePlan(record, fstab, in_its_place=published_fd is not None)
        if refusal := exchanged_refusal(record, published_fd):
            raise refusal
        files, foreign = compare(record, published_fd, observer)
        # An empty directory, if a removal was interrupted when everything hidden was gone.
        removed = record.phase == "removing" and record.left is None and record.entries > 1
        ours = bool(files or foreign) or not removed
        return UnstagePlan(record, fstab, files, foreign, published=ours, in_its_place=not ours)


def plan_forgetting(record: Record, *, fstab: bool = False) -> UnstagePlan:
    """Return the plan to forget a data set without removing files: its target is gone for good."""
    check_own(record)
    check_forgettable(record)
    return UnstagePlan(record, fstab, removes_line=fstab and _line_goes(record))


def open_target_parent(record: Record) -> int | None:
    """Open the directory that has the data set, None if it is gone, for instance after a reboot.

    Raises ``Refused`` if its volume is mounted, but hidden.
    """
    parent = os.path.dirname(record.target)
    facts = None if record.volume is None else gather(record.volume)
    if facts is not None and facts.live is None:
        check_in_sight(facts)
        check_in_reach(facts)
        return None  # not mounted: files below the mount point are not ours to touch
    try:
        return open_parent(parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostprepError(
            f"{parent} cannot be opened: {error.strerror}; nothing was changed.",
            reading_hint(error),
        ) from None
