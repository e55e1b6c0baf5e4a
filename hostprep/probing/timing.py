"""The time that a probe was given: what is left of it, and what each phase may take."""

from __future__ import annotations

import time

from hostprep.units import format_seconds

# Storage that answers a few requests a second does so by fits and starts.
CAUTION = 1.25
# So much too late is none: a pass is not left out for it.
LATE_SECONDS = 0.3
# However little time there is, the elastic phases have this share of what is theirs.
_LEAST_SQUEEZE = 0.2


def only(seconds: float) -> str:
    """Return the words for how much time there was, where that was too little."""
    return f"there was only {format_seconds(max(0.0, seconds))} for it"


class Clock:
    """Counts down from ``seconds``, of which ``spent`` are over already.

    ``fixed`` seconds are for what takes so long however little time there is. Elastic phases, whose
    shares are ``elastic`` together, are the shorter where they would take more than what is beyond.
    """

    def __init__(self, seconds: float, spent: float, *, fixed: float, elastic: float) -> None:
        self.begun = time.monotonic() - spent
        self._seconds = seconds
        room = seconds - spent - fixed
        self._squeeze = min(1.0, max(_LEAST_SQUEEZE, room / (elastic * seconds)))

    def left(self, keep: float = 0.0) -> float:
        """Return the seconds that are left if ``keep`` of them are for others; never below 0."""
        return max(0.0, self.begun + self._seconds - keep - time.monotonic())

    def part(self, share: float, *, elastic: bool = False, keep: float = 0.0) -> float:
        """Return a share of the time, in seconds, or what is left where that is less."""
        wanted = self._seconds * share * (self._squeeze if elastic else 1.0)
        return min(wanted, self.left(keep))

    def by(self, keep: float) -> float:
        """Return when only ``keep`` seconds will be left, by the monotonic clock."""
        return self.begun + self._seconds - keep

    def passed(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self.begun
