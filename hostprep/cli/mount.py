"""``hostprep mount``: mount or resize a sized tmpfs, and keep it for the next boot if asked."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.options import (
    DryRunOption,
    ForceOption,
    FstabOption,
    JsonOption,
    ReserveOption,
    absolute,
    mode_of,
    size_in_bytes,
    volume_bytes,
)
from hostprep.cli.output import emit_json, emit_text, tell_of_waiting
from hostprep.cli.plans import plan_fields, show_plan, volume_fields, volume_line
from hostprep.errors import UsageError
from hostprep.units import MOST_INODES
from hostprep.volumes.model import Huge

if TYPE_CHECKING:
    from hostprep.volumes.model import LiveVolume
    from hostprep.volumes.plan import VolumePlan


def mount(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Mount point: an empty or new directory.")
    ],
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="Size of the volume: 30G, 512M, 50% (of the RAM).")
    ],
    fstab: FstabOption = False,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE", help="Permissions of its root directory; 0755 for a new volume."
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="USER[:GROUP]", help="Owner of its root directory.")
    ] = None,
    inodes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="The minimum number of files, directories and links that must fit.",
        ),
    ] = None,
    huge: Annotated[
        Huge | None,
        typer.Option(help="Huge pages; within_size for a new volume if the kernel supports it."),
    ] = None,
    swap: Annotated[bool, typer.Option("--swap", help="Allow its data to be swapped out.")] = False,
    reserve: ReserveOption = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Mount a tmpfs of a given size, or change one; its data stays."""
    from hostprep.system.accounts import owner_of
    from hostprep.system.state import check_own_records
    from hostprep.volumes.apply import apply_volume, lacking_right_to_mount
    from hostprep.volumes.facts import gather
    from hostprep.volumes.model import VolumeRequest
    from hostprep.volumes.plan import plan_volume

    if inodes is not None and inodes > MOST_INODES:
        raise UsageError(
            f"--inodes {inodes} is more than the kernel takes ({MOST_INODES}); nothing was"
            " changed.",
            "give a smaller number, or leave --inodes out",
        )
    uid, gid = owner_of(owner) if owner is not None else (None, None)
    request = VolumeRequest(
        path=absolute(path),
        size_bytes=volume_bytes(size),
        of_ram="%" in size,
        mode=None if mode is None else mode_of(mode),
        uid=uid,
        gid=gid,
        inodes=inodes,
        huge=huge,
        swap=swap,
        fstab=fstab,
        reserve_bytes=None if reserve is None else size_in_bytes(reserve),
        force=force,
    )
    plan = plan_volume(request, gather(request.path))
    if plan.refusal is not None:
        from hostprep.staging.failures import unstage_first
        from hostprep.staging.record.records import staged_in

        unstage_first(plan.refusal, staged_in(request.path))
        raise plan.refusal
    live = plan.live
    if dry_run:
        check_own_records()
    else:
        done = apply_volume(plan, on_wait=tell_of_waiting)
        plan, live = done.plan, done.live
    if as_json:
        emit_json("mount", _fields(plan, live, dry_run=dry_run))
        return
    steps = (plan.changes, plan.unchanged, plan.warnings)
    show_plan(*steps, dry_run=dry_run, for_root=True, lacking=lacking_right_to_mount(plan))
    if live is not None:
        emit_text(f"now: {volume_line(live)}" if dry_run else volume_line(live))


def _fields(plan: VolumePlan, live: LiveVolume | None, *, dry_run: bool) -> dict[str, Any]:
    budget = None
    if plan.budget is not None:
        budget = {**asdict(plan.budget), "fits": plan.budget.fits}
    return {
        **plan_fields(plan.changes, plan.unchanged, plan.warnings, dry_run=dry_run),
        "volume": None if live is None else volume_fields(live),
        "planned": {
            "size_bytes": plan.size_bytes,
            "inodes": plan.inodes,
            "options": ",".join(plan.options),
        },
        "budget": budget,
    }
