"""The governor, fed with rates of sources that it does not know."""

from __future__ import annotations

from collections.abc import Callable

from hostprep.staging.processes.governor import Governor


def settle(rate_of: Callable[[int], float], readers: int, seconds: float = 60) -> int:
    """Run a governor against a source that gives ``rate_of(readers)`` bytes/s; return the end."""
    governor = Governor(readers)
    now, work, current = 0.0, 0.0, readers
    while now < seconds:
        now += 0.1
        work += rate_of(current) * 0.1
        current = governor.update(now, 0, int(work))
    return current


def test_a_serial_source_ends_with_one_stream() -> None:
    assert settle(lambda readers: 20e6, 64) == 1


def test_a_source_that_seeks_more_with_more_readers_ends_with_one_stream() -> None:
    assert settle(lambda readers: 100e6 / readers, 64) == 1


def test_a_latency_bound_source_keeps_all_readers() -> None:
    assert settle(lambda readers: 5e6 * readers, 64) == 64


def test_a_saturated_source_keeps_what_it_needs() -> None:
    """8 readers reach the ceiling: fewer lose, more gain nothing."""
    assert settle(lambda readers: min(readers, 8) * 50e6, 64) == 8


def test_a_short_run_is_left_alone() -> None:
    assert settle(lambda readers: 20e6, 64, seconds=2.5) == 64


def test_an_odd_number_comes_back() -> None:
    assert settle(lambda readers: 5e6 * readers, 5) == 5
