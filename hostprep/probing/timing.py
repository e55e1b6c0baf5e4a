"""The time that a probe was given: what is left of it, and what each phase may take."""

from __future__ import annotations

import time

from hostprep.units import format_seconds

# Storage that answers a few requests a second does so irregularly.
CAUTION = 1.25
# Being late by this much does not count: no pass is left out for it.
LATE_SECONDS = 0.3
# However little time there is, the elastic phases get this share of their time.
_LEAST_SQUEEZE = 0.2


def only(seconds: float) -> str:
    """Return the words for how little time there was."""
    return f"there was only {format_seconds(max(0.0, seconds))} for it"


class Clock:
    """Counts down from ``seconds``, of which ``spent`` are over already.

    ``fixed`` seconds are for what takes the same time however little there is. Elastic phases, with
    the total share ``elastic``, are shortened if they would take more than the rest.
    """

    def __init__(self, seconds: float, spent: float, *, fixed: float, elastic: float) -> None:
        self.begun = time.monotonic() - spent
        self._seconds = seconds
        room = seconds - spent - fixed
        self._squeeze = min(1.0, max(_LEAST_SQUEEZE, room / (elastic * seconds)))

    def left(self, keep: float = 0.0) -> float:
        """Return the seconds that are left if ``keep`` of them are reserved; never below 0."""
        return max(0.0, self.begun + self._seconds - keep - time.monotonic())

    def part(self, share: float, *, elastic: bool = False, keep: float = 0.0) -> float:
        """Return a share of the time, in seconds, or what is left if that is less."""
        wanted = self._seconds * share * (self._squeeze if elastic else 1.0)
        return min(wanted, self.left(keep))

    def by(self, keep: float) -> float:
        """Return when only ``keep`` seconds will be left, by the monotonic clock."""
        return self.begun + self._seconds - keep

    def passed(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self.begun
