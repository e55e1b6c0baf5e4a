"""When a run of ``stage`` ended without staging everything, and nobody allowed that."""

from __future__ import annotations

from hostprep.errors import HostprepError
from hostprep.staging.model import StageResult, cure_of
from hostprep.units import format_count


def shortfall_of(result: StageResult, *, partial: bool) -> HostprepError | None:
    """Return what fails the run: entries that could not be staged, unless ``--partial`` took it."""
    failed = sum(item.failed for item in result.skipped)
    if not failed or (partial and result.published):
        return None
    cure = cure_of(result.skipped)
    what = f"{format_count(failed)} of the source's entries could not be staged"
    if result.published:
        error = HostprepError(
            f"{what}; they are not in {result.target}, which --partial published without them.",
            f"{cure} and run the same command again, or accept it: --partial",
        )
    else:
        error = HostprepError(
            f"{what}, so nothing was published; what was copied is kept for the next run.",
            f"{cure} and run the same command again, or publish the rest: --partial",
            spec_hint=f"{cure} and run the same command again",
        )
    error.code = "incomplete"
    return error
