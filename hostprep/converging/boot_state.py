"""How far a data set is on its way back after a boot: coming up, ready, or failed, and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from enum import StrEnum

from hostprep.converging.boot_record import BootNote, BootRecord, all_boot_records, load_note
from hostprep.dataclass import dataclass
from hostprep.host.boot import boot_id
from hostprep.host.mounts import Mount, mount_at, read_mounts
from hostprep.staging.record.records import lock_name
from hostprep.staging.shortfall import cure_of
from hostprep.staging.status import DatasetStatus
from hostprep.system.locks import is_locked
from hostprep.system.state import SYSTEM_STATE_DIR
from hostprep.system.systemd import show_unit, systemd_runs

# systemd's EXIT_EXEC: the program could not be started.
_NOT_RUN = "203"
# Whoever asks for the state has no spec, or perhaps another one than the host's.
_NOT_WANTED = "if the spec no longer stages it at boot, `hostprep apply --prune` removes it"
_PROPERTIES = ("LoadState", "ActiveState", "UnitFileState", "Result", "ExecMainStatus", "Job")


class Stage(StrEnum):
    """How far it is.

    ``missing``: it was ready in this boot, but is gone now. ``unknown``: there is no record of it
    until it is staged.
    """

    WAITING = "waiting"
    STAGING = "staging"
    READY = "ready"
    FAILED = "failed"
    MISSING = "missing"
    UNKNOWN = "unknown"

    @property
    def comes_up(self) -> bool:
        """Whether it may become ready without any action of the one who asks."""
        return self in (Stage.WAITING, Stage.STAGING, Stage.UNKNOWN)


@dataclass(frozen=True, slots=True)
class BootState:
    """How far a data set is, and why; ``hint`` says what to do if it failed.

    ``caveat``, which also ends the reason, says why not everything was checked.
    """

    stage: Stage
    reason: str
    hint: str | None = None
    caveat: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows how far a data set is.

    ``unit`` has properties of its service as in systemctl-show(1): None if systemd does not run,
    empty if it was not asked or does not answer.
    """

    boot_id: str
    running: bool
    note: BootNote | None
    dataset: DatasetStatus | None
    unit: dict[str, str] | None
    mounts: tuple[Mount, ...]


@dataclass(frozen=True, slots=True)
class Comeback:
    """A data set that is to be staged at every boot, and how far it is in this one."""

    record: BootRecord
    state: BootState


def comebacks(datasets: Iterable[DatasetStatus]) -> tuple[Comeback, ...]:
    """Return all data sets to be staged at boot; ``datasets`` are the known statuses."""
    known = {dataset.record.target: dataset for dataset in datasets}
    return tuple(
        Comeback(record, boot_state(record, known.get(record.target)))
        for record in all_boot_records()
    )


def boot_state(record: BootRecord, dataset: DatasetStatus | None) -> BootState:
    """Return how far the data set of ``record`` is; ``dataset`` is its status, if known.

    Any user may ask.
    """
    # Root's lock, whoever asks.
    running = is_locked(lock_name(record.name, record.target, SYSTEM_STATE_DIR))
    note = load_note(record.name)
    unit: dict[str, str] | None = {}
    if not running and (note is None or note.state == "failed"):
        unit = show_unit(record.unit, _PROPERTIES) if systemd_runs() else None
    return judge(record, Evidence(boot_id(), running, note, dataset, unit, read_mounts()))


def judge(record: BootRecord, seen: Evidence) -> BootState:
    """Return what the evidence means."""
    dataset, note = seen.dataset, seen.note
    stamped = note is not None and note.state == "ready"
    if seen.running:
        return BootState(Stage.STAGING, "it is being staged")
    if dataset is not None and dataset.state == "staged" and note is not None and stamped:
        # It describes the copy that the service made, not a later one.
        other = note.digest is not None and dataset.record.digest not in (None, note.digest)
        return BootState(Stage.READY, "it was staged again since" if other else note.reason)
    if dataset is not None and dataset.record.boot_id == seen.boot_id:
        if dataset.state == "staged":
            return BootState(Stage.READY, "it was staged in this boot")
        if (note is None or stamped) and (unwhole := not_whole(dataset)):
            return unwhole
    again = f"`systemctl restart {shlex.quote(record.unit)}`"
    if note is None:
        return _without_note(record, seen, again)
    if note.state == "failed" and _begins(seen.unit):
        return BootState(Stage.WAITING, "its service has been started again")
    if note.state == "failed":
        return BootState(Stage.FAILED, note.reason, note.hint)
    if stamped:
        why = dataset.reason if dataset is not None else "nothing is on record of it"
        return BootState(
            Stage.MISSING, f"it was staged in this boot, and is not there now: {why}", again
        )
    return BootState(
        Stage.FAILED,
        "the run that staged it was killed",
        f"look for the reason (`journalctl -b -u {shlex.quote(record.unit)}`), then {again}",
    )


def _begins(unit: dict[str, str] | None) -> bool:
    return unit is not None and bool(unit.get("Job") or unit.get("ActiveState") == "activating")


def not_whole(dataset: DatasetStatus) -> BootState | None:
    """Return the state of a data set whose target is incomplete or hidden, otherwise None."""
    if dataset.state == "partial":
        failed = sum(item.failed for item in dataset.record.skipped)
        are = "is" if failed == 1 else "are"
        reason = f"{failed} of the source's entries {are} missing from it, or not up to date"
        cure = f"{cure_of(dataset.record.skipped)}, then `hostprep stage` it again"
        return BootState(Stage.FAILED, reason, cure)
    if dataset.state == "interrupted":
        hint = dataset.hint or "`hostprep status` shows its source and target"
        return BootState(Stage.FAILED, dataset.reason, hint)
    # It is hidden, and staging it again is refused; or it is unknown, or not for this user.
    if dataset.state in ("missing", "unreachable") and dataset.hint:
        return BootState(Stage.MISSING, dataset.reason, dataset.hint)
    return None


def absent_mount(record: BootRecord, mounts: Iterable[Mount]) -> str | None:
    """Say which of the file systems that it needs is not mounted, None if all are."""
    mounts = tuple(mounts)
    if mount_at(record.source_mount, mounts) is None:
        return f"the file system of its source, {record.source_mount}, is not mounted"
    target = record.volume or record.target_mount
    if target is not None and mount_at(target, mounts) is None:
        what = f"its volume {target}"
        if record.volume is None:
            what = f"the file system of its target, {target},"
        return f"{what} is not mounted"
    return None


def _without_note(record: BootRecord, seen: Evidence, again: str) -> BootState:
    """Judge by systemd's information, if its service has not started in this boot."""
    unit, absent = seen.unit, absent_mount(record, seen.mounts)
    if unit is None:
        return BootState(
            Stage.FAILED,
            "systemd does not run here, so nothing stages it by itself",
            "`hostprep apply` stages it now",
        )
    if _begins(unit):
        return BootState(Stage.WAITING, absent or "its service has not begun yet")
    if unit.get("LoadState", "loaded") != "loaded":
        reason = f"its service {record.unit} is {unit['LoadState']}"
        return BootState(Stage.FAILED, reason, _not_loaded(record.unit, unit["LoadState"]))
    journal = f"`journalctl -b -u {shlex.quote(record.unit)}`"
    if unit.get("ActiveState") == "failed" and unit.get("ExecMainStatus") == _NOT_RUN:
        return BootState(
            Stage.FAILED,
            "its service could not run hostprep: it may be installed elsewhere by now",
            "`hostprep apply` writes the service anew and stages the data set; a drop-in that"
            f" has it run something else (`systemctl cat {shlex.quote(record.unit)}`) stays",
        )
    if unit.get("ActiveState") == "failed":
        result = unit.get("Result", "unknown")
        return BootState(
            Stage.FAILED, f"its service failed ({result})", f"{journal} says why; then {again}"
        )
    if absent:
        return BootState(
            Stage.FAILED,
            f"{absent}, so its service was not started",
            f"mount it, which starts the service; if it does not, {again}",
        )
    if unit.get("UnitFileState", "enabled") != "enabled":
        return BootState(
            Stage.FAILED,
            f"its service is {unit['UnitFileState'] or 'not enabled'}, so nothing starts it",
            f"`hostprep apply` enables it and stages the data set; {_NOT_WANTED}",
        )
    return BootState(
        Stage.FAILED, "its service did not run in this boot", f"{journal} may say why; then {again}"
    )


def _not_loaded(unit: str, state: str) -> str:
    """Return what helps if systemd has not loaded the unit; ``state`` is its LoadState."""
    if state == "masked":  # somebody did it, and `apply` leaves that alone
        unmask = f"`systemctl unmask {shlex.quote(unit)}`, then `hostprep apply`"
        return f"{unmask}, with --prune if the spec no longer stages it at boot"
    if state == "not-found":
        return f"`hostprep apply` writes it anew and stages the data set; {_NOT_WANTED}"
    return (
        f"`systemd-analyze verify {shlex.quote(unit)}` says what is wrong with it or a drop-in of"
        " it; `hostprep apply` writes anew what hostprep wrote of it"
    )
