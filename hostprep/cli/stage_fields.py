"""The JSON of ``stage``: what a run would do, and what it did."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hostprep.cli.full_check import check_fields
from hostprep.cli.output import error_fields
from hostprep.cli.plans import volume_fields
from hostprep.errors import HostprepError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hostprep.staging.bound import Bound
    from hostprep.staging.model import StageResult
    from hostprep.staging.planning import StagePlan
    from hostprep.staging.reasons import Skipped


def stage_plan_fields(plan: StagePlan, warnings: Sequence[str]) -> dict[str, Any]:
    """Return what a run would do, for JSON; ``warnings`` are those of the plan."""
    space, files = plan.space, plan.files
    # The run will count a hard link as a copied file of no bytes.
    there = (files.copied, files.kept, files.resumed)
    return {
        "dry_run": True,
        "dataset": plan.request.name,
        "source": plan.request.source,
        "target": plan.request.target,
        "changed": False,
        "would_change": not plan.nothing_to_do,
        "files": sum(each.files for each in there) + len(files.links),
        "bytes": sum(each.bytes for each in there) + sum(link.entry.size for link in files.links),
        "copy_files": files.copied.files + len(files.links),
        "copy_bytes": files.copied.bytes,
        "link_files": len(files.links),
        "keep_files": files.kept.files,
        "resume_files": files.resumed.files,
        "delete_files": len(files.delete),
        "skipped": _skipped_fields(files.skipped),
        **check_fields(files),
        "needed_bytes": space.needed_bytes,
        "free_bytes": space.free_bytes,
        "needed_inodes": space.needed_inodes,
        "free_inodes": space.free_inodes,
        "readers": plan.reading.readers,
        "order": plan.reading.order,
        "reason": plan.reading.reason,
        "needs_root": needs_root(plan),
        "unwritable": unwritable(plan) or (unkept(plan) or (None,))[0],
        "warnings": list(warnings),
        **({} if plan.refusal is None else {"error": error_fields(plan.refusal)}),
    }


def needs_root(plan: StagePlan) -> bool:
    """Whether this user's run is refused: only root mounts volumes and updates root's copies."""
    from hostprep.volumes.apply import lacking_right_to_mount

    if plan.volume is not None and (
        os.geteuid() != 0 or lacking_right_to_mount(plan.volume) is not None
    ):
        return True
    return updates_roots(plan)


def updates_roots(plan: StagePlan) -> bool:
    """Whether the run would change what root staged, and is not root's."""
    from hostprep.staging.record.records import is_roots

    return plan.previous is not None and not plan.nothing_to_do and is_roots(plan.previous)


def unwritable(plan: StagePlan) -> str | None:
    """Return the directory that the run has to write to but this user cannot, if any."""
    from hostprep.staging.target.place import standing_directory
    from hostprep.system.access import may_access

    if plan.volume is not None or plan.nothing_to_do or plan.refusal is not None:
        return None
    path = standing_directory(plan.request.parent)
    return None if may_access(path, os.W_OK | os.X_OK) else path


def unkept(plan: StagePlan) -> tuple[str, str] | None:
    """Return the directory of hostprep's own that this user cannot write to, and its variable.

    None if records and locks can be made, or if this user's run has none to make.
    """
    from hostprep.staging.record.records import folder
    from hostprep.staging.target.place import standing_directory
    from hostprep.system.access import may_access
    from hostprep.system.state import run_dir

    if plan.volume is not None or plan.nothing_to_do or plan.refusal is not None:
        return None
    for directory, variable in (
        (folder(plan.request.name, plan.request.target), "HOSTPREP_STATE_DIR"),
        (run_dir(), "HOSTPREP_RUN_DIR"),
    ):
        path = standing_directory(str(directory))
        if not may_access(path, os.W_OK | os.X_OK):
            return path, variable
    return None


def _skipped_fields(skipped: Sequence[Skipped]) -> list[dict[str, Any]]:
    return [{"path": item.path, "reason": item.reason, "failed": item.failed} for item in skipped]


def result_fields(
    result: StageResult,
    warnings: Sequence[str],
    bound: Bound | None,
    shortfall: HostprepError | None,
) -> dict[str, Any]:
    """Return what a run did, for JSON; ``warnings`` are those of its plan."""
    return {
        "dataset": result.dataset,
        "source": result.source,
        "target": result.target,
        "files": result.files,
        "bytes": result.bytes,
        "copied_files": result.copied_files,
        "copied_bytes": result.copied_bytes,
        "copied_hole_bytes": result.copied_hole_bytes,
        "kept_files": result.kept_files,
        "resumed_files": result.resumed_files,
        "deleted_files": result.deleted_files,
        "skipped": _skipped_fields(result.skipped),
        **check_fields(result),
        "left": list(result.left),
        "lost_attributes": result.lost_attributes,
        "outward_links": result.outward_links,
        "outward_named": list(result.outward_named),
        "digest": result.digest,
        "verified": result.verified,
        "verify": result.verify.value,
        "published": result.published,
        "changed": result.changed,
        "seconds": round(result.seconds, 4),
        "phases": {name: round(seconds, 4) for name, seconds in result.phases.items()},
        "readers": result.readers,
        "planned_readers": result.planned_readers,
        "volume": None if result.volume is None else volume_fields(result.volume),
        "warnings": list(warnings),
        "bound": None if bound is None else asdict(bound),
        **({} if shortfall is None else {"error": error_fields(shortfall)}),
    }


def warnings_of(plan: StagePlan) -> tuple[str, ...]:
    """Return the plan's warnings, those that ``mount`` would give about the volume included."""
    from hostprep.staging.cautions import cautions

    of_volume = () if plan.volume is None else plan.volume.warnings
    return (*of_volume, *cautions(plan))
