"""What limited a ``stage`` run: processors, programs that use them, the source or the target."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hostprep.dataclass import dataclass
from hostprep.staging.ceiling import ceiling_of
from hostprep.staging.source.reading import choose_reading
from hostprep.staging.source.sampling import SAMPLED_BYTES
from hostprep.units import format_count, format_rate

if TYPE_CHECKING:
    from hostprep.staging.model import StageResult
    from hostprep.staging.planning import StagePlan

# A shorter run says nothing: starting and ending weigh as much as reading.
_LEAST_SECONDS = 0.2
_LEAST_BYTES = 32 * 1024 * 1024
_BUSY = 0.8
# A quota limited a run if it ended this share of its periods early and the run used at least this
# share of the quota: in a container the quota is shared with other programs.
_THROTTLED, _OWN_SHARE = 0.5, 0.25
# Shares of the rate that a probe of the source reached: from the first on, the source was the
# limit; below the second, it was not.
_REACHED, _FAR_OFF = 0.8, 0.5


@dataclass(frozen=True, slots=True)
class Bound:
    """What limited a run (``by``), and the evidence.

    That is ``processors`` (it used all that it may use), ``quota`` (its control group's, of
    processor time), ``other programs`` (which used the processors), ``readers`` (fewer were asked
    for than it would use), ``source``, ``target`` or, if it may be either, ``storage``.

    ``cores`` is how many may be used, a fraction under a quota; ``busy_cores`` of them were, and
    ``waiting_cores`` more would have been if they had been free (None if the kernel does not
    tell). ``throttled_share`` of the quota's periods were ended early. ``readers`` were at work,
    and ``own_readers`` would have been chosen. The ceiling is the source's, None if none is known.
    """

    by: str
    bytes_per_s: float
    busy_cores: float
    cores: float
    ceiling_bytes_per_s: float | None = None
    ceiling_from: str | None = None
    waiting_cores: float | None = None
    throttled_share: float | None = None
    readers: int | None = None
    own_readers: int | None = None

    def words(self) -> str:
        """Return a sentence for people; it names a ceiling only if one was measured."""
        rate = format_rate(self.bytes_per_s)
        noun = "core" if self.cores == 1 else "cores"
        busy = f"{self.busy_cores:.1f} of {self.cores:g} {noun} busy"
        match self.by:
            case "processors":
                return f"bound by the processors: read {rate} with {busy}"
            case "quota":
                return (
                    f"bound by the control group's quota of processor time: read {rate} with {busy}"
                    f", throttled in {self.throttled_share or 0:.0%} of the quota's periods"
                )
            case "other programs":
                return (
                    f"bound by other programs that use the processors: read {rate} with {busy},"
                    f" while waiting for {self.waiting_cores or 0:.1f} more"
                )
            case "readers":
                readers = format_count(self.readers or 0, "reader")
                return (
                    f"bound by the request for {readers}: read {rate} with {busy}; hostprep"
                    f" itself would use {self.own_readers}"
                )
            case "target":
                return (
                    f"bound by the target: it accepted {rate}, and the source can deliver more;"
                    f" {busy}"
                )
            case "storage":
                return f"bound by the source or the target: {rate} with {busy}"
        if self.ceiling_bytes_per_s is not None:
            ceiling = format_rate(self.ceiling_bytes_per_s)
            return (
                f"bound by the source: read {rate} of {ceiling} that it gave in probe "
                f"{self.ceiling_from}; {busy}"
            )
        return (
            f"bound by the source: read {rate} with {busy}; how much it could deliver is not"
            " known (hostprep probe measures it)"
        )


def bound_of(result: StageResult, plan: StagePlan, cores: float) -> Bound | None:
    """Judge a finished run; None if too little was copied, or memory was copied to memory.

    ``cores`` is how many may be used (see ``host.cpu.usable_cpus``).
    """
    seconds, processors = result.phases.get("copy", 0.0), result.processors
    if seconds < _LEAST_SECONDS or result.copied_data_bytes < _LEAST_BYTES or processors is None:
        return None
    rate, busy = result.copied_data_bytes / seconds, processors.spent_seconds / seconds
    waited = processors.waited_seconds
    waiting = None if waited is None else waited / seconds
    readers = result.readers or plan.reading.readers
    own_readers = _own_readers(plan, cores)

    def found(by: str, ceiling: float | None = None, name: str | None = None) -> Bound:
        return Bound(
            by=by,
            bytes_per_s=rate,
            busy_cores=busy,
            cores=int(cores) if cores == int(cores) else cores,
            ceiling_bytes_per_s=ceiling,
            ceiling_from=name,
            waiting_cores=waiting,
            throttled_share=processors.throttled_share,
            readers=readers,
            own_readers=own_readers,
        )

    if (processors.throttled_share or 0) >= _THROTTLED and busy >= _OWN_SHARE * cores:
        return found("quota")
    # If more readers helped, the data did not come from the page cache.
    cached = plan.sample.is_warm and readers <= plan.reading.readers
    usable = min(cores, readers)
    too_few = readers < own_readers
    if busy >= _BUSY * usable:
        return found("readers" if too_few and readers < cores else "processors")
    # Threads that wake up together also wait for each other, and then leave processors idle.
    taken = (processors.busy_share or 0) >= _BUSY
    if taken and waiting is not None and busy + waiting >= _BUSY * usable:
        return found("other programs")
    if too_few and not cached:
        return found("readers")
    if cached:
        # From memory to memory, neither storage is the limit.
        return None if plan.in_ram else found("target")
    mean_bytes = result.copied_data_bytes / max(1, result.copied_files)
    ceiling, name = ceiling_of(plan.storage, mean_bytes, rate)
    by = "source" if plan.in_ram else _slower_side(rate, ceiling, result, plan)
    return found(by, ceiling, name)


def _own_readers(plan: StagePlan, cores: float) -> int:
    """Return how many readers would be chosen for the source if none were asked for."""
    if plan.request.readers is None and not plan.request.gentle:
        return plan.reading.readers
    return choose_reading(
        plan.storage.storage_class,
        plan.sample,
        cpus=math.ceil(cores),
        files=plan.files.copied.files,
        size_bytes=plan.files.copied.bytes,
        available_bytes=None,
    ).readers


def _slower_side(rate: float, ceiling: float | None, result: StageResult, plan: StagePlan) -> str:
    """Tell a slow disk or network target from a slow source, by what is known of the source."""
    if ceiling is not None and rate >= _REACHED * ceiling:
        return "source"
    # In the sample of the source, even a single reader would have been faster than this copy.
    files_per_s = result.copied_files / result.phases["copy"]
    small = result.copied_data_bytes / max(1, result.copied_files) < SAMPLED_BYTES
    if small and plan.sample.seconds is not None and files_per_s * plan.sample.seconds < 1:
        return "target"
    return "target" if ceiling is not None and rate < _FAR_OFF * ceiling else "storage"
