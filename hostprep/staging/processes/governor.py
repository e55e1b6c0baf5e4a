"""Adapts how many readers are at work: fewer where more do not help, more where they do."""

from __future__ import annotations

# Long enough that the differences between files even out, short against a run worth adapting.
_START_SECONDS = 1.5
_WINDOW_SECONDS = 1.5
# A rate says little of fewer parts than this: then a window lasts longer, up to so many times.
_LEAST_PARTS = 40
_LONGER = 3
# After a change, until the source has taken it in.
_SETTLE_SECONDS = 0.5
# What a reader costs in memory and seeks is worth giving up for less than this loss of rate.
_TOLERANCE = 0.05
# With a loss of up to this, which may be chance, still fewer are tried before that is given up.
_DOUBT = 0.2
# The weight of the latest window in the rate, which is evened out.
_EVEN_OUT = 0.3
# A rate so many times as high or as low as it was is of a source that has changed.
_CHANGED = 1.5
# Until others are tried next, twice as long after each try that gained nothing.
_PAUSE_SECONDS, _LONGEST_SECONDS = 10.0, 80.0
# What a try lost is made up for by so many times as long without one: 5 % at most go to tries.
_MAKE_UP = 20
# What a file costs beside its bytes, so that windows of small and of large files compare.
_BYTES_A_PART = 16 * 1024


class Governor:
    """Tries half as many readers, and twice as many, and keeps what does not lose, or gains.

    It begins with all of them and halves as long as the rate stays the same (within 5 %), down to
    one stream: so a source that was taken for a flash disk and has an arm ends with one, and one
    that answers late keeps all. From then on fewer and more are tried after 10 s, and where that
    gains nothing after ever longer: a source may have been slow only because others used it.
    Where the rate changes by half they are tried at once.

    With ``most`` it tries more first, up to that, and never fewer than it began with: so a source
    that was taken for memory and is not gets the readers that it lacks.

    ``readers`` are to be at work now, ``settled`` is how many were found best so far. After the
    first try, no more than a twentieth of the time is lost to them.
    """

    def __init__(self, readers: int, most: int | None = None) -> None:
        self.readers = self.settled = readers
        self._least, self._most = (1, readers) if most is None else (readers, most)
        # -1 while fewer are tried, 1 while more are, 0 while nothing is tried.
        self._direction = 0
        # What is to be tried as soon as the present rate is known.
        self._wanted: tuple[int, ...] = (-1, 1)
        # Where the present window began: time, parts and work; None until a change has settled.
        self._window: tuple[float, int, float] | None = None
        self._changed: float | None = None
        # The rate of the settled number, evened out, and what it was when that was settled on.
        self._rate = 0.0
        self._known: float | None = None
        # The best rate of this source so far: many small losses must not add up to a large one.
        self._best = 0.0
        # When the present try began, and the work by then; None once it is accounted for.
        self._tried: tuple[float, float] | None = None
        self._pause = _PAUSE_SECONDS
        # How long those that should rest took to end what they had, beyond what all take to settle.
        self._ending = 0.0
        # When others are tried next, and before when they are not, whatever happens.
        self._due = self._earliest = 0.0

    def update(self, now: float, parts: int, size_bytes: int, at_work: int) -> int:
        """Return how many readers there should be from now on.

        ``now`` is the time (s), ``parts`` the files and pieces of large files that were copied so
        far, and ``size_bytes`` their bytes. ``at_work`` readers have a task: those that should rest
        end what they have first.
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
        if work == work_before:  # it does not answer at all, to however many
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
        """Put others off by what a try that failed has lost, now that all of it is over."""
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
        """Have half or twice as many at work; False where there are no other numbers."""
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
