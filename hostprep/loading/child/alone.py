"""What samples cost the process that makes them, without workers, in the measuring child."""

from __future__ import annotations

import time

from hostprep.loading.child import processes
from hostprep.loading.child.building import ProbeJob, TimedCollate
from hostprep.loading.child.delivery import Delivery
from hostprep.loading.child.starting import Started

SLOW_BATCHES = 2  # fewer say little, but are all there is if a batch takes long
# Share of the time limit: a first batch that takes longer has to do as warm-up.
_SLOW_START_SHARE = 0.2


class Meter:
    """Measures what samples have taken since the meter was made."""

    def __init__(self, collate: TimedCollate, delivery: Delivery | None = None) -> None:
        """``delivery`` tells torch's part from that of the loader's own class, if it has one."""
        collate.seconds = collate.cpu_seconds = 0.0
        self._collate = collate
        self._delivery = delivery
        if delivery is not None:
            delivery.seconds = delivery.cpu_seconds = delivery.delay_seconds = 0.0
        self._thread = time.thread_time()
        self._delay = processes.thread_delay_seconds()
        self._before = processes.usage(())

    def each(self, samples: int) -> dict[str, float]:
        """Return what each of ``samples`` took, as fields of ``SampleCost``."""
        after = processes.usage(())
        delay = processes.thread_delay_seconds() - self._delay
        seconds = (after.at - self._before.at) / samples
        cpu_seconds = (after.own_cpu - self._before.own_cpu) / samples
        main_seconds = main_cpu_seconds = 0.0
        if self._delivery is not None:
            main_seconds = max(0.0, seconds - self._delivery.seconds / samples)
            # Time during which other programs kept it from running is not the class's work.
            kept = max(0.0, delay - self._delivery.delay_seconds) / samples
            main_seconds = max(0.0, main_seconds - kept)
            thread = time.thread_time() - self._thread - self._delivery.cpu_seconds
            # Some classes take batches in a thread of their own: its processor time is not in this.
            main_cpu_seconds = min(cpu_seconds, max(0.0, thread / samples))
            seconds -= main_seconds
            cpu_seconds -= main_cpu_seconds
        return {
            "worker_seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "waiting_seconds": max(0.0, seconds - cpu_seconds - delay / samples),
            "collate_seconds": self._collate.seconds / samples,
            "collate_cpu_seconds": self._collate.cpu_seconds / samples,
            "main_seconds": main_seconds,
            "main_cpu_seconds": main_cpu_seconds,
        }


def is_warm(came: int, elapsed: float, job: ProbeJob) -> bool:
    """Return whether the batches that came in ``elapsed`` seconds are enough as a warm-up.

    Without workers nothing is made ahead. If there is time for only a few batches, one has to do.
    """
    least = 1 if elapsed > _SLOW_START_SHARE * job.limit_seconds else SLOW_BATCHES
    return elapsed > job.seconds and came >= least


def on_one_thread(
    started: Started, collate: TimedCollate, job: ProbeJob, deadline: float
) -> dict[str, float]:
    """Return what a sample takes with torch on one thread, as in workers.

    The main process's own part is left out, because in a training it has all threads. With more
    threads torch is faster without workers, and burns processor time in threads that wait for each
    other, which workers would not do. Threads of other libraries remain and count. Takes at least
    one batch, and no further one that would end after ``deadline``.
    """
    import torch

    torch.set_num_threads(1)
    meter = Meter(collate, started.own_part)
    batches, before, given_before = started.batches, started.batches.came, started.given
    begin = last = time.perf_counter()
    while True:
        batches.take()
        now = time.perf_counter()
        if now - begin > job.seconds / 2 and batches.came - before >= SLOW_BATCHES:
            break
        if now + (now - last) > deadline:
            break
        last = now
    spent = meter.each(started.built.samples(given_before, started.given, started.delivery.sizes))
    return {name: spent[name] for name in spent if not name.startswith("main_")}
