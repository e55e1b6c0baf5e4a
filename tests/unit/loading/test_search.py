"""The search for the number of workers, on loaders whose rates are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostprep.loading.curve import Curve
from hostprep.loading.model import Binding, FailedProbe, Probe
from hostprep.loading.search import Point, Search, choose, contenders, delivered, feeds, points_of
from tests.unit.loading.making import probe

GRID = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def search(
    rate: Callable[[int], float],
    curve: Curve,
    *,
    gpu: float | None = None,
    most: int = 64,
    probes: int = 99,
    current: int | None = None,
) -> Search:
    asked: list[int] = []

    def measure(workers: int) -> Probe | None:
        asked.append(workers)
        return probe(workers, rate(workers)) if len(asked) <= probes else None

    made = Search(curve, gpu, measure, lambda: most, lambda: 4, [probe(0, rate(0))])
    made.run(current)
    return made


def regret(made: Search, rate: Callable[[int], float]) -> float:
    return 1 - rate(made.chosen().workers) / max(rate(workers) for workers in GRID)


def cpu_bound(workers: int) -> float:
    return 557 if workers == 0 else min(530 * workers, 1030 + workers)


def far(workers: int) -> float:
    return 43 if workers == 0 else 43 * workers / (1 + workers / 90)


def in_memory(workers: int) -> float:
    return 18_000 if workers == 0 else min(6_500 * workers, 10_500)


def one_arm(workers: int) -> float:
    return 135 + (0 if workers < 4 else 8 if workers < 8 else 95)


@pytest.mark.parametrize(
    ("rate", "curve"),
    [
        (cpu_bound, Curve(557, 530, 1050, True)),
        (far, Curve(43, 43, 1000, True)),
        (in_memory, Curve(18_000, 15_000, 10_500, False)),
        (one_arm, Curve(135, 135, 1000, True)),  # the model cannot know that there is one arm
    ],
)
def test_regret_on_the_measured_shapes(rate: Callable[[int], float], curve: Curve) -> None:
    made = search(rate, curve)
    assert regret(made, rate) <= 0.05
    assert len(made.probes) <= 8


def test_ready_samples_need_no_worker() -> None:
    assert search(in_memory, Curve(18_000, 15_000, 10_500, False)).chosen().workers == 0


def test_ties_take_fewer_workers() -> None:
    made = search(lambda w: 100 if w == 0 else 1000, Curve(100, 250, 1000, True))
    assert made.chosen().workers == 1


def test_where_model_and_probe_agree_two_probes_confirm() -> None:
    curve = Curve(100, 100, 1000, True)
    made = search(curve.rate, curve)
    assert made.agreed
    start = curve.proposal(None)
    assert [p.workers for p in made.probes][1:3] == [start, start // 2]


def test_where_they_disagree_workers_are_doubled_until_it_gains_little() -> None:
    made = search(lambda w: 50 + 40 * min(w, 24), Curve(100, 500, 1000, True))
    assert not made.agreed
    assert made.chosen().workers in (16, 24, 32, 48)
    assert 1 - (50 + 40 * min(made.chosen().workers, 24)) / 1010 < 0.35


def test_where_the_processors_are_all_busy_a_gain_is_noise() -> None:
    # As measured on two processors while a neighbour came and went; the truth is flat.
    seen = {
        0: 3700.0,
        1: 3500.0,
        2: 6450.0,
        4: 5200.0,
        8: 5920.0,
        12: 6210.0,
        16: 6430.0,
        32: 6490.0,
    }

    def measure(workers: int) -> Probe:
        return probe(workers, seen[workers], own_cpus=min(2.0, 0.6 + 0.7 * workers))

    made = Search(Curve(4000, 3900, 7500, True), None, measure, lambda: 64, lambda: 4)
    made.probes.append(measure(0))
    made.cpus = 2.0
    made.run(None)
    assert made.chosen().workers == 2
    # Where it is one more thread of each core that is free, they are not all busy.
    made = Search(Curve(4000, 3900, 7500, True), None, measure, lambda: 64, lambda: 4)
    made.probes.append(measure(0))
    made.cpus = 4.0
    made.run(None)
    assert made.chosen().workers == 16


def test_beyond_what_feeds_the_gpu_nothing_is_looked_for() -> None:
    rates = {0: 100, 1: 200, 2: 400, 3: 620, 6: 480, 12: 300}
    made = search(lambda w: rates[w], Curve(100, 100, 1000, True), gpu=500)
    assert made.chosen().workers == 3
    assert [each.workers for each in made.probes] == [0, 6, 12, 3, 1, 2]


def test_the_top_may_lie_between_one_worker_and_all_that_there_are() -> None:
    rates = {0: 90, 1: 500, 2: 600, 3: 300}
    made = search(lambda w: rates[w], Curve(100, 100, 1000, True), most=3)
    assert [each.workers for each in made.probes] == [0, 3, 1, 2]
    assert made.chosen().workers == 2


@pytest.mark.parametrize(
    ("enough", "ceiling", "probed", "chosen"),
    [
        (6, 1000, [0, 16, 32, 8, 4, 6], 6),  # 8 are as good, and 4 are not
        (7, 1000, [0, 16, 32, 8, 4, 6], 8),
        (12, 800, [0, 13, 26, 6, 10], 13),  # rounded up
    ],
)
def test_what_half_as_many_lose_is_looked_for_in_between(
    enough: int, ceiling: float, probed: list[int], chosen: int
) -> None:
    """Halving steps from more than enough to too few; where the rate bends it does not step."""
    made = search(lambda w: 100 * min(w, enough) if w else 100, Curve(100, 100, ceiling, True))
    assert [each.workers for each in made.probes] == probed
    assert made.chosen().workers == chosen


def test_where_the_rate_falls_again_its_top_is_looked_for_on_both_sides() -> None:
    curve = Curve(1.0, 1.15, 30.7, True)

    def falling(workers: int) -> float:
        return workers / (1 + (workers / 36) ** 8) if workers else 1.0

    made = search(falling, curve)
    assert regret(made, falling) <= 0.1  # of the probes around it, the best below loses 16 %
    assert len(made.probes) <= 8


def test_workers_that_are_slow_each_and_do_not_wait_are_doubled_all_the_same() -> None:
    # One thread a worker, where the main process alone has several: four give what none gives.
    made = search(lambda w: 10 * min(w, 16) if w else 95, Curve(95, 80, 400, True), most=32)
    assert made.chosen().workers == 16
    # And where they wait for the same thing, halving shows that, and no more are tried.
    made = search(lambda w: 80 if w else 95, Curve(95, 80, 400, True), most=32)
    assert max(p.workers for p in made.probes) < 12


def test_a_known_gpu_is_fed_and_no_more() -> None:
    curve = Curve(100, 100, 1000, True)
    made = search(curve.rate, curve, gpu=300)
    assert made.chosen().workers == curve.workers_for(330)
    assert max(p.workers for p in made.probes) < 10


def test_bounds_are_never_passed() -> None:
    made = search(far, Curve(43, 43, 1000, True), most=3, current=40)
    assert max(p.workers for p in made.probes) == 3


def test_no_worker_allowed_leaves_what_is_measured() -> None:
    made = search(far, Curve(43, 43, 1000, True), most=0)
    assert [p.workers for p in made.probes] == [0]
    assert made.chosen().workers == 0


def test_when_time_is_over_the_best_so_far_is_taken() -> None:
    made = search(far, Curve(43, 43, 1000, True), probes=1)
    assert len(made.probes) == 2
    assert made.chosen().workers == made.probes[1].workers


def test_what_there_was_no_time_for_is_remembered() -> None:
    curve = Curve(43, 43, 5000, True)
    cut = search(far, curve, probes=1, most=1000)
    assert cut.untried == 2 * curve.proposal(None) == 2 * cut.probes[-1].workers
    assert search(far, curve, probes=0).untried == 64
    assert search(far, curve).untried is None


def search_with_room_for_ten(present: int | None) -> tuple[Search, list[int]]:
    """Search where more than ten workers fail; return also which numbers it asked for."""
    asked = []

    def measure(workers: int) -> Probe | FailedProbe:
        asked.append(workers)
        if workers > 10:
            return FailedProbe(workers, Binding.SHARED_MEMORY, "bus error")
        return probe(workers, far(workers))

    made = Search(Curve(43, 43, 1000, True), None, measure, lambda: 64, lambda: 4, [probe(0, 43)])
    made.run(present)
    return made, asked


def test_workers_that_fail_are_a_bound() -> None:
    made, asked = search_with_room_for_ten(None)
    assert made.failures
    assert 4 <= made.chosen().workers <= 10
    assert len(asked) > 1 and max(asked[1:]) < asked[0]


def test_where_the_present_number_fails_one_fewer_is_not_tried_next() -> None:
    made, asked = search_with_room_for_ten(16)
    assert asked[:2] == [16, 3]
    assert made.chosen().workers > 3


def test_where_all_workers_fail_none_are_left() -> None:
    def measure(workers: int) -> FailedProbe:
        return FailedProbe(workers, Binding.MEMORY, "killed")

    made = Search(Curve(43, 43, 1000, True), None, measure, lambda: 64, lambda: 4, [probe(0, 43)])
    made.run(None)
    assert made.unfailed() == 0
    assert made.chosen().workers == 0


def test_a_bound_that_the_first_probe_teaches_holds_for_that_probe_too() -> None:
    """What a worker holds is known only once one has run."""
    asked: list[int] = []

    def measure(workers: int) -> Probe:
        asked.append(workers)
        return probe(workers, far(workers))

    def most() -> int:
        return 10 if asked else 64

    made = Search(Curve(43, 43, 1000, True), None, measure, most, lambda: 4, [probe(0, 43)])
    made.run(None)
    assert asked[0] > 10 and all(workers <= 10 for workers in asked[1:])
    assert made.chosen().workers == 10
    assert all(point.workers <= 10 for point in made.borne())


def test_workers_that_come_to_nothing_in_time_leave_as_many_as_there_is_time_for() -> None:
    asked = []

    def measure(workers: int) -> Probe | None:
        asked.append(workers)
        return probe(workers, 107) if workers <= 8 else None

    curve = Curve(107, 107, 5000, True)
    made = Search(curve, None, measure, lambda: 64, lambda: 4, [probe(0, 107)])
    made.run(None)
    assert asked == [64, 4, 2, 1]  # four give no more than none, so eight would not, either
    assert made.chosen().workers == 1


def test_fewer_than_the_model_says_are_tried_first_and_then_more() -> None:
    asked = []

    def measure(workers: int) -> Probe:
        asked.append(workers)
        return probe(workers, far(workers))

    curve = Curve(43, 43, 5000, True)
    made = Search(curve, None, measure, lambda: 64, lambda: 4, [probe(0, 43)])
    made.run(None, lambda: 16)
    assert asked[:3] == [16, 32, 64]


def test_the_current_number_is_measured_first() -> None:
    """What one gains by a change rests on it, however little time there is."""
    for probes in (1, 2, 99):
        made = search(cpu_bound, Curve(557, 530, 1050, True), current=7, probes=probes)
        assert [p.workers for p in made.probes][:2] == [0, 7]


def test_a_current_number_that_comes_to_nothing_is_not_asked_again() -> None:
    asked = []

    def measure(workers: int) -> Probe | None:
        asked.append(workers)
        return probe(workers, cpu_bound(workers)) if workers != 7 else None

    made = Search(
        Curve(557, 530, 1050, True), None, measure, lambda: 64, lambda: 4, [probe(0, 557)]
    )
    made.run(7)
    assert asked[0] == 7 and asked.count(7) == 1
    assert made.chosen().workers == 2


def test_without_workers_the_gpu_waits_for_every_batch() -> None:
    as_fast = Point(0, 1000.0, 0.0, 1)
    assert delivered(as_fast, 1000.0) == pytest.approx(500)
    assert not feeds(as_fast, 1000.0)
    assert feeds(Point(0, 50_000.0, 0.0, 1), 1000.0)
    assert delivered(Point(2, 900.0, 0.0, 1), 1000.0) == 900


@pytest.mark.parametrize("error", [0.001, 0.04])
def test_a_tie_is_three_percent_however_noisy(error: float) -> None:
    def chosen(fewer: float) -> int:
        points = [Point(2, fewer, error, 1), Point(4, 1000.0, error, 1)]
        return choose(points, None).workers

    assert chosen(975.0) == 2
    assert chosen(965.0) == 4


def test_probes_of_one_number_are_taken_together_with_their_spread() -> None:
    one, two = probe(4, 900.0), probe(4, 1100.0)
    (point,) = points_of([one, two])
    assert (point.rate, point.probes) == (1000.0, 2)
    # Of one more process: the deviation is 141, and the mean itself is not known better than 100.
    assert point.relative_error == pytest.approx((141.4**2 + 100**2) ** 0.5 / 1000, rel=0.01)


@pytest.mark.parametrize(
    ("rates", "probes"), [([500.0] * 9, 2), ([500, 560, 530, 530], 3), ([500, 900] * 9, 6)]
)
def test_what_is_promised_rests_on_more_processes_the_more_these_differ(
    rates: list[float], probes: int
) -> None:
    coming = iter(rates)

    def measure(workers: int) -> Probe:
        return probe(workers, next(coming))

    made = Search(
        Curve(43, 43, 1000, True), None, measure, lambda: 64, lambda: 4, [measure(2), probe(0, 1)]
    )
    made.settle()
    assert [point.probes for point in made.points()] == [1, probes]


def test_contenders_are_the_chosen_and_its_rivals() -> None:
    points = points_of([probe(0, 100), probe(2, 800), probe(4, 990), probe(8, 1000)])
    assert contenders(points, None) == (4, 2, 8)
    assert contenders([*points, Point(1, 300, 0.01, 1)], None) == (4, 2, 8), "of all, two"
    assert contenders(points[:1], None) == (0,)


def test_a_process_alone_that_is_not_far_off_gets_a_second_chance() -> None:
    points = points_of([probe(0, 850), probe(2, 800), probe(4, 990), probe(8, 1000)])
    assert contenders(points, None) == (4, 0, 2, 8)
    points = points_of([probe(0, 600), *(probe(p.workers, p.rate) for p in points[1:])])
    assert contenders(points, None) == (4, 2, 8)  # twice as fast it would still be too slow
    assert contenders(points, 5000.0) == (4, 0, 2, 8)
    points = points_of([probe(0, 1000), probe(2, 600), probe(4, 500)])
    assert contenders(points, None) == (0, 2)


def test_a_worker_that_is_as_good_as_none_works_while_the_gpu_does() -> None:
    alike = points_of([probe(0, 1010), probe(2, 1000), probe(4, 1020)])
    assert choose(alike, None).workers == 2
    assert choose(alike, 900.0).workers == 2
    assert choose(alike, 10.0).workers == 0  # it hardly waits


def test_none_must_be_clearly_faster_where_nobody_knows_how_quick_the_gpu_is() -> None:
    close = points_of([probe(0, 1500), probe(2, 900), probe(4, 1000)])
    assert choose(close, None).workers == 4
    assert [choose(close, gpu).workers for gpu in (900.0, 2000.0, 10_000.0)] == [4, 4, 0]
    assert choose(points_of([probe(0, 1700), probe(4, 1000)]), None).workers == 0


def test_fewer_are_tried_where_the_first_are_too_many() -> None:
    """A disk that seeks itself to death, libraries with threads of their own."""
    rates = {9: 21, 6: 120, 4: 189, 3: 145, 2: 97}
    asked = []

    def measure(workers: int) -> Probe:
        asked.append(workers)
        return probe(workers, rates[workers])

    made = Search(Curve(48, 48, 5000, True), 380, measure, lambda: 64, lambda: 4, [probe(0, 48)])
    made.run(0)
    assert asked[:3] == [9, 4, 2]
    assert made.chosen().workers == 4


def test_ready_samples_are_not_searched_further_down_than_rates_rise() -> None:
    rates = {4: 8000, 2: 7500, 1: 4600}
    asked = []

    def measure(workers: int) -> Probe:
        asked.append(workers)
        return probe(workers, rates[workers])

    curve = Curve(16_500, 5000, 20_000, False)
    made = Search(curve, None, measure, lambda: 4, lambda: 4, [probe(0, 16_500)])
    made.run(None)
    assert asked == [4, 2]
    assert made.chosen().workers == 0
