"""The prediction of an epoch, and the page cache's share of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hostprep.probing.epoch import predict
from hostprep.probing.model import DataSet, Latency
from hostprep.probing.pass_rates import line_through, percentiles
from tests.unit.probing.made import fio_run, small_files, small_run


def test_an_epoch_in_three_states_and_the_band() -> None:
    small = small_files(
        cold=(small_run(1, 100, mean_bytes=100_000), small_run(8, 400, mean_bytes=100_000)),
        cached=small_run(8, 20_000),
        staged=small_run(8, 10_000),
    )
    epoch = predict(DataSet(40_000, True, 4_000_000_000), small, 2_000_000_000)
    assert epoch.readers == 8
    assert epoch.cold_seconds == pytest.approx(100)
    assert epoch.cached_seconds == pytest.approx(2)
    assert epoch.staged_seconds == pytest.approx(4)
    assert (epoch.cache_share, epoch.hit_high) == (0.5, 0.5)
    assert epoch.hit_low == pytest.approx(0.1534, abs=0.0001)
    assert epoch.next_low_seconds == pytest.approx(51)
    assert epoch.next_high_seconds == pytest.approx(100 - 98 * 0.1534, abs=0.01)


def test_from_memory_no_epoch_takes_longer_than_the_first() -> None:
    """Where others had the processors while files were read from there."""
    small = small_files(cold=(small_run(8, 400),), cached=small_run(8, 100))
    epoch = predict(DataSet(4000, True, None), small, 1 << 40)
    assert epoch.cold_seconds == pytest.approx(10)
    assert epoch.cached_seconds == epoch.next_low_seconds == epoch.cold_seconds


def test_what_never_stays_in_memory_takes_each_epoch_as_long_as_the_first() -> None:
    small = small_files(
        cold=(small_run(8, 400),), cached=small_run(8, 20_000), stays_in_memory=False
    )
    epoch = predict(DataSet(40_000, True, None), small, 1 << 40)
    assert (epoch.hit_low, epoch.hit_high) == (0, 0)
    assert epoch.next_low_seconds == epoch.next_high_seconds == epoch.cold_seconds
    stays = predict(DataSet(40_000, True, None), replace(small, stays_in_memory=None), 1 << 40)
    assert stays.next_high_seconds == stays.cached_seconds != stays.cold_seconds


def test_a_sample_of_smaller_files_than_the_mean_is_corrected() -> None:
    small = small_files(
        cold=(small_run(1, 100, mean_bytes=90_000),),
        seconds_per_file=0.001,
        seconds_per_byte=1e-7,
    )
    epoch = predict(DataSet(1000, True, 110_000 * 1000), small, 0)
    assert epoch.cold_seconds == pytest.approx(10 * 0.012 / 0.010)
    assert not epoch.estimated_size


def test_a_file_far_beyond_the_sample_takes_what_its_bytes_take() -> None:
    small = small_files(cold=(small_run(8, 100, mean_bytes=100_000),), seconds_per_byte=0.0)
    whole = DataSet(301, True, 30_000_000 + 6_000_000_000)
    sequential = fio_run("read", 32, 60)
    epoch = predict(whole, small, 0, sequential)
    assert epoch.cold_seconds == pytest.approx(6_030_000_000 / sequential.bytes_per_s)
    alike = predict(DataSet(300, True, 30_000_000), small, 0, sequential)
    assert alike.cold_seconds == pytest.approx(3)


def test_a_file_far_beyond_the_sample_has_no_time_from_memory() -> None:
    small = small_files(
        cached=replace(small_run(8, 20_000, mean_bytes=3000), line=(1e-5, 0.0), largest_bytes=3000),
        staged=small_run(8, 10_000, mean_bytes=3000),
    )
    alike = predict(DataSet(1500, True, 1500 * 3000), small, 1 << 30)
    assert alike.cached_seconds == pytest.approx(0.075)
    assert alike.staged_seconds == pytest.approx(0.15)
    shards = predict(DataSet(1504, True, 1500 * 3000 + 4 * 100_000_000), small, 1 << 30)
    assert shards.cached_seconds is None and shards.staged_seconds is None
    assert shards.next_low_seconds is None


def test_what_is_read_from_memory_is_carried_over_to_the_mean_of_the_data_set() -> None:
    run = replace(
        small_run(8, 10_000, mean_bytes=100_000), line=(1e-5, 1e-10), largest_bytes=5_000_000
    )
    epoch = predict(DataSet(1000, True, 1000 * 400_000), small_files(cached=run), 1 << 30)
    assert epoch.cached_seconds == pytest.approx(0.1 * 5e-5 / 2e-5)


def test_without_any_cache_an_epoch_is_like_the_first_whatever_memory_gives() -> None:
    epoch = predict(DataSet(1000, True, 100_000_000), small_files(cached=None), 0)
    assert epoch.next_low_seconds == epoch.next_high_seconds == epoch.cold_seconds
    some = predict(DataSet(1000, True, 100_000_000), small_files(cached=None), 50_000_000)
    assert some.next_low_seconds is None and some.next_high_seconds is None


def test_unknown_sizes_take_the_mean_of_the_sample() -> None:
    small = small_files(cold=(small_run(1, 100, mean_bytes=100_000),), mean_bytes=100_000)
    epoch = predict(DataSet(1000, True, None), small, 0)
    assert epoch.estimated_size
    assert epoch.size_bytes == 100_000_000
    assert epoch.cold_seconds == pytest.approx(10)


def test_the_line_through_files() -> None:
    sizes = [10_000, 50_000, 90_000, 200_000]
    per_file, per_byte = line_through(sizes, [0.002 + size * 1e-8 for size in sizes])
    assert per_file == pytest.approx(0.002)
    assert per_byte == pytest.approx(1e-8)
    assert line_through([100, 100], [1.0, 3.0]) == (2.0, 0.0)
    assert line_through([100, 300], [3.0, 1.0]) == (2.0, 0.0)  # larger and faster: no slope
    per_file, per_byte = line_through([100, 300], [0.0, 4.0])  # all of it would be per byte
    assert per_file == pytest.approx(0) and per_byte == pytest.approx(0.01)


def test_percentiles_are_of_the_nearest_rank() -> None:
    latency = percentiles([float(number) for number in range(100, 0, -1)])
    assert (latency.p50, latency.p95, latency.p99) == (50, 95, 99)
    latency = percentiles([3.0, 1.0, 2.0])
    assert (latency.p50, latency.p95, latency.p99) == (2.0, 3.0, 3.0)
    assert percentiles([2.0]) == Latency(2.0, 2.0, 2.0)
