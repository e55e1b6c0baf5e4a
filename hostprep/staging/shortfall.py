"""Where not all was staged: what is to be mended, and what fails a run that nobody allowed it."""

from __future__ import annotations

from collections.abc import Iterable

from hostprep.errors import HostprepError
from hostprep.staging.model import LET_CHOWN, Skipped, StageResult
from hostprep.units import format_count


def cure_of(skipped: Iterable[Skipped]) -> str:
    """Return what is to be mended so that a run stages what failed."""
    failed = [item for item in skipped if item.failed]
    cures = []
    if any(item.blocked for item in failed):
        cures.append("move away what has its place on the target")
    if any(item.unholdable for item in failed):
        cures.append("stage to a file system that can hold all of it (ext4, XFS, a tmpfs)")
    if any(item.disowned for item in failed):
        cures.append(LET_CHOWN)
    if any(item.too_large for item in failed):
        cures.append("have that limit raised (of a service: LimitFSIZE=)")
    if any(item.restless for item in failed):
        cures.append("let nothing write to the source meanwhile")
    if not failed or not all(
        item.blocked or item.unholdable or item.disowned or item.too_large or item.restless
        for item in failed
    ):
        cures.append("mend the source")
    return " and ".join(cures)


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
