"""The governor, fed with rates of sources that it does not know."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from hostprep.staging.processes.governor import Governor

_STEP = 0.1
_FILE_BYTES = 100_000


@dataclass
class Run:
    """A run of readers that end the task they have before they rest, as the pool's do.

    ``rate_of`` says how many files/s the source gives to so many at once, at a time; ``files`` is
    what came of it, and ``at`` how many were to be at work at the end of each tenth of a second.
    """

    rate_of: Callable[[int, float], float]
    readers: int
    seconds: float = 600
    task_files: int = 16
    noise: float = 0.0
    seed: int = 1
    most: int | None = None
    files: float = 0.0
    at: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self.governor = Governor(self.readers, self.most)
        # Of each task in hand, what is left of it: not all end at once.
        left = [chance.random() * self.task_files for _ in range(self.readers)]
        wanted, luck = self.readers, 1.0
        for step in range(int(self.seconds / _STEP)):
            now = (step + 1) * _STEP
            if step % 5 == 0:
                luck = max(0.1, chance.gauss(1, self.noise))
            done = self.rate_of(len(left), now) * luck * _STEP
            self.files += done
            left = [each - done / len(left) for each in left]
            left = [each for each in left if each > 0]
            left += [float(self.task_files)] * (wanted - len(left))
            size_bytes = int(self.files * _FILE_BYTES)
            wanted = self.governor.update(now, int(self.files), size_bytes, len(left))
            self.at.append(wanted)

    @property
    def settled(self) -> int:
        return self.governor.settled


def serial(readers: int, now: float) -> float:
    return 200


def seeking(readers: int, now: float) -> float:
    """An arm: more than one stream cost seven times as much."""
    return 700 if readers == 1 else 100


def late(readers: int, now: float) -> float:
    return 20 * readers


def saturated(readers: int, now: float) -> float:
    return 20 * min(readers, 8)


def test_a_serial_source_ends_with_one_stream() -> None:
    assert Run(serial, 64).settled == 1


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("readers", "task_files"), [(64, 16), (2, 512)])
def test_a_source_that_seeks_more_with_more_readers_ends_with_one_stream(
    noise: float, seed: int, readers: int, task_files: int
) -> None:
    run = Run(seeking, readers, noise=noise, seed=seed, task_files=task_files)
    assert run.settled == 1
    assert run.at.index(1) < 180 / _STEP


@pytest.mark.parametrize(("readers", "task_files"), [(64, 16), (2, 512)])
def test_an_arm_loses_little_to_tries_of_more(readers: int, task_files: int) -> None:
    """Of ten minutes less than a tenth, with what it takes to find out."""
    run = Run(seeking, readers, task_files=task_files)
    assert run.files > 0.93 * seeking(1, 0) * 600
    tries = sum(before == 1 < after for before, after in itertools.pairwise(run.at))
    assert 3 <= tries <= 10


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.2])
def test_a_latency_bound_source_keeps_all_readers_and_loses_little_to_tries(noise: float) -> None:
    run = Run(late, 64, noise=noise)
    assert run.settled == 64
    assert run.files > 0.95 * late(64, 0) * 600


def test_a_saturated_source_keeps_what_it_needs() -> None:
    """8 readers reach the ceiling: fewer lose, more gain nothing."""
    run = Run(saturated, 64)
    assert run.settled == 8
    assert run.files > 0.98 * saturated(8, 0) * 600


def test_a_short_run_is_left_alone() -> None:
    run = Run(serial, 64, seconds=2.5)
    assert (run.settled, set(run.at)) == (64, {64})


def test_an_odd_number_comes_back() -> None:
    assert Run(late, 5, seconds=60).settled == 5


def test_a_source_that_others_used_at_first_gets_its_readers_back() -> None:
    def busy_at_first(readers: int, now: float) -> float:
        return 100 if now < 22 else late(readers, now)

    run = Run(busy_at_first, 64, seconds=120)
    assert min(run.at) <= 2
    assert run.settled == 64
    assert run.at.index(64, run.at.index(32)) < 60 / _STEP


def test_a_busy_server_that_becomes_free_after_long_is_found_out() -> None:
    """By then the pauses between tries have grown; what one reader gets has not changed."""

    def free_at_last(readers: int, now: float) -> float:
        return 50 if now < 200 else 50 * readers

    run = Run(free_at_last, 64, seconds=320)
    assert run.settled == 64


def test_a_source_that_turns_serial_ends_with_one_stream() -> None:
    def seeking_later(readers: int, now: float) -> float:
        return late(readers, now) if now < 30 else seeking(readers, now)

    run = Run(seeking_later, 64)
    assert run.settled == 1
    assert run.at.index(1) < 90 / _STEP


def test_small_losses_do_not_add_up() -> None:
    """Each half as many lose 4 %, which alone would be worth it."""

    def gently(readers: int, now: float) -> float:
        halvings = 6 - (readers.bit_length() - 1)
        return 1000 * 0.96**halvings

    run = Run(gently, 64, seconds=1800)
    assert gently(run.settled, 0) > 0.95 * gently(64, 0)


def test_a_source_that_was_taken_for_memory_gets_the_readers_that_it_lacks() -> None:
    run = Run(late, 2, seconds=60, most=16)
    assert run.settled == 16
    assert run.at.index(16) < 12 / _STEP


def test_a_source_that_is_in_memory_loses_nothing_and_keeps_a_process_a_core() -> None:
    def memory(readers: int, now: float) -> float:
        return 20_000 if readers == 2 else 18_000 if readers > 2 else 10_000

    run = Run(memory, 2, most=16, task_files=64)
    assert (run.settled, min(run.at)) == (2, 2)
    assert run.files > 0.99 * memory(2, 0) * 600


def test_what_is_in_memory_at_first_gets_more_readers_once_it_is_not() -> None:
    def cached_in_part(readers: int, now: float) -> float:
        return 20_000 if now < 30 else late(readers, now)

    run = Run(cached_in_part, 2, seconds=60, most=16)
    assert run.settled == 16


def test_while_nothing_comes_nothing_is_concluded() -> None:
    """A server that hangs says nothing of the number of readers."""

    def hanging(readers: int, now: float) -> float:
        return 0 if now < 60 else late(readers, now)

    run = Run(hanging, 64, seconds=120)
    assert set(run.at[: int(60 / _STEP)]) == {64}
    assert run.settled == 64


def test_readers_that_should_rest_are_waited_for() -> None:
    """What they still do would be taken for the work of those that go on."""
    governor = Governor(8)
    for step in range(32):
        governor.update(step / 10, 100 * step, 10**7 * step, 8)
    assert governor.readers == 4
    for step in range(32, 100):
        governor.update(step / 10, 100 * step, 10**7 * step, 8)
    assert governor.readers == 4  # though the rate is the same
    for step in range(100, 125):
        governor.update(step / 10, 100 * step, 10**7 * step, 4)
    assert governor.readers == 2
