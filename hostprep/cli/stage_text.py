"""How ``stage`` shows its plan and its result to people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hostprep.cli.full_check import MOST_LISTED, READ_AGAIN, check_lines, some
from hostprep.cli.output import emit_text, printable, say, warn
from hostprep.cli.plans import tell_of_root
from hostprep.cli.stage_fields import unkept, unwritable, updates_roots
from hostprep.errors import HostprepError
from hostprep.host.capabilities import Capability, has_capability
from hostprep.host.mounts import read_mounts
from hostprep.units import PAGE_BYTES, format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from hostprep.staging.bound import Bound
    from hostprep.staging.model import StageResult
    from hostprep.staging.planning import StagePlan
    from hostprep.volumes.model import RamBudget
    from hostprep.volumes.plan import VolumePlan

_VERIFY_WORDS = {
    "readback": "hash in flight, read back from the target and compare",
    "inflight": "hash in flight",
    "none": "nothing is verified",
}


def announce(plan: StagePlan) -> None:
    """Say what a run is about to do."""
    lines = _more_than_asked(plan) if plan.nothing_to_do else _plan_lines(plan)
    if plan.refusal is not None:
        lines = check_lines(plan.files.differing)  # what was found remains true
    for line in lines:
        say(printable(line))


def _plan_lines(plan: StagePlan) -> list[str]:
    files, request = plan.files, plan.request
    lines = [f"stage {request.source} -> {request.target}", *_parent_lines(plan)]
    if files.copied.files or not (files.resumed.files or files.delete or files.links):
        size = format_bytes(files.copied.bytes)
        lines.append(f"  copy: {format_count(files.copied.files, 'file')}, {size}")
    lines += check_lines(files.differing)
    unverified = plan.previous is not None and plan.previous.verified_at is None
    if unverified and plan.published and files.copied.files and request.verify.value != "none":
        lines.append("  what was staged without verification is copied again")
    for count, words in (
        (files.resumed.files, "taken up: copied and verified by an interrupted run"),
        (files.kept.files, "kept: unchanged"),
        (len(files.delete), "deleted from the target: gone from the source"),
    ):
        if count:
            lines.append(f"  {format_count(count, 'file')} {words}")
    if files.links:
        lines.append(f"  {format_count(len(files.links), 'hard link')} made")
    if files.copied.files:
        lines.append(f"  verify: {_VERIFY_WORDS[request.verify.value]}")
        lines.append(
            f"  read: {plan.storage.storage_class.value} ({plan.storage.reason}); "
            f"{plan.reading.readers} at once, {plan.reading.order} order: {plan.reading.reason}"
        )
    for failed, words in ((False, "left out"), (True, "cannot be staged")):
        skipped = [item for item in files.skipped if item.failed == failed]
        if skipped:
            named = some([f"{item.path} ({item.reason})" for item in skipped])
            lines.append(f"  {words}: {named}")
    return lines


def _parent_lines(plan: StagePlan) -> list[str]:
    """Return what would be done to the volume, or to the directory, that the target is in."""
    if plan.volume is None:
        return _made_for(plan.request.parent)
    lines = [
        f"  volume: {change.subject}: {change.action} ({change.reason})"
        for change in plan.volume.changes
    ]
    if lines or plan.volume.refusal is not None:
        return lines
    size = format_bytes(plan.volume.size_bytes)
    return _more_than_asked(plan) or [f"  volume: {plan.request.parent}: as it is, {size}"]


def _made_for(parent: str) -> list[str]:
    """Return a line about a target that does not exist yet: its disk may not be mounted."""
    from hostprep.staging.target.place import mount_below, standing_directory

    if standing_directory(parent) == parent:
        return []
    mount = mount_below(parent)
    where = "" if mount is None else f", on the {mount.fstype} at {mount.target}"
    return [f"  target: make directory {parent} (it does not exist){where}"]


def _more_than_asked(plan: StagePlan) -> list[str]:
    """Return a line about a volume that stays larger than was asked for, if it does."""
    volume = plan.volume
    # A difference of less than a page is only rounding.
    if volume is None or volume.size_bytes - volume.request.size_bytes < PAGE_BYTES:
        return []
    size = f"{format_bytes(volume.size_bytes)}, more than was asked for"
    return [f"  volume: {plan.request.parent}: as it is, {size}"]


def show_stage_plan(plan: StagePlan) -> None:
    """Print what a run would do: the whole output of a dry run."""
    space = plan.space
    budget = plan.budget
    if plan.nothing_to_do and plan.refusal is None:
        read = READ_AGAIN if plan.files.full_check else ""
        emit_text(printable(f"nothing to do: {plan.request.target} is whole and fresh{read}"))
        for line in _more_than_asked(plan):
            emit_text(printable(line))
        _show_rights(plan)
        return
    for line in _plan_lines(plan):
        emit_text(printable(line))
    room = "no limit" if space.free_bytes is None else format_bytes(space.free_bytes)
    inodes = "no limit" if space.free_inodes is None else format_count(space.free_inodes)
    emit_text(
        f"  space: needs {format_bytes(space.needed_bytes)} and"
        f" {format_count(space.needed_inodes, 'inode')}; free: {room} and {inodes}"
    )
    if budget is not None and (plan.volume is None or plan.volume.refusal is None):
        emit_text(_memory_left(budget, plan.volume))
    _show_rights(plan)
    emit_text(f"dry run: nothing was changed{'' if plan.refusal is None else '; it is refused:'}")


def _memory_left(budget: RamBudget, volume: VolumePlan | None) -> str:
    # An existing volume that is large enough has no budget of its own; then the copies' counts.
    whole = volume is not None and volume.budget is not None
    after = budget.available_bytes - budget.growth_bytes - budget.promised_bytes
    others = ""
    if budget.promised_bytes:
        others = f" and {format_bytes(budget.promised_bytes)} promised to other volumes and runs"
    return (
        f"  RAM: {format_bytes(budget.available_bytes)} available ({budget.available_from}), "
        f"{format_bytes(max(0, after))} left with the {'volume full' if whole else 'copies'}"
        f"{others}; the machine should keep {format_bytes(budget.reserve_bytes)}"
    )


def _show_rights(plan: StagePlan) -> None:
    """Say which rights this user lacks to run it themselves."""
    from hostprep.volumes.apply import lacking_right_to_mount

    if updates_roots(plan):
        emit_text("  root: it was staged by root: run it with sudo, or choose another --name")
    elif plan.volume is not None:
        tell_of_root("a tmpfs volume", lacking=lacking_right_to_mount(plan.volume), indent="  ")
    if path := unwritable(plan):
        words = f"  root: this user may not write to {path}: run it with sudo, or choose another"
        emit_text(printable(words))
    if lacking := unkept(plan):
        path, variable = lacking
        what = "records" if variable == "HOSTPREP_STATE_DIR" else "locks"
        emit_text(
            printable(
                f"  {what}: this user may not write to {path}, where hostprep's go: export"
                f" {variable}=DIR names another place for them"
            )
        )


def conclude(
    result: StageResult, bound: Bound | None, shortfall: HostprepError | None, *, as_json: bool
) -> None:
    """Print the final result of a run."""
    if not as_json and result.published:
        for line in _summary(result):
            emit_text(printable(line))
        if bound is not None:
            emit_text(printable(f"  {bound.words()}"))
    _warn_of_what_is_lost(result)
    for path in result.left[:MOST_LISTED]:
        say(f"hostprep: left alone, not staged by hostprep: {printable(path)}")
    failed = [item for item in result.skipped if item.failed]
    for item in failed[:MOST_LISTED]:
        say(printable(f"hostprep: not staged: {item.path}: {item.reason}"))
    if len(failed) > MOST_LISTED:
        say(f"hostprep: ... and {format_count(len(failed) - MOST_LISTED)} more (--json has all)")
    if shortfall is not None:
        say(f"hostprep: {printable(shortfall.message)}")
        say(f"  -> {printable(shortfall.hint or '')}")


def _warn_of_what_is_lost(result: StageResult) -> None:
    """Warn of attributes that the copy does not have, and of links that lead out of it."""
    if result.lost_attributes:
        more = ""
        if not has_capability(Capability.FSETID) and os.geteuid() == 0:
            more = ", or setgid bits need CAP_FSETID, which root does not have here"
        if any(mount.fstype == "nfs4" for mount in read_mounts()):
            more += ", or the ACL is one of NFS 4, which is not copied"
        warn(
            "the target's file system cannot hold ACLs or user attributes"
            f"{more}; without theirs: {format_count(result.lost_attributes, 'entry')}"
        )
    if result.outward_links:
        links = format_count(result.outward_links, "symlink")
        named = ", ".join(result.outward_named[:3])
        more = ", ..." if result.outward_links > 3 else ""
        warn(
            f"leading out of the data set: {links} ({named}{more});"
            " what they lead to was not staged"
        )
        say("  -> stage the directory that holds both, or copy with what they lead to: `cp -rL`")


def _summary(result: StageResult) -> list[str]:
    if not result.changed:
        digest = "not verified" if result.digest is None else f"digest {result.digest}"
        if result.digest is not None and result.verify.value == "inflight":
            digest = f"hashed in flight, not read back (--full-check does that); {digest}"
        read = READ_AGAIN if result.full_check else ""
        if failed := sum(item.failed for item in result.skipped):
            missing = f"{format_count(failed, 'entry')} could not be staged this time either"
            return [f"nothing changed: {result.target} stays as it is; {missing}; {digest}"]
        return [f"nothing to do: {result.target} is whole and fresh{read}; {digest}"]
    lines = [
        f"{result.target}: {format_count(result.files, 'file')}, {format_bytes(result.bytes)}",
        f"  {_copied(result)}; {format_seconds(result.seconds)} in all",
    ]
    if result.readers != result.planned_readers:
        planned = format_count(result.planned_readers or 0, "reader")
        lines.append(f"  {planned} planned, {result.readers} in the end, by what the source gave")
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
    lines += check_lines(result.differing)
    lines.append(f"  {_digest(result)}")
    left_out = [item.reason for item in result.skipped if not item.failed]
    if left_out:  # the plan has named them
        kinds = ", ".join(sorted(set(left_out)))
        lines.append(f"  left out: {format_count(len(left_out), 'entry')} ({kinds})")
    return lines


def _copied(result: StageResult) -> str:
    if not result.copied_files:
        return "copied nothing"
    seconds = result.phases.get("copy", 0.0)
    files = format_count(result.copied_files, "file")
    holes = ""
    if result.copied_hole_bytes:
        holes = f", {format_bytes(result.copied_data_bytes)} without holes"
    copied = f"copied {files} ({format_bytes(result.copied_bytes)}{holes})"
    if seconds <= 0:
        return copied
    rate = format_rate(result.copied_data_bytes / seconds)
    return f"{copied} in {format_seconds(seconds)}, {rate}"


def _digest(result: StageResult) -> str:
    if result.digest is None:
        return "not verified"
    inflight = result.verify.value == "inflight"
    if not result.copied_files:
        if inflight:
            return f"hashed in flight (when it was copied), not read back; digest {result.digest}"
        again = " and again now" if result.full_check else ""
        return f"verified (when it was copied{again}), digest {result.digest}"
    kept = "; kept files: when they were copied" if result.kept_files else ""
    if kept and result.full_check:
        kept = "; kept files: read again here and in the source"
    if result.copied_verify.value == "readback":
        if inflight:
            kept = "; kept files: only hashed in flight when they were copied"
            return f"read back and compared{kept}; digest {result.digest}"
        return f"verified (read back and compared{kept}), digest {result.digest}"
    return f"hashed in flight, not read back{kept}; digest {result.digest}"
