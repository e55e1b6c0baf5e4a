"""Starting a loader until its first batch has come: in torch's way, or in that of its own class."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import Inconclusive
from hostprep.loading.child import processes
from hostprep.loading.child.batched import counter_of
from hostprep.loading.child.building import Built, ProbeJob, build
from hostprep.loading.child.delivery import Delivery, NotThisWay
from hostprep.loading.child.opening import Opened
from hostprep.loading.child.own_way import InItsOwnWay, check_own_way, has_own_way
from hostprep.loading.rounds import LEAST_EPOCH_BATCHES
from hostprep.units import format_count

_NOTHING = object()
_ENDED_EARLY = (
    "a StopIteration that the data set or collate_fn raises silently ends an epoch, also in a"
    " training"
)


class Batches:
    """Takes batches from a loader.

    Like a training it holds a batch until the next one has come. That takes room in shared memory
    and, without workers, decides whether malloc returns the memory to the kernel and requests it
    anew for each batch, which halves the rate if samples cost next to nothing.
    """

    def __init__(
        self,
        iterator: Iterator[Any],
        description: str,
        *,
        again: Callable[[], Iterator[Any]] | None = None,
        length: int | None = None,
    ) -> None:
        """``again`` starts the next epoch; ``epochs`` were begun.

        ``length`` is the loader's own length, in samples or batches, if it has one.
        """
        self.came = 0
        self.epochs = 0
        self._held: Any = None
        self._iterator = iterator
        self._description = description
        self._again = again
        self._length = length
        self._epoch_began = 0

    def take(self) -> Any:
        """Return the next batch; raises ``Inconclusive`` if even the next epoch has none."""
        batch = next(self._iterator, _NOTHING)
        so_far = self.came - self._epoch_began
        # A loader that gave nothing when it was iterated again is not asked again.
        if batch is _NOTHING and self._again is not None and so_far >= LEAST_EPOCH_BATCHES:
            self._epoch_began = self.came
            self._iterator = self._again()
            batch = next(self._iterator, _NOTHING)
            self.epochs += batch is not _NOTHING
        if batch is _NOTHING:
            if not self.came and self._length:
                raise Inconclusive(
                    f"{self._description} gave no batch, though its length is {self._length:,}.",
                    f"{_ENDED_EARLY}: see where it calls next(), or what its sampler gives",
                )
            if not self.came:
                raise Inconclusive(f"{self._description} is empty: it has no samples to time.")
            raise Inconclusive(
                f"{self._description} ended after {format_count(self.came, 'batch')}, too few to"
                " measure a rate.",
                "give a loader with more samples, or one that can be iterated again, or a smaller"
                f" --batch-size; if it has more samples: {_ENDED_EARLY}",
            )
        self.came += 1
        self._held = batch
        return batch


@dataclass(slots=True)
class Started:
    """A loader that has given its first batch, ``first_seconds`` after it was ``asked_at``.

    ``threads`` runs around it, if anything does. ``own_way``: its class's own code takes part;
    ``problem`` says why it does not.
    """

    built: Built
    batches: Batches
    delivery: Delivery
    threads: Any
    own_way: bool
    asked_at: float
    first_seconds: float
    problem: str | None = None

    @property
    def own_part(self) -> Delivery | None:
        """Return what separates torch's part from that of the loader's own class, if it has one."""
        return self.delivery if self.own_way else None

    @property
    def given(self) -> int:
        """Return how many of torch's batches the batches so far were made of."""
        return self.delivery.came if self.own_way else self.batches.came


def start(opened: Opened, job: ProbeJob, told: Callable[..., None]) -> Started:
    """Start the loader, in the way of its own class if it has one that can be timed."""
    problem = None
    if job.own_way and not job.ready and not job.background and has_own_way(opened.loader):
        try:
            check_own_way(opened.loader)
            return _first_batch(opened, job, told, own_way=True)
        except Exception as error:
            # If something is wrong with the samples, torch's own way will show it as well.
            problem = str(error) if isinstance(error, NotThisWay) else repr(error)
    started = _first_batch(opened, job, told, own_way=False)
    started.problem = problem
    return started


def _first_batch(
    opened: Opened, job: ProbeJob, told: Callable[..., None], *, own_way: bool
) -> Started:
    built = build(opened, job)
    asked_at = time.perf_counter()

    def on_started() -> None:
        if delivery.iterators == 1:
            pids = [worker.pid for worker in delivery.workers]
            told("workers", pids=pids, seconds=time.perf_counter() - asked_at)
            processes.look_for_killed(delivery.workers)

    known = built.batch_size is not None or built.sizes is not None
    delivery = Delivery(
        size_of=None if known else counter_of(opened.dataset),
        shared_out=opened.kind != "stream" or job.ready,
        timed=own_way,
        goes_on=lambda: built.order is not None and not built.order.over,
        on_started=on_started,
    )
    epochs: Iterable[Any] = built.loader
    if own_way:
        epochs = InItsOwnWay(opened.loader, built.loader, delivery)

    def epoch() -> Iterator[Any]:
        return iter(epochs) if own_way else delivery.of(iter(epochs))

    iterator, threads = epoch(), None
    if job.background:
        from prefetch_generator import BackgroundGenerator

        threads = iterator = BackgroundGenerator(iterator, max_prefetch=job.prefetch_factor)
    # Workers would have to be started again, and that time is not part of the rate.
    again = None if job.workers or job.background else epoch
    batches = Batches(iterator, opened.description, again=again, length=opened.length)
    batches.take()
    first_seconds = time.perf_counter() - asked_at
    return Started(built, batches, delivery, threads, own_way, asked_at, first_seconds)
