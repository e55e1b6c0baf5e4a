"""The curve of rate over workers, against what was measured and against its own inverse."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostprep.loading.curve import (
    Ceiling,
    Curve,
    cost_of_stages,
    curve_of,
    hit_rates,
    prefetch_factor,
    saturating,
    storage_ceiling,
)
from hostprep.loading.files.model import SideBySide, Stage, Stages
from hostprep.loading.model import Transport
from hostprep.system.page_cache import lru_hit_rate
from tests.unit.loading.making import cost

RATES = st.floats(1.0, 1e6)


@given(RATES, RATES, st.floats(0.01, 0.98))
def test_workers_for_is_the_inverse_of_the_rate(
    worker: float, ceiling: float, share: float
) -> None:
    curve = Curve(worker, worker, ceiling, Ceiling.CPUS)
    wanted = share * ceiling
    workers = curve.workers_for(wanted)
    assert workers is not None
    assert curve.rate(workers) >= wanted * (1 - 1e-6)
    if workers > 1:
        assert curve.rate(workers - 1) < wanted * (1 + 1e-6)


def test_the_rate_of_so_many_workers_asks_for_no_more_of_them() -> None:
    curve = Curve(100, 100, 1000, Ceiling.CPUS)
    for workers in range(1, 9):
        assert curve.workers_for(curve.rate(workers)) == workers


@pytest.mark.parametrize(
    ("transport", "main_cpu_seconds", "worker", "ceiling"),
    [
        (None, 0.0, 100, 400),
        (Transport(2, 1e9, 0.002), 0.0, 125, 500),
        (Transport(2, 1e9, 0.002), 0.002, 125, 400),
    ],
)
def test_collating_is_counted_once_as_the_transport_s_where_that_was_measured(
    transport: Transport | None, main_cpu_seconds: float, worker: float, ceiling: float
) -> None:
    what = cost(
        seconds=0.010,
        waiting_seconds=0.0,
        cpu_seconds=0.010,
        collate_cpu_seconds=0.004,
        main_cpu_seconds=main_cpu_seconds,
    )
    curve = curve_of(what, transport, 4.0)
    assert curve.worker == pytest.approx(worker)
    assert (curve.ceiling_from, curve.ceiling) == (Ceiling.CPUS, pytest.approx(ceiling))


def test_no_number_of_workers_passes_the_ceiling() -> None:
    curve = Curve(100, 100, 1000, Ceiling.CPUS)
    assert curve.workers_for(1000) is None
    assert curve.rate(10_000) <= 1000


@pytest.mark.parametrize(
    ("cpu_ms", "waiting_ms", "cpus", "measured"),
    [
        # Measured on two processors, batch 32: JPEG, warm; and JPEG at 10 ms a request.
        (1.80, 0.0, 2.0, {1: 530, 2: 1025, 4: 1034}),
        (1.80, 21.5, 2.0, {1: 42, 2: 85, 4: 170, 8: 333, 16: 731}),
    ],
)
def test_curve_is_within_a_fifth_of_what_was_measured(
    cpu_ms: float, waiting_ms: float, cpus: float, measured: dict[int, int]
) -> None:
    seconds = (cpu_ms + waiting_ms) / 1000
    what = cost(
        seconds=seconds,
        cpu_seconds=cpu_ms / 1000,
        waiting_seconds=waiting_ms / 1000,
        collate_cpu_seconds=0.0,
    )
    curve = curve_of(what, Transport(2, 10_000, 0.00005), cpus)
    for workers, rate in measured.items():
        assert curve.rate(workers) == pytest.approx(rate, rel=0.2)


def test_waiting_asks_for_more_workers_than_there_are_processors() -> None:
    far = cost(seconds=0.0223, waiting_seconds=0.0205, cpu_seconds=0.0018)
    assert curve_of(far, Transport(2, 10_000, 0.0001), 2.0).proposal(None) >= 16
    near = cost(seconds=0.0018, waiting_seconds=0.0, cpu_seconds=0.0018)
    assert curve_of(near, Transport(2, 10_000, 0.0001), 2.0).proposal(None) <= 4


def test_littles_law_for_a_gpu_of_known_rate() -> None:
    far = cost(seconds=0.0205, waiting_seconds=0.02, cpu_seconds=0.0005, collate_cpu_seconds=0.0)
    curve = curve_of(far, Transport(2, 1e6, 0.0), 64.0)
    assert curve.proposal(400) == pytest.approx(1.1 * 400 * 0.0205, abs=1)


def test_transport_can_be_the_ceiling_and_then_it_is_named() -> None:
    ready = cost(seconds=0.00006, cpu_seconds=0.00006, collate_cpu_seconds=0.00002)
    curve = curve_of(ready, Transport(4, 9000.0, 0.0001), 32.0)
    assert curve.ceiling_from is Ceiling.TRANSPORT
    assert curve.ceiling == 9000
    assert curve.rate(32) < curve.alone


def test_half_a_processor_halves_a_worker() -> None:
    what = cost(waiting_seconds=0.0, cpu_seconds=0.002, collate_cpu_seconds=0.0)
    full, half = (curve_of(what, Transport(1, 1e6, 0.0), cpus) for cpus in (1.0, 0.5))
    assert half.worker == pytest.approx(full.worker / 2)
    assert half.ceiling == pytest.approx(full.ceiling / 2)


@given(RATES, RATES)
def test_saturating_is_below_both(linear: float, ceiling: float) -> None:
    assert saturating(linear, ceiling) <= min(linear, ceiling) * (1 + 1e-9)


def test_the_kernel_lies_between_lru_and_a_pinned_subset() -> None:
    assert hit_rates(0.5) == (lru_hit_rate(0.5), 0.5)
    assert hit_rates(-1.0) == (0.0, 0.0)


def test_all_cached_is_all_answered() -> None:
    assert hit_rates(1.0) == hit_rates(1.7) == (1.0, 1.0)


def test_prefetch_grows_with_unevenness_and_not_where_the_gpu_is_far_slower() -> None:
    assert prefetch_factor(1.1, None, 500) == 2
    assert prefetch_factor(2.0, None, 500) == 3
    assert prefetch_factor(9.0, None, 500) == 4
    assert prefetch_factor(2.0, 100, 500) == 2
    assert prefetch_factor(2.0, 400, 500) == 3
    assert prefetch_factor(2.0, 2000, 500) == 3, "a GPU that waits empties no more than all"


def read(files_per_s: float, cpus: float) -> Stages:
    """Return stages of which one reader takes 10 ms a file, and 16 at once get so many."""
    stages = tuple(
        Stage(name, seconds, 1e-4)
        for name, seconds in (("read_as_is", 0.01), ("decode", 1e-3), ("resize", 1e-3))
    )
    together = SideBySide(16, 100, files_per_s, cpus)
    return Stages("image", "pillow", 100, 0, "", 1e5, 600_000, stages, "arm", "", together)


def test_what_many_readers_get_is_a_ceiling_unless_it_grew_with_their_number() -> None:
    assert storage_ceiling(read(107, 0.02)) == 107
    assert storage_ceiling(read(800, 0.1)) == 800
    assert storage_ceiling(read(1500, 0.2)) == math.inf
    # Threads that wait for each other show nothing of the storage.
    assert storage_ceiling(read(800, 0.97)) == math.inf


@pytest.mark.parametrize(
    ("read_cpu", "decode_cpu", "cpu", "waiting"),
    [
        (0.001, 0.004, 0.008, 0.009),
        (0.011, 0.020, 0.017, 0.0),  # a decoder with threads, and a clock that ticks
    ],
)
def test_what_a_sample_takes_by_its_stages(
    read_cpu: float, decode_cpu: float, cpu: float, waiting: float
) -> None:
    parts = (
        Stage("read_as_is", 0.010, read_cpu),
        Stage("decode", 0.004, decode_cpu),
        Stage("resize", 0.002, 0.002),
        Stage("collate", 0.001, 0.001),
    )
    found = cost_of_stages(replace(read(107, 0.02), stages=parts), 32)
    assert (found.batch_size, found.seconds) == (32, pytest.approx(0.017))
    assert found.cpu_seconds == pytest.approx(cpu)
    assert found.waiting_seconds == pytest.approx(waiting)
    assert (found.collate_seconds, found.collate_cpu_seconds) == (0.001, 0.001)


def test_storage_that_gives_no_more_to_many_keeps_workers_few() -> None:
    waiting = cost(seconds=0.0102, waiting_seconds=0.01, cpu_seconds=2e-4)
    arm = curve_of(waiting, None, 2.0, storage_samples_per_s=107)
    assert arm.ceiling_from is Ceiling.STORAGE
    assert arm.rate(2) == pytest.approx(107, rel=0.05)
    assert arm.proposal(None) <= 2 < 16 <= curve_of(waiting, None, 2.0).proposal(None)
