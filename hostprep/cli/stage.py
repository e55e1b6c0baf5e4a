"""``hostprep stage``: put a data set into RAM or onto a faster disk, whole and verified."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.options import DryRunOption, FstabOption, JsonOption, size_in_bytes
from hostprep.cli.output import emit_json, emit_text, printable, say
from hostprep.cli.plans import volume_fields
from hostprep.errors import HostprepError, UsageError
from hostprep.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from hostprep.staging.model import Skipped, StageRequest, StageResult
    from hostprep.staging.stage import StagePlan

DEFAULT_VOLUME = "/mnt/hostprep"
_MOST_LISTED = 10


def stage(
    source: Annotated[
        str | None,
        typer.Argument(help="The data set: a directory. Without it, those of the spec file."),
    ] = None,
    to_tmpfs: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Into a tmpfs volume of this size: 30G, 50%."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help=f"The volume's mount point; {DEFAULT_VOLUME} if not given."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="DIR", help="Into this directory, on NVMe for instance.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Its name on the target; the source's own if not given.")
    ] = None,
    fstab: FstabOption = False,
    verify: Annotated[
        str,
        typer.Option(
            metavar="readback|inflight|none",
            help="Read the copies back, only hash them on their way, or neither.",
        ),
    ] = "readback",
    partial: Annotated[
        bool, typer.Option("--partial", help="Publish although some files could not be staged.")
    ] = False,
    full_check: Annotated[
        bool, typer.Option("--full-check", help="Read unchanged files too, here and there.")
    ] = False,
    readers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Files read at once; chosen if not given.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="listed|inode|physical", help="Order of reading; chosen if not given."
        ),
    ] = None,
    gentle: Annotated[
        bool, typer.Option("--gentle", help="Step behind a running training: one idle reader.")
    ] = False,
    reserve: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory left for the machine; larger of 4G and 10%."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Mount the volume though the memory does not suffice.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Fail where another run is at work on the target.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stage a data set: copy, verify and publish it in one go; run it again to update.

    The source is only ever read. A reader sees the whole data set or none of it.
    """
    from hostprep.staging.model import StageRequest, Verify
    from hostprep.staging.source import check_name, real_source

    if (to_tmpfs is None) == (to is None):
        raise UsageError(
            "say where to stage to.", "either --to-tmpfs SIZE [--at PATH], or --to DIR"
        )
    if to is not None and (at is not None or fstab):
        raise UsageError("--at and --fstab go with --to-tmpfs, not with --to.")
    if verify not in list(Verify):
        raise UsageError(f"{verify!r} is no way to verify.", "accepted: readback, inflight, none")
    if order not in (None, "listed", "inode", "physical"):
        raise UsageError(f"{order!r} is no order.", "accepted: listed, inode, physical")
    if to_tmpfs is not None:
        need_root_for_tmpfs()
    size_bytes = None if to_tmpfs is None else size_in_bytes(to_tmpfs)
    parent = os.path.realpath(to) if to is not None else os.path.abspath(at or DEFAULT_VOLUME)

    if source is None:
        found = _sources_of_spec()
        if name is not None and len(found) > 1:
            raise UsageError("--name goes with one data set; the spec file names several.")
    else:
        found = [(source, None)]
    for path, spec_name in found:
        real = real_source(path)
        request = StageRequest(
            source=real,
            name=check_name(name or spec_name or os.path.basename(real)),
            parent=parent,
            volume_size_bytes=size_bytes,
            verify=Verify(verify),
            fstab=fstab,
            partial=partial,
            full_check=full_check,
            reserve_bytes=None if reserve is None else size_in_bytes(reserve),
            force=force,
            readers=readers,
            order=order,
            gentle=gentle,
        )
        _stage_one(request, dry_run=dry_run, as_json=as_json, no_wait=no_wait)


def need_root_for_tmpfs() -> None:
    """Raise where an ordinary user asks for a mount, before anything is read."""
    if os.geteuid() != 0:
        raise HostprepError(
            "mounting a tmpfs needs root; nothing was changed.",
            "run it with sudo, or stage into the tmpfs that every Linux has: --to /dev/shm/NAME "
            "(a logout may clear it, where logind's RemoveIPC is on)",
        )


def _sources_of_spec() -> list[tuple[str, str | None]]:
    from hostprep.spec import find_spec, load_spec

    path = find_spec()
    if path is None:
        return [(os.getcwd(), None)]
    spec = load_spec(path)
    if not spec.datasets:
        raise UsageError(f"{path} names no data sets.", "name a SOURCE, or add `datasets:` to it")
    return [(dataset.source, dataset.name) for dataset in spec.datasets]


def _stage_one(request: StageRequest, *, dry_run: bool, as_json: bool, no_wait: bool) -> None:
    from hostprep.cli.progress import ProgressReporter
    from hostprep.staging.stage import carry_out, plan_stage, stage_lock
    from hostprep.system.locks import lock

    with ExitStack() as stack:
        reporter = stack.enter_context(ProgressReporter())
        if not dry_run:
            stack.enter_context(
                lock(
                    stage_lock(request),
                    purpose=f"hostprep stage {request.source}",
                    wait_seconds=0 if no_wait else None,
                    on_wait=reporter.note,
                )
            )
        plan = stack.enter_context(plan_stage(request, reporter))
        if dry_run:
            _show_plan(plan, as_json=as_json)
            if plan.refusal is not None:
                raise plan.refusal
            return
        if not as_json:
            _announce(plan)
        result = carry_out(plan, reporter)
    if as_json:
        emit_json("stage", _result_fields(result), ok=result.published)
    _conclude(result, as_json=as_json)


def _announce(plan: StagePlan) -> None:
    for warning in plan.volume.warnings if plan.volume is not None else ():
        say(f"hostprep: warning: {printable(warning)}")
    if plan.refusal is None and not plan.nothing_to_do:
        for line in _plan_lines(plan):
            say(printable(line))


def _plan_lines(plan: StagePlan) -> list[str]:
    files, request = plan.files, plan.request
    lines = [f"stage {request.source} -> {request.target}"]
    if plan.volume is not None:
        lines += [
            f"  volume: {change.subject}: {change.action} ({change.reason})"
            for change in plan.volume.changes
        ]
        if not plan.volume.changes:
            lines.append(f"  volume: {request.parent}: as it is")
    lines.append(
        f"  copy: {format_count(files.copied.files)} files, {format_bytes(files.copied.bytes)}"
    )
    for count, words in (
        (files.resumed.files, "files that an interrupted run has copied and verified: taken up"),
        (files.kept.files, "files unchanged: kept"),
        (len(files.links), "hard links: made"),
        (len(files.delete), "files gone from the source: deleted from the target"),
    ):
        if count:
            lines.append(f"  {format_count(count)} {words}")
    lines.append(f"  verify: {_VERIFY_WORDS[request.verify.value]}")
    if files.copied.files:
        lines.append(
            f"  read: {plan.storage.storage_class.value} ({plan.storage.reason}); "
            f"{plan.reading.readers} at once, {plan.reading.order} order: {plan.reading.reason}"
        )
    left_out = [item for item in files.skipped if not item.failed]
    if left_out:
        lines.append(f"  left out: {_some([f'{item.path} ({item.reason})' for item in left_out])}")
    return lines


_VERIFY_WORDS = {
    "readback": "hash in flight, read back from the target and compare",
    "inflight": "hash in flight",
    "none": "nothing is verified",
}


def _show_plan(plan: StagePlan, *, as_json: bool) -> None:
    """Render what a run would do: the whole of a dry run."""
    space, files = plan.space, plan.files
    budget = plan.volume.budget if plan.volume is not None else None
    if as_json:
        emit_json(
            "stage",
            {
                "dry_run": True,
                "dataset": plan.request.name,
                "source": plan.request.source,
                "target": plan.request.target,
                "changed": False,
                "would_change": not plan.nothing_to_do,
                "files": files.copied.files + files.kept.files + files.resumed.files,
                "bytes": files.copied.bytes + files.kept.bytes + files.resumed.bytes,
                "copy_files": files.copied.files,
                "copy_bytes": files.copied.bytes,
                "keep_files": files.kept.files,
                "resume_files": files.resumed.files,
                "delete_files": len(files.delete),
                "skipped": _skipped_fields(files.skipped),
                "needed_bytes": space.needed_bytes,
                "free_bytes": space.free_bytes,
                "needed_inodes": space.needed_inodes,
                "free_inodes": space.free_inodes,
                "readers": plan.reading.readers,
                "order": plan.reading.order,
                "reason": plan.reading.reason,
                "refusal": None if plan.refusal is None else plan.refusal.message,
            },
            ok=plan.refusal is None,
        )
        return
    if plan.nothing_to_do:
        emit_text(printable(f"nothing to do: {plan.request.target} is whole and fresh"))
        return
    for line in _plan_lines(plan):
        emit_text(printable(line))
    inodes = "no limit" if space.free_inodes is None else format_count(space.free_inodes)
    emit_text(
        f"  space: {format_bytes(space.needed_bytes)} of {format_bytes(space.free_bytes)} free; "
        f"{format_count(space.needed_inodes)} inodes of {inodes}"
    )
    if budget is not None:
        after = budget.available_bytes - budget.growth_bytes - budget.promised_bytes
        emit_text(
            f"  RAM: {format_bytes(budget.available_bytes)} available ({budget.available_from}), "
            f"{format_bytes(max(0, after))} left with the volume full; "
            f"{format_bytes(budget.reserve_bytes)} are kept for the machine"
        )
    emit_text("dry run: nothing was changed")


def _conclude(result: StageResult, *, as_json: bool) -> None:
    """Print the end of a run and raise its exit code where it is not 0."""
    failed = [item for item in result.skipped if item.failed]
    if not as_json and result.published:
        for line in _summary(result):
            emit_text(printable(line))
    for path in result.left[:_MOST_LISTED]:
        say(f"hostprep: left alone, not staged by hostprep: {printable(path)}")
    for item in failed[:_MOST_LISTED]:
        say(f"hostprep: not staged: {printable(item.path)}: {item.reason}")
    if len(failed) > _MOST_LISTED:
        say(f"hostprep: ... and {format_count(len(failed) - _MOST_LISTED)} more (--json has all)")
    if not result.published:
        say(
            f"hostprep: {format_count(len(failed))} of the source's entries could not be staged, "
            "so nothing was published; what was copied is kept for the next run."
        )
        say("  -> mend the source and run the same command again, or publish the rest: --partial")
    if failed:
        raise typer.Exit(1)


def _summary(result: StageResult) -> list[str]:
    if not result.changed:
        return [f"nothing to do: {result.target} is whole and fresh ({_digest(result)})"]
    copy_seconds = result.phases.get("copy", 0.0)
    rate = f", {format_rate(result.copied_bytes / copy_seconds)}" if copy_seconds > 0 else ""
    lines = [
        f"{result.target}: {format_count(result.files)} files, {format_bytes(result.bytes)}",
        f"  copied {format_count(result.copied_files)} files "
        f"({format_bytes(result.copied_bytes)}{rate}) in {format_seconds(result.seconds)}",
    ]
    also = [
        f"{format_count(count)} {word}"
        for count, word in (
            (result.resumed_files, "taken up from an interrupted run"),
            (result.kept_files, "kept"),
            (result.deleted_files, "deleted"),
        )
        if count
    ]
    if also:
        lines.append(f"  {', '.join(also)}")
    lines.append(f"  {_digest(result)}")
    left_out = [item for item in result.skipped if not item.failed]
    if left_out:
        lines.append(f"  left out: {_some([f'{item.path} ({item.reason})' for item in left_out])}")
    if result.bound:
        lines.append(f"  {result.bound}")
    return lines


def _digest(result: StageResult) -> str:
    if result.digest is None:
        return "not verified"
    how = "read back and compared" if result.verify.value == "readback" else "hashed in flight"
    return f"verified ({how}), digest {result.digest}"


def _some(words: list[str]) -> str:
    shown = ", ".join(words[:_MOST_LISTED])
    return shown if len(words) <= _MOST_LISTED else f"{shown} and {len(words) - _MOST_LISTED} more"


def _skipped_fields(skipped: Any) -> list[dict[str, Any]]:
    def fields(item: Skipped) -> dict[str, Any]:
        return {"path": item.path, "reason": item.reason, "failed": item.failed}

    return [fields(item) for item in skipped]


def _result_fields(result: StageResult) -> dict[str, Any]:
    volume = None
    if result.volume is not None:
        volume = volume_fields(result.volume)
    return {
        "dataset": result.dataset,
        "source": result.source,
        "target": result.target,
        "files": result.files,
        "bytes": result.bytes,
        "copied_files": result.copied_files,
        "copied_bytes": result.copied_bytes,
        "kept_files": result.kept_files,
        "resumed_files": result.resumed_files,
        "deleted_files": result.deleted_files,
        "skipped": _skipped_fields(result.skipped),
        "left": list(result.left),
        "digest": result.digest,
        "verified": result.verified,
        "verify": result.verify.value,
        "published": result.published,
        "changed": result.changed,
        "seconds": round(result.seconds, 4),
        "phases": {name: round(seconds, 4) for name, seconds in result.phases.items()},
        "volume": volume,
    }
