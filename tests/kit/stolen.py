"""Whether this machine keeps time: a virtual one may not get its processors from its host."""

from __future__ import annotations

import os
import time

# One byte to another process and back takes 10 to 80 us, beside other programs too. Where
# the host gives its processors to others it is many hundreds, and sleeping half a millisecond two.
_MOST_SECONDS = 250e-6
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 300.0
# For so long one look is enough: as long as passes before a test that failed is tried once more, so
# that each try has one of its own.
_STANDS_SECONDS = 15.0

# Of all processors' time: with that much of it taken by others no figure of a short time is right.
MUCH_SHARE = 0.25

_waited = 0.0
_kept_time_at: float | None = None


def round_trip_seconds(for_seconds: float = _LOOK_SECONDS) -> float:
    """Return the mean time of one byte to another process and back."""
    there, back = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(there[1])
        while os.read(there[0], 1):
            os.write(back[1], b"x")
        os._exit(0)
    os.close(there[0])
    os.close(back[1])
    began, trips = time.monotonic(), 0
    try:
        while (took := time.monotonic() - began) < for_seconds:
            os.write(there[1], b"x")
            os.read(back[0], 1)
            trips += 1
    finally:
        os.close(there[1])
        os.close(back[0])
        os.waitpid(child, 0)
    return took / trips


def why_no_time_is_kept() -> str | None:
    """Wait until the machine keeps time, five minutes at most in all tests together.

    Returns None once it does, else what is wrong with it. That it did stands for some seconds.
    """
    global _waited, _kept_time_at
    if _kept_time_at is not None and time.monotonic() - _kept_time_at < _STANDS_SECONDS:
        return None
    while (seconds := round_trip_seconds()) > _MOST_SECONDS:
        if _waited >= _PATIENCE_SECONDS:
            return (
                "this machine does not get its processors: a byte to another process and back"
                f" takes {1e6 * seconds:.0f} us"
            )
        time.sleep(5)
        _waited += 5
    _kept_time_at = time.monotonic()
    return None


class Others:
    """How much of the processors' time others than this process and its children take, from now.

    Others are all that the kernel counts as busy, its own threads among them, and what the host of
    a virtual machine took. Of children what they have taken is known once they were waited for.
    """

    def __init__(self) -> None:
        self._before = self._now()

    def share(self) -> float:
        """Return their share of what all processors could do since then, 0 to 1."""
        at, by_all, by_us = (
            after - before for after, before in zip(self._now(), self._before, strict=True)
        )
        return max(0.0, by_all - by_us) / (at * (os.cpu_count() or 1))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        with open("/proc/stat", encoding="ascii") as stat:
            user, nice, system, _, _, irq, softirq, stolen, *_ = map(
                int, stat.readline().split()[1:]
            )
        busy = user + nice + system + irq + softirq + stolen
        ours = os.times()
        by_us = ours.user + ours.system + ours.children_user + ours.children_system
        return time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), by_us
