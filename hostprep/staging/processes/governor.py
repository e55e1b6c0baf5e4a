"""Adapts the number of readers while they read: where more do not help, fewer do."""

from __future__ import annotations

from dataclasses import field

from hostprep.dataclass import dataclass

# Long enough that the differences between files even out, short against a run worth adapting.
_FIRST_SECONDS = 3.0
_WINDOW_SECONDS = 1.5
# What a reader costs in memory and seeks is worth giving up for less than this loss of rate.
_TOLERANCE = 0.05
# What a file costs beside its bytes, so that windows of small and of large files compare.
_BYTES_A_FILE = 16 * 1024


@dataclass(slots=True)
class Governor:
    """Halves the readers as long as the rate stays the same, down to one stream.

    After each change a window is let pass, then the next is measured. The first number of readers
    that loses more than 5 % is taken back, and that is the end of it. So a source that was taken
    for a flash disk and has an arm ends with one stream, and one that answers late keeps all.
    """

    readers: int
    _started: float | None = None
    _rate: float | None = None
    _settling: bool = True
    _window: tuple[float, float] | None = None
    _before: int = 0
    _done: bool = field(default=False)

    def update(self, now: float, files: int, size_bytes: int) -> int:
        """Return how many readers there should be, told the time (s) and the work done so far."""
        work = float(size_bytes + files * _BYTES_A_FILE)
        if self._done or self.readers <= 1:
            return self.readers
        if self._started is None:
            self._started = now
        if self._window is None:
            if now - self._started >= _FIRST_SECONDS - _WINDOW_SECONDS:
                self._window = (now, work)
                self._settling = False
            return self.readers
        began, before = self._window
        if now - began < _WINDOW_SECONDS:
            return self.readers
        self._window = (now, work)
        if self._settling:
            self._settling = False
            return self.readers
        self._judge((work - before) / (now - began))
        return self.readers

    def _judge(self, rate: float) -> None:
        if self._rate is not None and rate < self._rate * (1 - _TOLERANCE):
            self.readers = self._before
            self._done = True
            return
        self._before = self.readers
        self._rate = rate if self._rate is None else max(rate, self._rate)
        self.readers = max(1, self.readers // 2)
        self._settling = True
