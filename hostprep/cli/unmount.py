"""``hostprep unmount``: unmount a volume that hostprep mounted."""

from __future__ import annotations

from typing import Annotated

import typer

from hostprep.cli.completion import volume_paths
from hostprep.cli.options import DryRunOption, JsonOption, absolute
from hostprep.cli.output import emit_json, tell_of_waiting
from hostprep.cli.plans import plan_fields, show_plan, volume_fields


def unmount(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="The volume's mount point.", autocompletion=volume_paths
        ),
    ],
    fstab: Annotated[
        bool, typer.Option("--fstab", help="Remove its line from /etc/fstab too.")
    ] = False,
    discard_data: Annotated[
        bool,
        typer.Option(
            "--discard-data", help="Unmount it even if it still holds data, which is lost."
        ),
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Unmount a hostprep volume that is empty and not in use."""
    from hostprep.system.state import check_own_records
    from hostprep.volumes.removal import (
        UnmountRequest,
        apply_unmount,
        gather_and_plan_unmount,
        lacking_right_to_unmount,
    )

    request = UnmountRequest(absolute(path), fstab=fstab, discard_data=discard_data)
    plan = gather_and_plan_unmount(request)
    if plan.refusal is not None:
        raise plan.refusal
    if dry_run:
        check_own_records()
    else:
        plan = apply_unmount(plan, on_wait=tell_of_waiting)
    if as_json:
        fields = plan_fields(plan.changes, plan.unchanged, plan.warnings, dry_run=dry_run)
        was = None if plan.live is None else volume_fields(plan.live)
        emit_json("unmount", {**fields, "volume": was})
        return
    steps = (plan.changes, plan.unchanged, plan.warnings)
    show_plan(*steps, dry_run=dry_run, for_root=True, lacking=lacking_right_to_unmount(plan))
