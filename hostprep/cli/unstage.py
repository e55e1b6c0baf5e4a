"""``hostprep unstage``: remove a staged data set, and its volume if that is then empty."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.completion import dataset_names
from hostprep.cli.options import DryRunOption, JsonOption
from hostprep.cli.output import (
    emit_json,
    emit_text,
    error_fields,
    printable,
    say,
    say_error,
    tell_of_waiting,
)
from hostprep.cli.plans import plan_fields, show_plan
from hostprep.errors import HostprepError, Interrupted, UsageError
from hostprep.units import format_count

if TYPE_CHECKING:
    from hostprep.cli.progress import ProgressReporter
    from hostprep.staging.record.records import Record
    from hostprep.staging.unstage import UnstageResult
    from hostprep.staging.unstage_plan import UnstagePlan

_MOST_LISTED = 10


def unstage(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="NAME|PATH",
            help="The data set's name, or its path.",
            autocompletion=dataset_names,
        ),
    ],
    fstab: Annotated[
        bool, typer.Option("--fstab", help="Remove the volume's line from /etc/fstab too.")
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Remove only its record and no files, if the target is gone."
        ),
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a staged data set, and its volume if that is then empty.

    What others added or changed stays, and is listed; the source is not touched.
    """
    from hostprep.cli.progress import ProgressReporter
    from hostprep.host.answering import wait_for_answers
    from hostprep.staging.unstage_plan import find_record, plan_forgetting, plan_unstage
    from hostprep.system.locks import lock
    from hostprep.system.state import check_own_records

    if forget and fstab:
        raise UsageError(
            "--forget changes only the record; --fstab would change more.",
            "leave --fstab out; `hostprep unmount PATH --fstab` removes a volume's line",
        )
    record = find_record(dataset)
    if fstab and record.volume is None:
        raise UsageError(
            f"--fstab is about the volume of a data set, and {record.target} lies in a directory"
            " (it was staged with --to); nothing was changed.",
            "leave it out; `hostprep unmount PATH --fstab` removes a volume and its line",
        )
    if not forget:
        wait_for_answers([record.target], tell_of_waiting)
    boot_service = _boot_service(record)  # an error after unstaging would hide the result
    if dry_run:
        check_own_records()
        with ProgressReporter() as reporter:
            plan = (
                plan_forgetting(record)
                if forget
                else plan_unstage(record, fstab=fstab, observer=reporter)
            )
        _show(plan, boot_service, as_json=as_json)
        if forget:
            _tell_of_copies(record)
        return
    with (
        ProgressReporter() as reporter,
        lock(record.lock, purpose=f"hostprep unstage {record.name}", on_wait=reporter.note),
    ):
        plan, result = _unstage(record, reporter, fstab=fstab, forget=forget)
    _conclude(plan, result, boot_service, as_json=as_json, forgotten=forget)
    if forget:
        _tell_of_copies(record)


def _unstage(
    record: Record, reporter: ProgressReporter, *, fstab: bool, forget: bool
) -> tuple[UnstagePlan, UnstageResult]:
    """Unstage a data set, or forget it; the caller holds its lock."""
    from hostprep.staging.record import records
    from hostprep.staging.unstage import UnstageResult, unstaged_by_another
    from hostprep.staging.unstage import unstage as carry_out
    from hostprep.staging.unstage_plan import plan_forgetting, plan_unstage

    # Another run may have staged or unstaged it while this one waited for the lock.
    found = records.load_record(record.name, record.target)
    if found is None:
        plan = plan_forgetting(record, fstab=fstab)
        if forget:
            return plan, UnstageResult(record, 0, (), None, None, changed=False, by_another=True)
        return plan, unstaged_by_another(plan, reporter)
    if forget:
        plan = plan_forgetting(found)
        records.forget(found)
        return plan, UnstageResult(found, 0, (), None, None)
    plan = plan_unstage(found, fstab=fstab, observer=reporter)
    try:
        return plan, carry_out(plan, reporter)
    except KeyboardInterrupt:
        hint = "the same command goes on; until then what is left of it takes up space"
        raise Interrupted("interrupted.", hint) from None


def _boot_service(record: Record) -> str | None:
    """Return the service that stages the data set again at the next boot, if one is enabled."""
    from hostprep.converging.boot_links import link_of
    from hostprep.converging.boot_record import all_boot_records
    from hostprep.system.systemd import unit_dir

    units = (boot.unit for boot in all_boot_records() if boot.target == record.target)
    return next((unit for unit in units if os.path.lexists(link_of(unit_dir(), unit))), None)


def _tell_of_copies(record: Record) -> None:
    """Say so if the copies that are being forgotten still exist."""
    from hostprep.host.answering import PATIENCE_SECONDS, silent_ones
    from hostprep.staging.target.owned import private_name

    parent = os.path.dirname(record.target)
    if silent_ones([parent], PATIENCE_SECONDS):
        return
    unfinished = os.path.join(parent, private_name(record.name))
    # Until the first copy is complete, anything at the target's path is somebody else's.
    copies = [unfinished] if record.phase == "copying" else [record.target, unfinished]
    for path in filter(os.path.lexists, copies):
        say(f"hostprep: what lies at {printable(path)} stays, and is no longer known as hostprep's")
        say("  -> remove it by hand, or move it away, before anything is staged there again")


def _tell_of_fstab(volume: str) -> None:
    from hostprep.volumes.status import volume_statuses

    try:
        stays = any(each.path == volume and each.in_fstab for each in volume_statuses())
    except HostprepError:
        return  # everything is done and has been reported
    if stays:
        say(f"hostprep: fstab mounts {printable(volume)} again at the next boot")
        say(f"  -> `hostprep unmount {shlex.quote(printable(volume))} --fstab` removes its line")


def _tell_of_spec(volume: str) -> None:
    from hostprep.cli.spec import wanted_spec

    try:
        spec = wanted_spec(None)
    except HostprepError:
        return  # there is no spec, or it cannot be read
    if any(each.path == volume for each in spec.volumes):
        named = f"{printable(spec.path)} names the volume {printable(volume)}"
        say(f"hostprep: {named}, which `hostprep check` will miss")
        say(f"  -> `hostprep apply {shlex.quote(printable(spec.path))}` mounts it again")


def _tell_of(boot_service: str | None, record: Record) -> None:
    if boot_service is not None:
        from hostprep.converging.boot_links import AT_BOOT, linked_from
        from hostprep.system.systemd import unit_dir

        by_mount = linked_from(unit_dir(), boot_service) - {AT_BOOT}
        when = "at the next boot" + (", or when its source is mounted again" if by_mount else "")
        say(f"hostprep: {printable(record.name)} comes back {when}: {boot_service}")
        say(
            "  -> without `at_boot: true` in the spec, `hostprep apply --prune` removes that;"
            f" `systemctl disable {shlex.quote(boot_service)}` keeps it from starting"
        )


def _show(plan: UnstagePlan, boot_service: str | None, *, as_json: bool) -> None:
    if as_json:
        emit_json(
            "unstage",
            {
                "dataset": plan.record.name,
                "target": plan.record.target,
                **plan_fields(plan.changes, (), (), dry_run=True),
                "left": list(plan.foreign),
                "in_its_place": plan.record.target if plan.in_its_place else None,
                "boot_service": boot_service,
            },
        )
        return
    _tell_of(boot_service, plan.record)
    if plan.unmount and plan.record.volume is not None:
        _tell_of_spec(plan.record.volume)
    for line in _first("would stay, added or changed since it was staged", plan.foreign):
        emit_text(line)
    if plan.in_its_place:
        emit_text(f"would stay, not staged by hostprep: {printable(plan.record.target)}")
    show_plan(plan.changes, (), (), dry_run=True)  # its last line says that nothing was changed


def _conclude(
    plan: UnstagePlan,
    result: UnstageResult,
    boot_service: str | None,
    *,
    as_json: bool,
    forgotten: bool,
) -> None:
    record = result.record
    error = result.problem or (_left_behind(result) if result.foreign else None)
    if as_json:
        fields = _fields(plan, result, boot_service)
        if error is not None:
            fields["error"] = error_fields(error)
        emit_json("unstage", fields, ok=error is None)
    else:
        emit_text(printable(f"{record.target}: {_done(plan, result, forgotten=forgotten)}"))
        steps = ["unmounted"] if result.unmounted else []
        steps += ["fstab has no line for it any more"] if result.line_removed else []
        if steps:
            emit_text(printable(f"{record.volume}: {'; '.join(steps)}"))
    for line in _first("left alone, added or changed since it was staged", result.foreign):
        say(f"hostprep: {line}")
    if result.foreign:
        say(f"  -> {_left_behind(result).hint}")
    if plan.in_its_place:
        say(f"hostprep: left alone, not staged by hostprep: {printable(record.target)}")
    if result.problem is not None:
        say_error(result.problem)
    elif result.unmounted is False and result.kept_because:
        stays = f"the volume {record.volume} stays: {result.kept_because}"
        say(f"hostprep: {printable(stays)}")
    if result.unmounted and result.problem is None and record.volume is not None:
        _tell_of_fstab(record.volume)
        _tell_of_spec(record.volume)
    _tell_of(boot_service, record)
    if error is not None:
        raise typer.Exit(1)


def _fields(plan: UnstagePlan, result: UnstageResult, boot_service: str | None) -> dict[str, Any]:
    record = result.record
    return {
        "dataset": record.name,
        "target": record.target,
        "changed": result.changed,
        "removed_entries": result.removed_entries,
        "left": list(result.foreign),
        "in_its_place": record.target if plan.in_its_place else None,
        "volume": record.volume,
        "unmounted": result.unmounted,
        "volume_kept_because": result.kept_because,
        "fstab_line_removed": result.line_removed,
        "boot_service": boot_service,
    }


def _first(words: str, paths: Sequence[str]) -> list[str]:
    """Return a line for each of the first paths, and one that counts the rest."""
    lines = [f"{words}: {printable(path)}" for path in paths[:_MOST_LISTED]]
    if len(paths) > _MOST_LISTED:
        lines.append(f"... and {format_count(len(paths) - _MOST_LISTED)} more")
    return lines


def _done(plan: UnstagePlan, result: UnstageResult, *, forgotten: bool) -> str:
    """Say what happened to the data set."""
    if result.by_another:
        return "unstaged meanwhile by another run"
    if forgotten:
        return "forgotten; no file was removed"
    if plan.published or plan.hidden:
        return f"{format_count(result.removed_entries, 'entry')} removed"
    unfinished = " its unfinished copies were removed, and it is" if plan.private else ""
    return f"it was not on the target;{unfinished} forgotten"


def _left_behind(result: UnstageResult) -> HostprepError:
    volume = "" if result.record.volume is None else ", and the volume with it"
    error = HostprepError(
        f"what was added or changed since it was staged was left{volume}:"
        f" {format_count(len(result.foreign), 'entry')}.",
        "move these away and run the same command again",
    )
    error.code = "left_behind"
    return error
