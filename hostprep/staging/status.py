"""The state of staged data sets: present or not, complete or not, fresh or stale."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Set
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import (
    ROOT_KEPT_OUT,
    HostprepError,
    Refused,
    reading_hint,
    without_claim,
)
from hostprep.host.answering import WHICH_MOUNT, silent_ones
from hostprep.host.boot import boot_id
from hostprep.host.fscrypt import locked_out
from hostprep.staging.failures import DISK_FAILS, SEE_DMESG
from hostprep.staging.freshness import freshness_of, no_answer, silent_sources
from hostprep.staging.observer import Observer, Silent
from hostprep.staging.record.records import Record, all_records
from hostprep.staging.resuming import begins_anew, is_in_ram
from hostprep.staging.target.logout import may_be_cleared
from hostprep.staging.target.place import KeyAway, check_bare, check_in_sight
from hostprep.staging.target.strangers import may_be_elsewhere
from hostprep.system.locks import is_locked
from hostprep.units import format_count
from hostprep.volumes.live import read_live

_IS_THERE = ("staged", "partial")
TARGET_SECONDS = 5.0

# How the reason begins if other users may be able to tell.
NOT_FOR_US = "this user may not look into "


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """A data set on record and its state.

    ``state``: ``staged``; ``partial`` (published without what failed); ``copying`` (a run is at
    work); ``interrupted`` (a run failed or was ended, or the data set was unstaged in part);
    ``missing`` (not on the target, for instance after a reboot, or hidden there); ``unreachable``
    (the target does not answer, or with an error, or is encrypted and locked, or this user may not
    look: ``NOT_FOR_US``). ``freshness``: ``fresh``, ``stale``, ``unknown``; ``reason`` says why.
    ``hint`` says what helps if something is in the way that a run refuses to touch, if a disk
    failed, or if an unstaging did not remove everything.
    """

    record: Record
    state: str
    freshness: str
    reason: str
    hint: str | None = None


def dataset_statuses(
    *,
    check_source: bool,
    observer: Observer | None = None,
    target_seconds: float = TARGET_SECONDS,
) -> tuple[DatasetStatus, ...]:
    """Return the status of every data set on record.

    A source that takes longer than 10 s is given up, and its freshness is unknown; sources that do
    not answer at all are given up together after that time, and targets after ``target_seconds``.
    """
    records = all_records()
    silent = silent_ones([record.target for record in records], target_seconds)
    found = [
        _unreachable(record, target_seconds) if record.target in silent else _staged_or_why(record)
        for record in records
    ]
    if not check_source:
        return tuple(found)
    observer = observer or Silent()
    # Only what is there is compared, so no other source is waited for.
    asked = [each.record.source for each in found if each.state in _IS_THERE]
    dead = silent_sources(asked, observer)
    return tuple(_compared(each, dead, observer) for each in found)


def dataset_status(record: Record) -> DatasetStatus:
    """Return the status of one data set, without looking at its source."""
    if silent_ones([record.target], TARGET_SECONDS):
        return _unreachable(record, TARGET_SECONDS)
    return _staged_or_why(record)


def _unreachable(record: Record, seconds: float) -> DatasetStatus:
    return DatasetStatus(
        record,
        "unreachable",
        "unknown",
        f"its target has not answered for {seconds:g} s: is its server gone?",
        f"{WHICH_MOUNT}; if it is gone for good,"
        f" `hostprep unstage --forget {shlex.quote(record.target)}` removes the record",
    )


def _staged_or_why(record: Record) -> DatasetStatus:
    """Return the status of a data set as far as its target shows it."""
    state, why, hint = _state(record)
    return DatasetStatus(record, state, "unknown", why or "the source was not looked at", hint)


def _compared(found: DatasetStatus, dead: Set[str], observer: Observer) -> DatasetStatus:
    """Return the status with its freshness; ``dead`` are sources that do not answer."""
    if found.state not in _IS_THERE:
        return found
    record = found.record
    silent = record.source in dead
    freshness, reason, helps = no_answer(record) if silent else freshness_of(record, observer)
    if record.failure is not None and freshness != "fresh":
        reason = f"{reason}; a run since failed ({record.failure})"
    return replace(found, freshness=freshness, reason=reason, hint=found.hint or helps)


def _state(record: Record) -> tuple[str, str, str | None]:
    """Return state, reason and hint."""
    if is_locked(record.lock):
        return "copying", "a run is at work on it", None
    try:
        if record.volume is not None and read_live(record.volume) is None:
            since = "" if record.boot_id == boot_id() else " since the machine was rebooted"
            return "missing", f"its volume {record.volume} is not mounted{since}", None
        check_in_sight(record)
    except HostprepError as error:  # hidden, or this user may not see it; not fatal for others
        reason = without_claim(error.message).removesuffix(".")
        hidden = isinstance(error, Refused) and not isinstance(error, KeyAway)
        state = "missing" if hidden else "unreachable"  # it may be there all the same
        return state, reason, error.hint
    if record.phase == "removing" and _is_left_of(record):
        return "interrupted", *_removed_in_part(record)
    if record.phase in ("copying", "publishing", "updating"):
        return "interrupted", *_cut_short(record)
    if closed := _closed(record.target):
        hint = "run it as root, or as a user who may (its owner and mode say who)"
        if os.geteuid() == 0:
            hint = f"run it as a user who may: {ROOT_KEPT_OUT}"
        return "unreachable", f"{NOT_FOR_US}{closed}", hint
    if not os.path.isdir(record.target):
        if failing := _failing(record.target):
            why = f"its target answers with an error: {failing.strerror}"
            return "unreachable", why, reading_hint(failing)
        if locked := locked_out(record.target):  # this user may not read a locked one
            return "unreachable", f"it {locked[0]}", locked[1]
        reasons = ("it is not on the target", may_be_elsewhere(record), may_be_cleared(record))
        return "missing", "; ".join(filter(None, reasons)), None
    return ("partial" if record.partial else "staged"), "", _in_the_way(record)


def _cut_short(record: Record) -> tuple[str, str | None]:
    """Return what to say about an interrupted run, and what helps."""
    helps, again = _in_the_way(record), _what_comes_of_it(record)
    if record.failure is None:
        return f"a run did not get to its end; {again}", helps
    if any(words in record.failure for words in map(os.strerror, DISK_FAILS)):
        helps = helps or f"{SEE_DMESG}: fix that and run the same command again"
    return f"a run failed ({record.failure}); {again}", helps


def _what_comes_of_it(record: Record) -> str:
    """Return what the run after an interrupted one does with its copies."""
    same = "the same `hostprep stage`"
    if record.phase == "updating" or os.path.isdir(record.target):
        return f"{same} goes on"  # it continues the update
    if record.boot_id != boot_id():
        return f"{same} copies all anew, as the machine was rebooted since"
    in_ram = record.volume is not None or is_in_ram(os.path.dirname(record.target))
    if option := begins_anew(record.verify, in_ram=in_ram):
        return f"with {option} {same} copies all anew"
    return f"{same} goes on"


def _closed(target: str) -> str | None:
    """Return a parent directory that this user may not look into, None if there is none."""
    below = path = target
    while True:
        try:
            os.stat(path)
        except PermissionError:
            below, path = path, os.path.dirname(path)
        except OSError:
            return None
        else:
            # Something that a user has mounted themselves may be completely hidden from root.
            closed = below if os.access(path, os.X_OK) else path
            return closed if path != target else None


def _failing(target: str) -> OSError | None:
    """Return the error of a failing disk or server; None if the target answers."""
    try:
        os.stat(target)
    except OSError as error:
        return None if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) else error
    return None


def _is_left_of(record: Record) -> bool:
    """Whether anything may be left of a data set whose unstaging has begun."""
    if os.path.isdir(record.target):
        return True
    # A complete unstaging hides nothing that it has to leave: if that is gone, it was moved away.
    # And a reboot empties a volume.
    rebooted = record.volume is not None and record.boot_id != boot_id()
    return record.left is None and not rebooted


def _removed_in_part(record: Record) -> tuple[str, str]:
    """Return what to say about a data set that was unstaged only in part, and what helps."""
    unstage = f"`hostprep unstage {shlex.quote(record.target)}`"
    if record.left is None:
        return (
            "its removal did not get to its end; what is left of it takes up space on the target",
            f"{unstage} finishes that; `hostprep stage` stages it again",
        )
    return (
        "it was removed in part:"
        f" {format_count(record.left, 'entry')} left that somebody changed or added there",
        f"move that away; then {unstage} removes the rest, or `hostprep stage` stages it again",
    )


def _in_the_way(record: Record) -> str | None:
    """Return the hint if something is mounted inside the copies, which a run refuses."""
    try:
        check_bare(record.target)
    except Refused as refusal:
        return refusal.hint
    return None
