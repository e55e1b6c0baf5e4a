"""What torch's own iterator hands over, in the measuring child: from whom, when, how fast.

Between it and the training there may be a DataLoader class of somebody's own, whose part is known
only where this one is.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hostprep.loading.child import processes
from hostprep.loading.child.batches import fingerprint, measure_batch
from hostprep.units import GIB, format_count

_OPENING_BATCHES = 2  # of each worker: these tell whether it gives what another one gives
# A loader that wants more than these for its first batch may want all, of an order without end.
_MOST_FOR_ONE = 64
_MOST_BYTES_FOR_ONE = GIB


class NotThisWay(Exception):
    """What takes the batches cannot be timed over the iterator that was set; says why."""


class Stamped(NamedTuple):
    """A batch as a worker hands it over: by whom, and when it was made (``time.perf_counter``)."""

    worker: int
    at: float
    batch: Any


class StampingCollate:
    """A collate function in a worker that tells who made a batch, and when.

    The clock of ``time.perf_counter`` is the same in all processes of a Linux machine.
    """

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: Any) -> Stamped:
        from torch.utils.data import get_worker_info

        batch = self.collate(samples)
        worker = get_worker_info()
        return Stamped(0 if worker is None else worker.id, time.perf_counter(), batch)


class Delivery:
    """Passes on what torch's iterators give, without its stamps, and keeps count.

    ``came`` is the batches that it passed on, ``last`` the last of these, ``sizes`` the samples in
    each, where ``size_of`` counts them. ``made`` has, by worker, when each of its batches was made.
    ``workers`` are those of the last iterator, started at ``started_at``, of ``iterators`` so far.
    Where it is ``timed``, ``seconds`` and ``cpu_seconds`` are what making batches, or waiting for
    them, took the thread that asked, and ``delay_seconds`` how long it waited for a processor then.
    """

    def __init__(
        self,
        *,
        size_of: Callable[[Any], int] | None = None,
        shared_out: bool = True,
        timed: bool = False,
        goes_on: Callable[[], bool] = lambda: False,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        """``shared_out``: no two workers are given the same. ``on_started`` hears of each iterator.

        ``size_of`` tells how many samples a batch holds, where nothing else does. ``goes_on`` tells
        whether there are samples to ask for still, so that it is no end where an iterator ends.
        """
        self.came = 0
        self.last: Any = None
        self.sizes: list[int] = []
        self.made: dict[int, list[float]] = {}
        self.seconds = self.cpu_seconds = self.delay_seconds = 0.0
        self.workers: list[Any] = []
        self.started_at = 0.0
        self.iterators = 0
        self._size_of = size_of
        self._timed = timed
        self._wary = timed
        self._most = _MOST_FOR_ONE
        self._goes_on = goes_on
        self._on_started = on_started
        self._openings: dict[int, list[int | None]] | None = None if shared_out else {}

    def of(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Return the iterator of an epoch with the counting around it."""
        self.workers = list(getattr(iterator, "_workers", ()))
        self.started_at = time.perf_counter()
        self.iterators += 1
        self._on_started()
        return _Counted(iterator, self)

    def allow_any_number(self) -> None:
        """Hear that whoever takes the batches has made something of them."""
        self._wary = False

    def take(self, iterator: Iterator[Any]) -> Any:
        """Return the next batch of ``iterator``; ``StopIteration`` where there is none.

        Raises ``NotThisWay`` where it is ``timed`` and too many are taken before anything is made,
        ``RuntimeError`` where the samples raise ``StopIteration`` themselves.
        """
        if self._wary and self.came > self._most:
            raise NotThisWay(f"it wants more than {format_count(self.came, 'batch')} to make one")
        wall = cpu = delay = 0.0
        if self._timed:
            wall, cpu = time.perf_counter(), time.thread_time()
            delay = processes.thread_delay_seconds()
        try:
            batch = next(iterator)
        except StopIteration as error:
            if not self._goes_on():
                raise
            raise RuntimeError(
                "a StopIteration, which ends an epoch without a word, in a training, too"
            ) from error
        except RuntimeError:
            # Of workers that are children of a forkserver, torch never hears what ended them.
            processes.look_for_killed(getattr(iterator, "_workers", ()))
            raise
        if self._timed:
            self.delay_seconds += processes.thread_delay_seconds() - delay
            self.seconds += time.perf_counter() - wall
            self.cpu_seconds += time.thread_time() - cpu
        self.came += 1
        if isinstance(batch, Stamped):
            batch = self._unstamped(batch)
        if self._size_of is not None:
            self.sizes.append(self._size_of(batch))
        if self._wary and self.came == 1:
            self._most = min(_MOST_FOR_ONE, _MOST_BYTES_FOR_ONE // (1 + measure_batch(batch)[0]))
        self.last = batch
        return batch

    def _unstamped(self, stamped: Stamped) -> Any:
        made = self.made.setdefault(stamped.worker, [])
        made.append(stamped.at)
        if self._openings is not None and len(made) <= _OPENING_BATCHES:
            self._openings.setdefault(stamped.worker, []).append(fingerprint(stamped.batch))
        return stamped.batch

    def duplicate_workers(self) -> int:
        """Return how many workers began with the same batches as another one."""
        openings = self._telling()
        return len(openings) - len(set(openings))

    def untold_workers(self) -> int:
        """Return how many workers began with batches that do not tell theirs from another's."""
        return len(self._openings or {}) - len(self._telling())

    def _telling(self) -> list[tuple[int | None, ...]]:
        """Return the openings that tell: not those all alike, nor what cannot be looked into."""
        return [
            tuple(some)
            for some in (self._openings or {}).values()
            if len(set(some)) == _OPENING_BATCHES and None not in some
        ]

    def made_a_second(self, rounds: int) -> float:
        """Return the batches a second that the workers made in their last ``rounds`` each.

        Workers take turns, so all make as many: their number, over the mean time between two
        batches of the same worker. What a worker waits for its turn is in it. Batches are made some
        rounds before they are taken, so this is how it was then.
        """
        stamps = [made[-1 - rounds :] for made in self.made.values()]
        between = [
            later - earlier for some in stamps for earlier, later in itertools.pairwise(some)
        ]
        return len(stamps) / statistics.fmean(between)


class _Counted:
    """Torch's iterator of one epoch, of which ``delivery`` takes."""

    def __init__(self, iterator: Iterator[Any], delivery: Delivery) -> None:
        self._inner = iterator
        self._delivery = delivery

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> Any:
        return self._delivery.take(self._inner)

    def __getattr__(self, name: str) -> Any:
        # What a class of somebody's own asks torch's iterator for. Not its length: a list of what
        # has no end would be given room for all of it at once.
        return getattr(self._inner, name)
