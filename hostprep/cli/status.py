"""``hostprep status``: the current state of the volumes and data sets that hostprep made."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.options import JsonOption
from hostprep.cli.output import emit_json, emit_text, printable
from hostprep.cli.plans import volume_fields
from hostprep.units import format_bytes, format_count

if TYPE_CHECKING:
    from hostprep.converging.boot_state import Comeback
    from hostprep.errors import HostprepError
    from hostprep.staging.status import DatasetStatus
    from hostprep.volumes.status import VolumeStatus


def status(
    no_source: Annotated[
        bool, typer.Option("--no-source", help="Do not compare data sets with their sources.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show volumes and data sets: size, usage, drift and freshness.

    For data sets that are staged at boot, it says whether they are ready, still being staged, or
    why they are not ready.
    """
    from hostprep.cli.progress import ProgressReporter
    from hostprep.converging.boot_record import damaged_boot_records
    from hostprep.converging.boot_state import comebacks
    from hostprep.staging.record.records import damaged_records as damaged_datasets
    from hostprep.staging.record.records import record_id
    from hostprep.staging.status import dataset_statuses
    from hostprep.volumes.records import damaged_records as damaged_volumes
    from hostprep.volumes.status import unread_fstab, volume_statuses

    volumes = volume_statuses()
    unread_records = damaged_datasets()
    damaged = (damaged_volumes(), unread_records, damaged_boot_records())
    problems = [error.message for found in damaged for error in found.values()]
    if (unread := unread_fstab()) is not None:
        problems.append(unread.message)
    with ProgressReporter(quiet=not sys.stderr.isatty()) as reporter:
        datasets = dataset_statuses(check_source=not no_source, observer=reporter)
    back = {each.record.target: each for each in comebacks(datasets)}
    why = {
        target: unread_records.get(record_id(each.record.name, target))
        for target, each in back.items()
    }
    if as_json:
        fields = {
            "volumes": [_volume_fields(volume) for volume in volumes],
            "datasets": [
                *(
                    _dataset_fields(dataset, back.pop(dataset.record.target, None))
                    for dataset in datasets
                ),
                *(_unknown_fields(each, why[target]) for target, each in back.items()),
            ],
            "problems": problems,
        }
        emit_json("status", fields)
        return
    for words in problems:
        emit_text(printable(words))
    if not (volumes or datasets or back or problems):
        emit_text("no volumes and no data sets of hostprep on this machine")
    for volume in volumes:
        _show_volume(volume)
    for dataset in datasets:
        comeback = back.pop(dataset.record.target, None)
        _show_dataset(dataset, comeback)
        if comeback is not None:
            _show_comeback(comeback)
    for target, each in back.items():
        state = "missing" if why[target] is None else "unreachable: its record cannot be read"
        emit_text(printable(f"data set {each.record.name}: {state}"))
        emit_text(printable(f"  {each.record.source} -> {each.record.target}"))
        if why[target] is None:
            _show_comeback(each)


def _show_volume(volume: VolumeStatus) -> None:
    live = volume.live
    if volume.problem is not None:
        emit_text(printable(f"volume {volume.path}: {_of_it(volume.path, volume.problem)}"))
    elif live is None:
        emit_text(printable(f"volume {volume.path}: not mounted"))
    else:
        size = "no size limit"  # the kernel does not report the usage in this case
        if live.size_bytes:
            size = (
                f"{format_bytes(live.used_bytes)} of {format_bytes(live.size_bytes)} used"
                f" ({100 * live.used_bytes / live.size_bytes:.0f}%)"
            )
        most = "no limit" if live.inodes is None else format_count(live.inodes)
        inodes = f"{format_count(live.used_inodes)} of {most} inodes"
        flags = ",".join(live.flags)
        emit_text(
            printable(f"volume {volume.path}: {size}, {inodes}, huge={live.huge.value}, {flags}")
        )
    emit_text(printable(f"  fstab: {_fstab_words(volume)}"))
    for words in volume.drift:
        emit_text(printable(f"  drift from what hostprep mounted: {words}"))
    for words in volume.fstab_drift:
        emit_text(printable(f"  drift from fstab: {words}"))


def _of_it(path: str, problem: str) -> str:
    """Return the problem of a volume in words that follow its path."""
    if problem.startswith(f"{path} "):
        return f"it{problem.removeprefix(path)}"
    named = f"the volume {path}"
    return f"{problem.removesuffix(named)}it" if problem.endswith(named) else problem


def _fstab_words(volume: VolumeStatus) -> str:
    if volume.in_fstab is None:
        return "it cannot be read, so whether it has a line is not known"
    if volume.foreign_line is not None:
        own = "has its line" if volume.in_fstab else "no line of hostprep's, gone after a reboot"
        return f"{own}; {volume.foreign_line}"
    return "has its line" if volume.in_fstab else "no line, gone after a reboot"


def _show_dataset(dataset: DatasetStatus, comeback: Comeback | None) -> None:
    record = dataset.record
    reason = f": {dataset.reason}" if dataset.reason else ""
    # Freshness does not matter for a data set that is not there.
    there = dataset.state in ("staged", "partial")
    state = f"{dataset.state}, {dataset.freshness}" if there else dataset.state
    emit_text(printable(f"data set {record.name}: {state}{reason}"))
    emit_text(printable(f"  {record.source} -> {record.target}"))
    if hint := _hint(dataset, comeback):
        emit_text(printable(f"    -> {hint}"))
    if dataset.state == "copying" or record.phase in ("copying", "removing"):
        return  # the record does not describe what is there
    verified = "not verified"
    if record.verified_at is not None:
        how = "hashed in flight" if record.verify == "inflight" else "verified"
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.verified_at))
        verified = f"{how} {moment}"
    emit_text(
        f"  {format_count(record.files, 'file')}, {format_bytes(record.bytes)}, {verified}, "
        f"digest {record.digest or 'none'}"
    )
    failed = sum(item.failed for item in record.skipped)
    if failed:
        # Older copies of some of them may be there, and are counted.
        emit_text(f"  without the present state of {format_count(failed, 'entry')} of the source")


def _show_comeback(comeback: Comeback) -> None:
    state = comeback.state
    emit_text(printable(f"  at boot: {state.stage.value}: {state.reason}"))
    if state.hint:
        emit_text(printable(f"    -> {state.hint}"))


def _volume_fields(volume: VolumeStatus) -> dict[str, Any]:
    live = volume.live
    return {
        "path": volume.path,
        "mounted": live is not None if volume.problem is None else None,
        "problem": volume.problem,
        **({} if live is None else volume_fields(live)),
        "in_fstab": volume.in_fstab,
        "foreign_fstab_line": volume.foreign_line,
        "drift": list(volume.drift),
        "fstab_drift": list(volume.fstab_drift),
    }


def _dataset_fields(dataset: DatasetStatus, comeback: Comeback | None) -> dict[str, Any]:
    record = dataset.record
    return {
        "name": record.name,
        "source": record.source,
        "target": record.target,
        "volume": record.volume,
        "files": record.files,
        "bytes": record.bytes,
        "digest": record.digest,
        "verify": record.verify,
        "verified_at": record.verified_at,
        "staged_at": record.staged_at,
        "state": dataset.state,
        "freshness": dataset.freshness,
        "reason": _reason(dataset, comeback),
        "hint": _hint(dataset, comeback),
        "failed": [item.path for item in record.skipped if item.failed],
        "at_boot": comeback is not None,
        "boot": None if comeback is None else _boot_fields(comeback),
    }


def _reason(dataset: DatasetStatus, comeback: Comeback | None) -> str:
    """Say why a data set is in its state; if it should be back after boot, why it is not."""
    if comeback is None or dataset.state != "missing":
        return dataset.reason
    return f"{dataset.reason}: {comeback.state.reason}"


def _hint(dataset: DatasetStatus, comeback: Comeback | None) -> str | None:
    """Say what helps; if a service stages it at boot, that service's hint."""
    if dataset.hint is None and dataset.freshness == "stale":
        return "the same `hostprep stage` brings it up to date"
    if dataset.hint is None and dataset.state == "missing" and comeback is None:
        forgets = f"`hostprep unstage {shlex.quote(dataset.record.target)}` forgets it"
        return f"the same `hostprep stage` stages it again; {forgets}"
    return dataset.hint


def _unknown_fields(comeback: Comeback, unread: HostprepError | None) -> dict[str, Any]:
    """Return the fields of a data set to stage at boot of which there is no record.

    Or of which there is one that is ``unread``: then it may be there.
    """
    record = comeback.record
    gone = f"nothing else is on record of it: {comeback.state.reason}"
    return {
        "name": record.name,
        "source": record.source,
        "target": record.target,
        "volume": record.volume,
        "files": None,
        "bytes": None,
        "digest": record.digest,
        "verify": None,
        "verified_at": None,
        "staged_at": None,
        "state": "missing" if unread is None else "unreachable",
        "freshness": "unknown",
        "reason": gone if unread is None else unread.message,
        "hint": None if unread is None else unread.hint,
        "failed": [],
        "at_boot": True,
        "boot": _boot_fields(comeback) if unread is None else None,
    }


def _boot_fields(comeback: Comeback) -> dict[str, Any]:
    state = comeback.state
    return {
        "state": state.stage.value,
        "reason": state.reason,
        "hint": state.hint,
        "unit": comeback.record.unit,
    }
