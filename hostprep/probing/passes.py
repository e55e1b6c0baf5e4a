"""fio's passes over one file: which of them there is time for, at what depth, in which order.

A pass ends when all that it has requested has arrived: 32 requests to storage that answers 8 a
second take 4 s beyond its time, and nothing cancels them, not even killing fio. So the passes that
read one at a time come first, and show how many at a time there is time for; the first of them is
the one with the smallest requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hostprep.dataclass import dataclass
from hostprep.probing import fio
from hostprep.probing.layout import Layout
from hostprep.probing.model import (
    DEPTHS,
    RANDOM_BLOCK_BYTES,
    RANDOM_READS,
    SEQUENTIAL_BLOCK_BYTES,
    SEQUENTIAL_READS,
    Fewer,
    FioRun,
)
from hostprep.probing.observer import Observer
from hostprep.probing.timing import CAUTION, LATE_SECONDS, only
from hostprep.units import format_bytes, format_number, format_seconds

LEAST_SECONDS = 0.3
START_SECONDS = 0.45  # what fio takes besides its reading
_LEAST_DEPTH = 4
# How late a pass may end before it is given up.
_PATIENCE_SECONDS = 2.0
_KINDS = (
    ("randread", RANDOM_BLOCK_BYTES, RANDOM_READS),
    ("read", SEQUENTIAL_BLOCK_BYTES, SEQUENTIAL_READS),
)


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass as it is wanted: ``of`` is the rate that it is about."""

    pattern: str
    block_bytes: int
    of: str
    depth: int


@dataclass(frozen=True, slots=True)
class Planned:
    """How a pass is made: ``arriving_seconds`` is what its last requests take at its end."""

    depth: int
    seconds: float
    arriving_seconds: float

    @property
    def whole_seconds(self) -> float:
        """Return what the pass takes from fio's start to its end."""
        return START_SECONDS + self.seconds + self.arriving_seconds


@dataclass(frozen=True, slots=True)
class Read:
    """What all passes measured; ``note`` says that one did not end, which was then the last."""

    runs: tuple[FioRun, ...]
    note: str | None
    fewer: tuple[Fewer, ...]


WANTED = tuple(Pass(*kind, depth) for depth in DEPTHS for kind in _KINDS)


def arriving(depth: int, single: FioRun | None) -> float:
    """Return the seconds until ``depth`` requests have arrived, by the pass with one at a time.

    As if storage answered one after the other: nothing else is known of it yet. 0 if that pass was
    not made.
    """
    if single is None:
        return 0.0
    each = 1 / single.iops
    if single.latency is not None:
        each = max(each, single.latency.p50)  # a limit lets the first few through at once
    return CAUTION * depth * each


def allowance(left: float, later: Sequence[float]) -> float:
    """Return how much of the ``left`` seconds a pass may take.

    ``later`` is what the passes after it would like to take. What these do not need is available to
    this one; it has at least an equal share.
    """
    return max(left / (1 + len(later)), left - sum(later))


def plan(
    depth: int, single: FioRun | None, left: float, most: float, later: Sequence[float]
) -> Planned | None:
    """Return how to make a pass in the ``left`` seconds, None if it is to be left out.

    It reads for ``most`` at most; ``later`` as in ``allowance``.
    """
    allowed = allowance(left, later)
    if depth == 1:
        if left + LATE_SECONDS < START_SECONDS + LEAST_SECONDS:
            return None
        return Planned(1, min(most, max(LEAST_SECONDS, allowed - START_SECONDS)), 0.0)
    while depth >= _LEAST_DEPTH:
        last = arriving(depth, single)
        if START_SECONDS + LEAST_SECONDS + last <= allowed + LATE_SECONDS:
            seconds = min(most, max(LEAST_SECONDS, allowed - START_SECONDS - last))
            return Planned(depth, seconds, last)
        depth //= 2
    return None


class Passes:
    """Makes the passes over one file; ``left`` returns how much time there is for them."""

    def __init__(
        self,
        file: Layout,
        *,
        direct: bool,
        left: Callable[[], float],
        most_seconds: float,
        disks: Sequence[str],
        loading_seconds: float,
        observer: Observer,
        tell: Callable[[float], None],
    ) -> None:
        self._file = file
        self._direct = direct
        self._left = left
        self._most = most_seconds
        self._disks = disks
        self._loading = loading_seconds
        self._observer = observer
        self._tell = tell
        self._single: dict[str, FioRun] = {}

    def read(self) -> Read:
        """Let fio read, in large and small pieces, one and many at a time.

        A pass that does not end is the last one.
        """
        runs: list[FioRun] = []
        fewer: list[Fewer] = []
        note = None
        for number, wanted in enumerate(WANTED):
            left, single = self._left(), self._single.get(wanted.pattern)
            later = [self._wish(each) for each in WANTED[number + 1 :] if self._can(each, left)]
            planned = plan(wanted.depth, single, left, self._most, later)
            if planned is None or planned.depth != wanted.depth:
                depth = planned.depth if planned else None
                fewer.append(_fewer(wanted, depth, single, left, allowance(left, later)))
            if planned is None:
                continue
            try:
                run = self._make(wanted, planned)
            except fio.FioTooLate as error:
                note = f"{error.message.rstrip('.')}: {error.hint}"
                break
            runs.append(run)
            if wanted.depth == 1:
                self._single[wanted.pattern] = run
        return Read(tuple(_in_order(runs)), note, tuple(fewer))

    def _can(self, wanted: Pass, left: float) -> bool:
        """Return whether a later pass could be made, as far as is known, if it were the next."""
        single = self._single.get(wanted.pattern)
        return plan(wanted.depth, single, left, LEAST_SECONDS, ()) is not None

    def _wish(self, wanted: Pass) -> float:
        """Return what a later pass would like to take."""
        single = self._single.get(wanted.pattern)
        last = arriving(wanted.depth, single) if wanted.depth > 1 else 0.0
        return START_SECONDS + self._most + last

    def _make(self, wanted: Pass, planned: Planned) -> FioRun:
        words = f"{wanted.of} of {format_bytes(wanted.block_bytes)}, depth {planned.depth}"
        self._observer.phase(words, planned.seconds)
        job = fio.Job(
            self._file.opened,
            self._file.path,
            wanted.pattern,
            wanted.block_bytes,
            planned.depth,
            planned.seconds,
            self._file.size_bytes,
            self._direct,
        )
        return fio.measure(
            job,
            disks=self._disks,
            tell=self._tell,
            loading_seconds=self._loading,
            arriving_seconds=planned.arriving_seconds,
            within_seconds=max(self._left(), planned.whole_seconds) + _PATIENCE_SECONDS,
        )


def _fewer(
    wanted: Pass, depth: int | None, single: FioRun | None, left: float, allowed: float
) -> Fewer:
    """Return the note on a pass that is made in part, or not at all."""
    if wanted.depth == 1 or single is None:
        message = f"{wanted.of}, {wanted.depth} at a time, were left out: {only(left)}"
        return Fewer(wanted.of, wanted.depth, None, message)
    took = START_SECONDS + LEAST_SECONDS + arriving(wanted.depth, single)
    done = f"were only made {depth} at a time" if depth else "were only made one at a time"
    message = (
        f"{wanted.of} {done}: {wanted.depth} at a time need at least {format_seconds(took)}, going"
        f" by the {format_number(single.iops)} a second of one at a time, and {only(allowed)}"
    )
    return Fewer(wanted.of, wanted.depth, depth, message)


def _in_order(runs: Sequence[FioRun]) -> Iterator[FioRun]:
    """Yield the runs in display order: of each pattern the shallow one, then the deep one."""
    for pattern, _, _ in reversed(_KINDS):
        yield from (run for run in runs if run.pattern == pattern)
