"""Adapts the number of readers: fewer if more do not help, more if they do."""

from __future__ import annotations

# Long enough to even out differences between files, short compared with a run worth adapting.
_START_SECONDS = 1.5
_WINDOW_SECONDS = 1.5
# Fewer parts than this say little about a rate, so the window is extended, up to this factor.
_LEAST_PARTS = 40
_LONGER = 3
# Time for the source to adjust after a change.
_SETTLE_SECONDS = 0.5
# If the rate falls by less than this, the memory and seeks of more readers are not worth it.
_TOLERANCE = 0.05
# After a loss of up to this, which may be chance, still fewer readers are tried before giving up.
_DOUBT = 0.2
# The weight of the latest window in the smoothed rate.
_EVEN_OUT = 0.3
# If the rate rises or falls by this factor, the source has changed.
_CHANGED = 1.5
# Time until the next try, doubled after each one that gained nothing.
_PAUSE_SECONDS, _LONGEST_SECONDS = 10.0, 80.0
# After a try that lost time, none is made for this many times as long: tries cost at most 5 %.
_MAKE_UP = 20
# What a file costs apart from its bytes, so that windows of small and large files compare.
_BYTES_A_PART = 16 * 1024


class Governor:
    """Tries half as many readers, and twice as many; keeps fewer that lose nothing, more that gain.

    It begins with all of them and halves as long as the rate stays the same (within 5 %), down to
    one: so a source that was taken for a flash disk but has an arm ends with one reader, and one
    with slow answers keeps all. After that, fewer and more are tried after 10 s, and if that gains
    nothing, after longer and longer times: a source may have been slow only because others used it.
    If the rate changes by half, they are tried at once.

    With ``most`` it tries more first, up to that number, and never fewer than it began with: so a
    source that was wrongly taken for memory gets the readers that it lacks.

    ``readers`` should be at work now; ``settled`` is the number found best so far. After the first
    try, tries cost no more than a twentieth of the time.
    """

    def __init__(self, readers: int, most: int | None = None) -> None:
        self.readers = self.settled = readers
        self._least, self._most = (1, readers) if most is None else (readers, most)
        # -1 while fewer are tried, 1 while more are, 0 while nothing is tried.
        self._direction = 0
        # What to try as soon as the present rate is known.
        self._wanted: tuple[int, ...] = (-1, 1)
        # The start of the present window: time, parts and work; None until a change has settled.
        self._window: tuple[float, int, float] | None = None
        self._changed: float | None = None
        # The smoothed rate of the settled number, and the rate when that number was settled on.
        self._rate = 0.0
        self._known: float | None = None
        # The best rate of this source so far, so that many small losses do not add up.
        self._best = 0.0
        # The start of the present try, and the work by then; None once it is accounted for.
        self._tried: tuple[float, float] | None = None
        self._pause = _PAUSE_SECONDS
        # How long readers that should rest took to finish, beyond the time that all take to settle.
        self._ending = 0.0
        # When the next try is due, and the time before which none is made in any case.
        self._due = self._earliest = 0.0

    def update(self, now: float, parts: int, size_bytes: int, at_work: int) -> int:
        """Return how many readers there should be from now on.

        ``now`` is the time (s), ``parts`` the files and pieces of large files that were copied so
        far, and ``size_bytes`` their bytes. ``at_work`` readers have a task: those that should rest
        finish theirs first.
        """
        if self._least == self._most:
            return self.readers
        work = float(size_bytes + parts * _BYTES_A_PART)
        if self._window is None:
            if self._is_settled(now, at_work):
                self._account(now, work)
                self._window = (now, parts, work)
            return self.readers
        began, parts_before, work_before = self._window
        seconds = now - began
        if seconds < _WINDOW_SECONDS:
            return self.readers
        if work == work_before:  # the source does not answer at all, to any number of readers
            self._window = (now, parts, work)
        elif parts - parts_before >= _LEAST_PARTS or seconds >= _LONGER * _WINDOW_SECONDS:
            self._window = (now, parts, work)
            self._judge((work - work_before) / seconds, now, work)
        return self.readers

    def _is_settled(self, now: float, at_work: int) -> bool:
        if self._changed is None:
            self._changed = now + _START_SECONDS - _SETTLE_SECONDS
        seconds = now - self._changed
        if seconds < _SETTLE_SECONDS or (self.readers < self._most and at_work > self.readers):
            return False
        self._ending = seconds - _SETTLE_SECONDS
        return True

    def _account(self, now: float, work: float) -> None:
        """Delay the next try by what a failed one has lost, now that it is completely over."""
        if self._direction == 0 and self._tried is not None:
            began, work_before = self._tried
            lost = (now - began) - (work - work_before) / self._rate
            self._earliest = max(now, self._earliest) + _MAKE_UP * lost
            self._tried = None

    def _judge(self, rate: float, now: float, work: float) -> None:
        if self._direction == 0:
            self._watch(rate, now, work)
            return
        if self._direction > 0:
            kept = go_on = rate > self._rate * (1 + _TOLERANCE)
        else:
            kept = rate > self._best * (1 - _TOLERANCE)
            go_on = rate > self._best * (1 - _DOUBT)
        if kept:
            self.settled, self._known, self._wanted, self._tried = self.readers, None, (), None
            self._rate, self._best = rate, max(rate, self._best)
            self._pause = _PAUSE_SECONDS
        if go_on and self._try(self._direction, now, work):
            return
        self._direction = 0
        self._due = now + max(self._pause, _MAKE_UP * self._ending)
        if self.readers != self.settled:
            self._pause = min(2 * self._pause, _LONGEST_SECONDS)
            self._set(self.settled, now)

    def _watch(self, rate: float, now: float, work: float) -> None:
        if self._known is None:
            self._known = self._rate = rate
        self._rate += _EVEN_OUT * (rate - self._rate)
        self._best = max(self._rate, self._best)
        if not self._wanted and now >= self._earliest:
            if not 1 / _CHANGED < self._rate / self._known < _CHANGED:
                self._known = self._rate = self._best = rate
                self._pause, self._wanted = _PAUSE_SECONDS, (-1, 1)
            elif now >= self._due:
                self._wanted = (-1, 1)
        while self._wanted:
            direction, *later = self._wanted
            self._wanted = tuple(later)
            if self._try(direction, now, work):
                return

    def _try(self, direction: int, now: float, work: float) -> bool:
        """Put half or twice as many to work; return False if the number stays the same."""
        fewer = max(self.readers // 2, self._least)
        more = min(2 * self.readers, self._most)
        count = fewer if direction < 0 else more
        if count == self.readers:
            return False
        self._direction = direction
        self._tried = self._tried or (now, work)
        self._set(count, now)
        return True

    def _set(self, readers: int, now: float) -> None:
        self.readers, self._changed, self._window = readers, now, None
