"""What was written a moment ago is not read before a later write has another time."""

from __future__ import annotations

import time

from hostprep.staging.files.settling import settle

SECOND_NS = 10**9


def test_a_second_that_is_not_over_is_waited_for() -> None:
    this_ns = time.time_ns() // SECOND_NS * SECOND_NS
    assert settle((0, time.time_ns(), this_ns, 2**62))
    assert time.time_ns() > this_ns + SECOND_NS
    assert not settle((this_ns - 2 * SECOND_NS,))


def test_of_even_seconds_the_next_one_too() -> None:
    seconds = time.time_ns() // SECOND_NS // 2 * 2
    assert settle((seconds * SECOND_NS,))
    assert time.time_ns() > (seconds + 2) * SECOND_NS


def test_a_finer_time_is_waited_for_as_long_as_a_tick_may_last() -> None:
    while not (now_ns := time.time_ns()) % SECOND_NS:
        continue
    settle((now_ns,))
    assert time.time_ns() > now_ns + SECOND_NS // 100


def test_what_is_older_or_of_another_clock_is_taken_as_it_is() -> None:
    now_ns = time.time_ns()
    assert not settle(())
    assert not settle((now_ns - 3 * SECOND_NS, now_ns + 5 * SECOND_NS, -1, 2**63))
