"""What torch's own iterator hands over, in the measuring child: from which worker, when, how fast.

A DataLoader class of the user's may stand between it and the training; the share of that class is
known only if torch's share is.
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

_OPENING_BATCHES = 2  # per worker: they tell whether it gives the same as another one
# A loader that takes more for its first batch may want to take all, and the order is endless.
_MOST_FOR_ONE = 64
_MOST_BYTES_FOR_ONE = GIB


class NotThisWay(Exception):
    """The consumer of the batches cannot be timed over the iterator that was set; says why."""


class Stamped(NamedTuple):
    """A batch as passed on: by which worker, and when it was made (``time.perf_counter``)."""

    worker: int
    at: float
    batch: Any


class StampingCollate:
    """A collate function in a worker that records who made a batch, and when.

    On a Linux machine ``time.perf_counter`` is the same clock in all processes.
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

    ``came`` is the number of batches passed on, ``last`` the latest of them, ``sizes`` the samples
    in each, if ``size_of`` counts them. ``made`` has, by worker, when each of its batches was made.
    ``workers`` are those of the latest iterator, started at ``started_at``; ``iterators`` counts
    all so far. If it is ``timed``, ``seconds`` and ``cpu_seconds`` are what making or awaiting
    batches took the thread that asked, and ``delay_seconds`` how long that thread waited for a
    processor meanwhile.
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
        """``shared_out``: no two workers get the same. ``on_started`` is called for each iterator.

        ``size_of`` returns how many samples a batch holds, if nothing else tells. ``goes_on``
        returns whether there are still samples to ask for, so that the end of an iterator is not
        the end.
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
        """Return an epoch's iterator, wrapped so that its batches are counted."""
        self.workers = list(getattr(iterator, "_workers", ()))
        self.started_at = time.perf_counter()
        self.iterators += 1
        self._on_started()
        return _Counted(iterator, self)

    def allow_any_number(self) -> None:
        """Note that the consumer of the batches has made something of them."""
        self._wary = False

    def take(self, iterator: Iterator[Any]) -> Any:
        """Return the next batch of ``iterator``; raises ``StopIteration`` if there is none.

        Raises ``NotThisWay`` if it is ``timed`` and too many are taken before anything is made,
        ``RuntimeError`` if the samples themselves raise ``StopIteration``.
        """
        if self._wary and self.came > self._most:
            raise NotThisWay(f"it takes more than {format_count(self.came, 'batch')} to make one")
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
                "a StopIteration, which silently ends an epoch, also in a training"
            ) from error
        except RuntimeError:
            # If workers are children of a forkserver, torch never learns what ended them.
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
            self._most = min(
                _MOST_FOR_ONE, _MOST_BYTES_FOR_ONE // (1 + measure_batch(batch).size_bytes)
            )
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
        """Return how many workers began with batches that do not tell them apart from others."""
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

        Workers take turns, so all make the same number: the rate is their number over the mean time
        between two batches of the same worker, which includes a worker's wait for its turn. Batches
        are made some rounds before they are taken, so this is the rate of that earlier time.
        """
        stamps = [made[-1 - rounds :] for made in self.made.values()]
        between = [
            later - earlier for some in stamps for earlier, later in itertools.pairwise(some)
        ]
        return len(stamps) / statistics.fmean(between)


class _Counted:
    """Torch's iterator of one epoch, counted by ``delivery``."""

    def __init__(self, iterator: Iterator[Any], delivery: Delivery) -> None:
        self._inner = iterator
        self._delivery = delivery

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> Any:
        return self._delivery.take(self._inner)

    def __getattr__(self, name: str) -> Any:
        # What a user's class asks torch's iterator for. Not its length: a list of something endless
        # would allocate room for all of it at once.
        return getattr(self._inner, name)
