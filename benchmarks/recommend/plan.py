"""How much is measured: everything, or less if there is little time; and how long that takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

SWEEP = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
FINALISTS = 3
# For estimating a run: the time budget of a recommendation and its start, and what a process takes
# besides its window: importing torch, its workers, discarded batches, a second of quiet.
_RECOMMENDATION_SECONDS = 53.0
_BESIDE_A_WINDOW_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured of each workload. Anything below the default is noted beside the figures.

    ``tries`` is how often a measurement that other programs disturbed is made, ``quiet_seconds``
    the longest wait for these before each.
    """

    workers: tuple[int, ...] = SWEEP
    passes: int = 2
    final_rounds: int = 5
    window_seconds: float = 4.0
    tries: int = 3
    quiet_seconds: float = 10.0

    def measurements(self, missing: int) -> int:
        """Return about how many there are if ``missing`` points are still to be measured."""
        # The recommended number may be one of the best, or not.
        return missing * self.passes + min(FINALISTS + 1, missing) * self.final_rounds

    def estimated_seconds(self, missing: int) -> float:
        """Return about how long a workload takes if nothing disturbs it."""
        each = _BESIDE_A_WINDOW_SECONDS + self.window_seconds
        return _RECOMMENDATION_SECONDS + each * self.measurements(missing)


FULL = Plan()


@dataclass(slots=True)
class Progress:
    """Reports the progress of a workload, by what its measurements took so far."""

    say: Callable[[str], None]
    planned: int
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def tell(self, text: str) -> None:
        """Report what was measured, and about how long the rest takes."""
        self.done += 1
        each = (time.monotonic() - self.began) / self.done
        left = each * max(0, self.planned - self.done)
        self.say(f"  {text} ({self.done} of about {self.planned}, {left:.0f} s left)")


def processors() -> dict[str, int]:
    """Return the processor counts of this machine that the frameworks' rules begin with."""
    return {"processors": os.cpu_count() or 1, "affinity": len(os.sched_getaffinity(0))}


def rules(processors: int, affinity: int) -> dict[str, int]:
    """Return what the frameworks' own rules give on such a machine, with one rank and no GPU.

    Each is the expression in the framework's source; Ultralytics with its default of 8 workers,
    nnU-Net with its default of 12 for unknown host names.
    """
    return {
        "PyTorch's warning": affinity,
        "Lightning": max(1, affinity - 1),
        "Ultralytics": min(processors, 8),
        "fastai": min(16, processors),
        "nnU-Net": min(12, processors),
        "a constant 4": 4,
        "a constant 8": 8,
    }
