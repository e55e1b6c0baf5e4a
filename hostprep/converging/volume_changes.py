"""What a volume's plan changes, and which of mount, fstab line and spec differ."""

from __future__ import annotations

import os
from dataclasses import replace

from hostprep.converging.model import Change, Kind
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.fstab_line import line_options
from hostprep.volumes.fstab_plan import RELOAD, line_difference, other_source
from hostprep.volumes.model import Step, VolumeRequest
from hostprep.volumes.options import compare_options
from hostprep.volumes.plan import VolumePlan
from hostprep.volumes.removal import IF_EMPTY, REMOVE


def explained_change(step: Step, plan: VolumePlan, facts: VolumeFacts) -> Change:
    """Return a step of a plan as a change that says which of mount, line and spec differ."""
    change = change_of(step, facts.path)
    if change.kind is Kind.FSTAB and step != RELOAD:
        return replace(change, reason=_why_fstab(step.reason, plan, facts))
    if step.subject == facts.path:
        return replace(change, reason=_why_live(step.reason, plan, facts))
    return change


def change_of(step: Step, path: str) -> Change:
    """Return a step of the volume at ``path`` as a change; its fstab line is a separate object."""
    if step.subject == "fstab":
        return Change(Kind.FSTAB, path, step.action, step.reason)
    action = step.action if step.subject == path else f"{step.action}: {step.subject}"
    return Change(Kind.VOLUME, path, action, step.reason)


def came_true(change: Change) -> Change | None:
    """Return a volume's change as it was made; None for a directory that was to go, and is there.

    A plan cannot tell whether a directory below a volume is empty.
    """
    planned, _, directory = change.action.partition(": ")
    if change.kind is not Kind.VOLUME or planned != REMOVE + IF_EMPTY:
        return change
    if os.path.lexists(directory or change.subject):
        return None
    return replace(change, action=change.action.replace(IF_EMPTY, "", 1))


def _why_live(reason: str, plan: VolumePlan, facts: VolumeFacts) -> str:
    """Add which of the three differ: what is mounted, its line in fstab, the spec."""
    entry = facts.fstab_entry
    if entry is None:
        return reason
    line_is_right = all(step.subject != "fstab" for step in plan.changes)
    if facts.live is None:
        return f"{reason}, though fstab has its line" if line_is_right else reason
    if line_is_right:
        return f"{reason}; fstab says what the spec says: the mounted volume was changed by hand"
    if not compare_options(facts.live, entry.options):
        return f"{reason}, as in fstab; the spec asks for something else"
    return f"{reason}; what is mounted, the line in fstab and the spec all differ"


def _why_fstab(reason: str, plan: VolumePlan, facts: VolumeFacts) -> str:
    entry = facts.fstab_entry
    if entry is None or plan.fstab_options is None:
        return reason
    found = line_difference(entry, plan.fstab_options, facts.source)
    if facts.live is None or found == other_source(entry, facts.source):
        return found
    wanted = line_options(facts.path, plan.fstab_options)
    # Swap stays as mounted, without a step of its own, so the mounted volume is not as wanted then.
    as_mounted = facts.live.noswap == ("noswap" in wanted)
    if as_mounted and all(step.subject == "fstab" for step in plan.changes):
        differing = {option.partition("=")[0] for option in {*entry.options} ^ {*wanted}}
        if differing and differing <= (free := _left_open(plan.request)).keys():
            named = " or ".join(sorted({free[name] for name in differing}))
            return f"{found}; the spec names no {named}: the line follows what is mounted"
        return f"{found}; what is mounted is right: the line differs from the spec"
    if not compare_options(facts.live, entry.options):
        return f"{found}; the line and the volume agree, but the spec asks for something else"
    return f"{found}; what is mounted, the line and the spec all differ"


def _left_open(request: VolumeRequest) -> dict[str, str]:
    """Return the mount options that nobody asked for, each with its name in the spec."""
    found = {}
    if request.mode is None:
        found["mode"] = "mode"
    if request.uid is None and request.gid is None:
        found["uid"] = found["gid"] = "owner"
    if request.huge is None:
        found["huge"] = "huge"
    return found
