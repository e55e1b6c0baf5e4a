"""What bound a run of ``stage``: the processors, the source as far as is known, or the target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hostprep.dataclass import dataclass
from hostprep.staging.source.sampling import SAMPLED_BYTES
from hostprep.system.state import readable_state_dirs
from hostprep.units import format_rate

if TYPE_CHECKING:
    from hostprep.host.block import PathStorage
    from hostprep.staging.model import StageResult
    from hostprep.staging.planning import StagePlan

# Of less than this nothing can be said: starting and ending weigh as much as reading.
_LEAST_SECONDS = 0.2
_LEAST_BYTES = 32 * 1024 * 1024
_BUSY = 0.8
# Up to this mean size the probe's rate of whole small files is the ceiling, above it the
# sequential one: the size at which seeking and streaming take an arm about the same time.
_SMALL_FILE_BYTES = 1024 * 1024
# Of what the source gave in a probe: from the first on it was the source that bound, and below the
# second it was not.
_REACHED, _FAR_OFF = 0.8, 0.5


@dataclass(frozen=True, slots=True)
class Bound:
    """``by`` is ``processors``, ``source``, ``target`` or, where it may be either, ``storage``.

    The ceiling is the source's, None where none is known.
    """

    by: str
    bytes_per_s: float
    busy_cores: float
    cores: int
    ceiling_bytes_per_s: float | None
    ceiling_from: str | None

    def words(self) -> str:
        """Return it as a sentence for people; a ceiling is only named where it was measured."""
        rate = format_rate(self.bytes_per_s)
        busy = f"{self.busy_cores:.1f} of {self.cores} cores busy"
        if self.by == "processors":
            return f"bound by the processors: read {rate} with {busy}"
        if self.by == "target":
            return f"bound by the target: it took {rate}, and the source can give more; {busy}"
        if self.by == "storage":
            return f"bound by the source or the target: {rate} with {busy}"
        if self.ceiling_bytes_per_s is not None:
            ceiling = format_rate(self.ceiling_bytes_per_s)
            return (
                f"bound by the source: read {rate} of {ceiling} that it gave in the probe "
                f"{self.ceiling_from}; {busy}"
            )
        return (
            f"bound by the source: read {rate} with {busy}; what it could give is not known "
            "(hostprep probe measures it)"
        )


def bound_of(result: StageResult, plan: StagePlan, cores: int) -> Bound | None:
    """Judge a finished run; None where too little was copied or memory answered."""
    seconds = result.phases.get("copy", 0.0)
    if seconds < _LEAST_SECONDS or result.copied_bytes < _LEAST_BYTES or result.cpu_seconds is None:
        return None
    rate, busy = result.copied_bytes / seconds, result.cpu_seconds / seconds
    if busy >= _BUSY * min(cores, plan.reading.readers):
        return Bound("processors", rate, busy, cores, None, None)
    if plan.sample.is_warm:
        # Memory to memory it is neither: other programs took the processors.
        return None if plan.in_ram else Bound("target", rate, busy, cores, None, None)
    ceiling, name = None, None
    found = _latest_probe(plan.storage)
    if found is not None:
        small = result.copied_bytes / max(1, result.copied_files) < _SMALL_FILE_BYTES
        figures = found.get("small_files" if small else "sequential") or {}
        measured = figures.get("bytes_per_s")
        # Faster than the probe's cold reads: then memory answered, and it was no ceiling.
        if measured is not None and measured >= rate:
            ceiling, name = float(measured), str(found.get("id"))
    by = "source" if plan.in_ram else _slower_side(rate, ceiling, result, plan)
    return Bound(by, rate, busy, cores, ceiling, name)


def _slower_side(rate: float, ceiling: float | None, result: StageResult, plan: StagePlan) -> str:
    """Tell a disk or network target from the source, by what the source is known to give."""
    if ceiling is not None and rate >= _REACHED * ceiling:
        return "source"
    # By the look at the source, a single reader of it would have been ahead of the copy.
    files_per_s = result.copied_files / result.phases["copy"]
    small = result.copied_bytes / max(1, result.copied_files) < SAMPLED_BYTES
    if small and plan.sample.seconds is not None and files_per_s * plan.sample.seconds < 1:
        return "target"
    return "target" if ceiling is not None and rate < _FAR_OFF * ceiling else "storage"


def _latest_probe(storage: PathStorage) -> dict[str, Any] | None:
    """Return the last valid probe of the same mounted file system."""
    found = []
    for state in readable_state_dirs():
        for path in (state / "probes").glob("*.json"):
            try:
                document = json.loads(path.read_bytes())
                settings = document["settings"]
                same = (settings["mounted"], settings["fstype"]) == (
                    storage.mount.source,
                    storage.fstype,
                )
                if same and document["valid"]:
                    found.append((document["time"], document))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not a probe that one could rely on
    return max(found, key=lambda item: str(item[0]))[1] if found else None
