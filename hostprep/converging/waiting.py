"""``hostprep wait``: blocks until data sets are ready, or can no longer become so."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from hostprep.converging.boot_record import BootRecord, all_boot_records
from hostprep.converging.boot_state import BootState, Stage, boot_state, not_whole
from hostprep.dataclass import dataclass
from hostprep.errors import (
    HostprepError,
    UsageError,
    one_line,
    reading_hint,
    where_in,
    without_claim,
)
from hostprep.host.boot import boot_id
from hostprep.staging.inspection import Inspected, inspect_target
from hostprep.staging.record.damage import DamagedManifest
from hostprep.staging.record.records import (
    ClosedManifest,
    Record,
    all_records,
    check_record,
    damaged_records,
    load_record,
)
from hostprep.staging.status import DatasetStatus, dataset_status
from hostprep.system.following import followed
from hostprep.units import format_count

_POLL_SECONDS = 0.5
# Time to look at every entry of what is ready: some millions, unless the target is slow.
_LOOK_SECONDS = 30.0
_LEAST_LOOK_SECONDS = 1.0
_AGAIN = "the same `hostprep stage` repairs it; `hostprep check --only HP011` names some"


@dataclass(frozen=True, slots=True)
class Waited:
    """The result of waiting for one data set.

    ``target`` is None if there never was a record of it; ``name`` is then as given by the user.
    """

    name: str
    target: str | None
    state: BootState
    timed_out: bool = False

    @property
    def ready(self) -> bool:
        """Whether it may be used now."""
        return self.state.stage is Stage.READY


@dataclass(frozen=True, slots=True)
class _Known:
    """A data set on record; ``target`` is None if there is none: ``hint`` names those there are."""

    name: str
    target: str | None
    boot: BootRecord | None
    hint: str | None = None

    @property
    def key(self) -> str:
        """What distinguishes it from the others."""
        return self.name if self.target is None else self.target


def wait_for(
    names: Sequence[str],
    *,
    timeout_seconds: float | None = None,
    on_change: Callable[[str, BootState], None] = lambda name, state: None,
) -> tuple[Waited, ...]:
    """Block until all of ``names`` (names or targets) are ready; return the state of each then.

    Ends as soon as one of them cannot become ready by itself, or the time is up (None: never).
    Right before the end every entry of what is ready is compared with its manifest, for at most 30
    s each, and for one second once the time is up. ``on_change`` is told each new state of one that
    is not ready yet. Any user may wait. Raises ``UsageError`` for a name that several have, and,
    without a time limit, also for one without a record: if it is mistyped, it would never come.
    Raises ``HostprepError`` if the record of one of them cannot be read.
    """
    may_come = timeout_seconds is not None
    known = [_find(name, may_come=may_come) for name in dict.fromkeys(names)]
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    before: dict[str, BootState] = {}
    while True:
        states = {each.key: _state(each) for each in known}
        for each in known:
            state, earlier = states[each.key], before.get(each.key)
            is_news = earlier is None or (state.stage, state.reason) != (
                earlier.stage,
                earlier.reason,
            )
            if is_news and state.stage is not Stage.READY:
                on_change(each.name, state)
        late = deadline is not None and time.monotonic() >= deadline
        if late or _is_decided(states, before):
            states = {each.key: _looked_through(each, states[each.key], deadline) for each in known}
        if late or _is_decided(states, before):
            return tuple(
                Waited(
                    each.name,
                    each.target,
                    states[each.key],
                    timed_out=late and states[each.key].stage.comes_up,
                )
                for each in known
            )
        before = states
        left = _POLL_SECONDS if deadline is None else deadline - time.monotonic()
        time.sleep(max(0.0, min(_POLL_SECONDS, left)))
        known = [_find(each.name, may_come=True) if not each.target else each for each in known]


def _is_decided(states: dict[str, BootState], before: dict[str, BootState]) -> bool:
    """Whether all are ready, or one of them cannot become so by itself."""
    # A single look may see parts of a run before and after it begins or ends, so two must agree.
    lost = any(
        not state.stage.comes_up and state.stage is not Stage.READY and before.get(target) == state
        for target, state in states.items()
    )
    return lost or all(state.stage is Stage.READY for state in states.values())


def _find(word: str, *, may_come: bool) -> _Known:
    """Return the data set with this name, or with this path on the target.

    If there is no record, return one without a target if it ``may_come``, else raise
    ``UsageError``.
    """
    found = {record.target: _Known(record.name, record.target, None) for record in all_records()}
    found |= {
        record.target: _Known(record.name, record.target, record) for record in all_boot_records()
    }
    if "/" in word:  # names do not contain any
        word = os.path.abspath(word)
        above, last = os.path.split(word)
        # Or a path through a symlink, which no record has.
        for path in (word, os.path.join(followed(above), last)):
            if meant := found.get(path):
                return meant
    named = [each for each in found.values() if each.name == word]
    if len(named) == 1:
        return named[0]
    if named:
        targets = ", ".join(one_line(each.key) for each in named)
        raise UsageError(f"several data sets are called {word}.", f"name one of: {targets}")
    check_record(word, os.path.normpath(word))
    names = sorted({each.name for each in found.values()})
    near = difflib.get_close_matches(word, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names) or 'none'}"
    # Only the names of the folders of these are known.
    unread = "".join(f"; {error.message.removesuffix('.')}" for error in damaged_records().values())
    if may_come:
        # That nothing at all is known is no help to somebody who waits for the first data set.
        return _Known(word, None, None, hint + unread if names or unread else None)
    later = f"; with --timeout SECONDS this command waits until {word} is staged"
    raise UsageError(f"hostprep knows no data set {word!r}.", hint + unread + later)


def _state(known: _Known) -> BootState:
    if known.target is None:
        reason = "no data set of this name is on record"
        return BootState(Stage.UNKNOWN, reason, known.hint)
    record = load_record(known.name, known.target)
    dataset = None if record is None else dataset_status(record)
    if known.boot is not None:
        return boot_state(known.boot, dataset)
    if dataset is None:
        return BootState(Stage.MISSING, "it was unstaged", "`hostprep stage` stages it")
    return _without_service(dataset)


def _looked_through(known: _Known, state: BootState, deadline: float | None) -> BootState:
    """Return ``state``, or the actual one if it is ready but the target is not as staged."""
    if state.stage is not Stage.READY or known.target is None:
        return state
    record = load_record(known.name, known.target)
    if record is None:
        return state
    seconds = _LOOK_SECONDS
    if deadline is not None:
        seconds = min(seconds, max(_LEAST_LOOK_SECONDS, deadline - time.monotonic()))
    try:
        return _judge_look(state, inspect_target(record, seconds=seconds), record)
    except (PermissionError, ClosedManifest):  # the user who waits need not be the one who reads it
        return _with_caveat(state, "this user may not look at all of it")
    except DamagedManifest as damaged:
        return BootState(Stage.FAILED, f"it cannot be looked at: {damaged.found}", damaged.anew)
    except HostprepError as error:
        why = without_claim(error.message).removesuffix(".")
        return BootState(Stage.FAILED, f"it cannot be looked at: {why}", error.hint or _AGAIN)
    except OSError as error:
        reason = f"{record.target} cannot be looked at: {error.strerror or error}{where_in(error)}"
        gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        return BootState(Stage.FAILED, reason, _AGAIN if gone else reading_hint(error))


def _judge_look(state: BootState, found: Inspected, record: Record) -> BootState:
    wrong = found.changed + found.missing
    compared = f"{found.compared:,} of {format_count(found.known, 'entry')}"
    if not wrong and found.whole:
        return state
    if not wrong:
        return _with_caveat(state, f"there was time to look at {compared}")
    # Use the same words each time: if only a part is looked at, it is a different part every time.
    how_many = f"{wrong:,} of {format_count(found.known, 'entry')}" if found.whole else "entries"
    reason = f"{how_many} on {record.target} are missing, or not as they were staged"
    return BootState(Stage.FAILED, reason, _AGAIN)


def _with_caveat(state: BootState, caveat: str) -> BootState:
    return replace(state, reason=f"{state.reason}; {caveat}", caveat=caveat)


def _without_service(dataset: DatasetStatus) -> BootState:
    """Judge a data set that no service stages."""
    record = dataset.record
    if unwhole := not_whole(dataset):
        if dataset.state == "unreachable":  # shown without the target's path
            return replace(unwhole, reason=f"{unwhole.reason} ({record.target})")
        return unwhole
    if dataset.state == "copying":
        return BootState(Stage.STAGING, dataset.reason)
    reason = f"{dataset.reason}; nothing stages it at boot"
    if dataset.state == "staged":
        if record.volume is None or record.boot_id == boot_id():
            return BootState(Stage.READY, "it is there, whole")
        reason = "it was staged before the machine was rebooted"
    return BootState(Stage.MISSING, reason, "`hostprep stage` with its source stages it")
