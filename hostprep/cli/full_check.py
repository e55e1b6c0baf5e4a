"""How ``stage`` shows what a full check found: differences that lstat cannot see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hostprep.units import format_count

if TYPE_CHECKING:
    from hostprep.staging.model import StageResult
    from hostprep.staging.plans.copy_plan import CopyPlan
    from hostprep.staging.reasons import Differing

MOST_LISTED = 10
READ_AGAIN = ", by the content of every file here and in the source"
# Each place has its own causes, and needs its own kind of investigation.
_CAUSES = {
    "source": (
        "source file",
        "an edit that put the time back, an edit within the last minute on a share, or a damaged"
        " disk",
    ),
    "target": ("copy", "damaged memory or a damaged disk, or somebody wrote to it"),
}


def check_fields(found: CopyPlan | StageResult) -> dict[str, Any]:
    """Return what a full check found, for JSON; ``full_check`` is false if none was made."""
    differing = [asdict(each) for each in found.differing]
    return {"full_check": found.full_check, "differing": differing}


def check_lines(differing: Sequence[Differing]) -> list[str]:
    """Return lines that name the differing files, the source's and the target's separately."""
    from hostprep.staging.reasons import OTHER_CONTENT

    lines = []
    for place, (what, cause) in _CAUSES.items():
        paths = [e.path for e in differing if (e.place, e.reason) == (place, OTHER_CONTENT)]
        if paths:
            lines.append(
                f"  full check: {format_count(len(paths), what)} with other content than was"
                f" staged, size and time as they were ({cause}): {some(paths)}"
            )
    others = [
        f"{each.path} in the {each.place} ({each.reason})"
        for each in differing
        if each.reason != OTHER_CONTENT
    ]
    if others:
        lines.append(f"  full check: not to be compared: {some(others)}")
    return lines


def some(words: Sequence[str]) -> str:
    """Return the first few words, and how many more there are."""
    shown = ", ".join(words[:MOST_LISTED])
    return shown if len(words) <= MOST_LISTED else f"{shown} and {len(words) - MOST_LISTED} more"
