"""``hostprep stage``: put a data set into RAM or onto a faster disk, whole and verified."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.options import DryRunOption, FstabOption, JsonOption, size_in_bytes
from hostprep.cli.output import emit_json
from hostprep.errors import HostprepError, Interrupted, Refused, UsageError

if TYPE_CHECKING:
    from hostprep.staging.model import StageRequest

DEFAULT_VOLUME = "/mnt/hostprep"


def stage(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="The data set, a directory. If not given: those of the spec file, or where there"
            " is none, the current directory.",
        ),
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
        str | None,
        typer.Option(metavar="NAME", help="Its name on the target; the source's own if not given."),
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
        int | None,
        typer.Option(metavar="N", min=1, max=256, help="Files read at once; chosen if not given."),
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
        bool, typer.Option("--force", help="Take the memory though it does not suffice.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Fail where another run is at work on the target.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stage a data set: copy, verify and publish it in one go.

    Run it again to update. The source is only ever read. A reader sees the whole data set or none
    of it.
    """
    from hostprep.staging.model import StageRequest, Verify
    from hostprep.staging.source import check_name, real_source

    if (to_tmpfs is None) == (to is None):
        raise UsageError("say where to stage to, and in one way.", _ways())
    if to is not None and (at is not None or fstab):
        raise UsageError(
            "--at and --fstab go with --to-tmpfs, not with --to.",
            "they are about the volume that it mounts; leave them out",
        )
    if verify not in list(Verify):
        raise UsageError(f"{verify!r} is no way to verify.", "accepted: readback, inflight, none")
    if full_check and verify == Verify.NONE:
        raise UsageError(
            "--full-check compares by hashes, which --verify none does not take.",
            "leave one of them out",
        )
    if order not in (None, "listed", "inode", "physical"):
        raise UsageError(f"{order!r} is no order.", "accepted: listed, inode, physical")
    if to_tmpfs is not None and not dry_run:
        need_root_for_tmpfs()
    size_bytes = None if to_tmpfs is None else size_in_bytes(to_tmpfs)
    parent = os.path.realpath(to) if to is not None else os.path.abspath(at or DEFAULT_VOLUME)

    if source is None:
        found = _sources_of_spec()
        if name is not None and len(found) > 1:
            raise UsageError("--name goes with one data set; the spec file names several.")
    else:
        found = [(source, None)]
    outcomes = []
    for path, spec_name in found:
        real = real_source(path)
        given = name if name is not None else spec_name
        if given is None and real == "/":
            raise UsageError(
                "the source / has no name of its own.", "name a SOURCE, or give --name"
            )
        request = StageRequest(
            source=real,
            name=check_name(given if given is not None else os.path.basename(real)),
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
        outcomes.append(_stage_one(request, dry_run=dry_run, as_json=as_json, no_wait=no_wait))
    if as_json:
        fields, ok = _one_document(outcomes)
        emit_json("stage", fields, ok=ok)
    refusal = next((outcome.refusal for outcome in outcomes if outcome.refusal), None)
    if refusal is not None:
        if as_json:
            raise typer.Exit(refusal.exit_code)  # the document has told of it
        raise refusal
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """One data set: its JSON fields, whether entries failed, and the refusal of a dry run."""

    fields: dict[str, Any]
    ok: bool
    failed: bool
    refusal: Refused | None = None


def _one_document(outcomes: list[_Outcome]) -> tuple[dict[str, Any], bool]:
    """Return the fields of the one JSON document, and whether all went well."""
    ok = all(outcome.ok for outcome in outcomes)
    if len(outcomes) == 1:
        return outcomes[0].fields, ok
    return {"datasets": [{**outcome.fields, "ok": outcome.ok} for outcome in outcomes]}, ok


def _ways() -> str:
    """Return what to say of where to stage to."""
    from hostprep.spec import find_spec

    ways = "either --to-tmpfs SIZE [--at PATH], or --to DIR"
    spec = find_spec()
    return ways if spec is None else f"{ways}; or `hostprep apply`, as {spec} says"


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


def _stage_one(request: StageRequest, *, dry_run: bool, as_json: bool, no_wait: bool) -> _Outcome:
    from hostprep.cli.progress import ProgressReporter
    from hostprep.staging.planning import cores, plan_stage, stage_lock
    from hostprep.staging.source import open_source
    from hostprep.system.locks import lock

    with ExitStack() as stack:
        reporter = stack.enter_context(ProgressReporter())
        if not dry_run:
            # A lock's file stays for good: none for a word that names no data set.
            with open_source(request.source):
                pass
            stack.enter_context(
                lock(
                    stage_lock(request),
                    purpose=f"hostprep stage {request.source}",
                    wait_seconds=0 if no_wait else None,
                    on_wait=reporter.note,
                )
            )
        plan = stack.enter_context(plan_stage(request, reporter))
        # Imported by now, while the source was scanned.
        from hostprep.cli.stage_text import (
            announce,
            conclude,
            plan_fields,
            result_fields,
            show_stage_plan,
        )
        from hostprep.staging.bound import bound_of
        from hostprep.staging.shortfall import shortfall_of
        from hostprep.staging.stage import carry_out

        if dry_run:
            if not as_json:
                show_stage_plan(plan)
            return _Outcome(plan_fields(plan), plan.refusal is None, False, plan.refusal)
        if not as_json:
            announce(plan)
        try:
            result = carry_out(plan, reporter)
        except KeyboardInterrupt:
            hint = "the same command goes on with what was copied"
            if not plan.published:  # else unstage would remove what is published as well
                hint += f"; to remove that: hostprep unstage {shlex.quote(request.target)}"
            raise Interrupted("interrupted.", hint) from None
        bound = bound_of(result, plan, cores())
    shortfall = shortfall_of(result, partial=request.partial)
    conclude(result, bound, shortfall, as_json=as_json)
    failed = shortfall is not None
    return _Outcome(result_fields(result, bound, shortfall), not failed, failed)
