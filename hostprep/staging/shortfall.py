"""If not everything was staged: what to fix, and the error unless the user allowed it."""

from __future__ import annotations

from collections.abc import Iterable

from hostprep.errors import HostprepError
from hostprep.staging.model import StageResult
from hostprep.staging.reasons import CURES, Skipped
from hostprep.staging.resuming import NEXT_BEGINS_ANEW
from hostprep.units import format_count


def cure_of(skipped: Iterable[Skipped]) -> str:
    """Return what to fix so that a run stages what failed."""
    found = {item.cure for item in skipped if item.failed}
    cures = [cure for cure in dict.fromkeys(CURES.values()) if cure in found]
    if not found or None in found:
        cures.append("fix the source")
    return " and ".join(cures)


def shortfall_of(result: StageResult, *, partial: bool) -> HostprepError | None:
    """Return the error if entries could not be staged, unless ``--partial`` allows that."""
    failed = sum(item.failed for item in result.skipped)
    if not failed or (partial and result.published):
        return None
    cure = cure_of(result.skipped)
    what = f"{format_count(failed)} of the source's entries could not be staged"
    if result.published:
        error = HostprepError(
            f"{what}; a run with --partial published {result.target} without the present state of"
            f" {'this entry' if failed == 1 else 'these entries'}.",
            f"{cure} and run the same command again, or accept it: --partial",
        )
    else:
        kept, rest = "what was copied is kept for the next run", "--partial"
        if option := result.begins_anew:
            kept = f"with {option} the next run copies all of that anew"
            rest = f"--partial, so that later runs keep it; else {NEXT_BEGINS_ANEW[option]}"
        error = HostprepError(
            f"{what}, so nothing was published; {kept}.",
            f"{cure} and run the same command again, or publish the rest: {rest}",
            spec_hint=f"{cure} and run the same command again",
        )
    error.code = "incomplete"
    return error
