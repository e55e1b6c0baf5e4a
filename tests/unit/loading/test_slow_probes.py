"""Probes that take long, or come to nothing in time.

What they read counts as seen, and fewer workers follow; what the search can do without is noted.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest

from hostprep.errors import HostprepError, Inconclusive
from hostprep.loading import failures
from hostprep.loading import recommend as recommending
from hostprep.loading.curve import Ceiling, Curve, curve_of
from hostprep.loading.files.model import Stage, Stages
from hostprep.loading.measuring import measure as measuring
from hostprep.loading.measuring.following import GRACE_SECONDS, Following
from hostprep.loading.measuring.measure import Measurer
from hostprep.loading.model import Batching, Binding, FailedProbe, Transport
from hostprep.loading.pace import Pace
from hostprep.loading.report import Wish
from hostprep.loading.search import Search
from hostprep.loading.session import Run
from hostprep.loading.verdict.judging import modelled_points, report_of
from hostprep.system.run import start
from hostprep.units import GIB
from tests.unit.loading import making

LATER = 1e6


class Silent:
    """Hears nothing."""

    def note(self, message: str) -> None:
        """Take one sentence."""

    def going_on(self) -> None:
        """Hear that it is still going on."""


def measurer() -> Measurer:
    """Return one with all the time in the world, for batches of 32."""
    deadline = time.monotonic() + LATER
    return Measurer({}, "mine", 32, making.share(), deadline, 1.0, Silent())


def hung(phase: str) -> HostprepError:
    return failures.hung("mine", phase, 8, 20)


@pytest.mark.parametrize(
    ("error", "batches"),
    [
        (hung("opened"), 8),  # what the workers had in hand
        (hung("first_batch"), 8 * 2 + 20 + 24),
        (Inconclusive("too slow."), 8 * 2 + 20 + 24),
    ],
)
def test_what_a_probe_may_have_read_is_passed_over(
    error: HostprepError, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    asking = measurer()
    monkeypatch.setattr(Measurer, "_ask", fail)
    first = asking.first
    with pytest.raises(type(error)):
        asking.with_workers(8)
    assert asking.first - first == batches * 32


def test_a_sampler_of_batches_is_passed_over_batch_by_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> Any:
        raise hung("opened")

    asking = measurer()
    asking.subject = making.subject(batching=Batching.BATCH_SAMPLER, batch_size=6)
    monkeypatch.setattr(Measurer, "_ask", fail)
    with pytest.raises(failures.Hung):
        asking.with_workers(8)
    assert asking.first == 8


@pytest.mark.parametrize(
    ("message", "kept", "workers", "told"),
    [
        ("KeyError: 'file'", ("worker_init_fn=worker_init_fn",), 2, True),
        ("AttributeError: 'NoneType' object has no attribute 'id'", (), 2, True),
        ("AttributeError: 'NoneType' object has no attribute 'id'", (), 0, False),
        ("KeyError: 'file'", ("shuffle=True",), 2, False),
    ],
)
def test_what_a_loader_may_have_missed_without_workers_is_told(
    message: str,
    kept: tuple[str, ...],
    workers: int,
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> Any:
        raise failures.LoaderFailed(message, "see /home/u/train.py:12")

    monkeypatch.setattr(Measurer, "_ask", fail)
    asking = measurer()
    asking.subject = making.subject(current_workers=workers, kept=kept)
    with pytest.raises(failures.LoaderFailed) as caught:
        asking.alone()
    hint = caught.value.hint or ""
    assert ("worker_init_fn is not called" in hint) is told
    assert hint.endswith("see /home/u/train.py:12")


@pytest.mark.parametrize(("seconds", "limit"), [(300, 150), (60, 30), (30, 20), (12, 10.5)])
def test_the_first_probe_may_take_half_of_the_time_where_there_is_much(
    seconds: float, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def note(self: Measurer, job: dict[str, Any], *_: Any) -> Any:
        asked.append(job["limit_seconds"])
        return {"iterable": asdict(making.pipeline())}

    monkeypatch.setattr(Measurer, "_ask", note)
    asking = measurer()
    asking.deadline = time.monotonic() + seconds
    asking.alone()
    assert asked == [pytest.approx(limit, abs=0.2)]


@pytest.mark.parametrize(
    ("seconds", "before", "opened"), [(0.1, 0.1, False), (60.0, 0.1, True), (0.1, 30.0, True)]
)
def test_more_time_is_also_for_opening_and_so_is_what_it_took_before(
    seconds: float, before: float, opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_OPENING_SECONDS", 0.0)
    asking = measurer()
    asking.source = {"loader": "email.message:Message"}  # imported soon, and no loader
    asking.deadline = time.monotonic() + seconds
    asking.opening_seconds = before
    with pytest.raises(HostprepError) as caught:
        asking.with_workers(2)
    assert isinstance(caught.value, failures.Hung) is not opened


@pytest.mark.parametrize(
    "error", [hung("opened"), Inconclusive("too slow."), failures.LoaderFailed("it raised.")]
)
def test_the_search_does_without_the_transport(
    error: HostprepError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Measurer, workers: int) -> Any:
        raise error

    run = searching(Slow)
    monkeypatch.setattr(Slow, "transport", fail)
    run._measure_transport()
    assert run.transport is None
    assert error.message in " ".join(run.notes)


def test_the_stages_may_fail_where_loaders_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise hung("start")

    monkeypatch.setattr(Measurer, "stages", fail)
    run = searching(Slow)
    recommending._time_stages(run, "files.json", 32, needed=False)
    assert run.stages is None
    assert "the stages were not timed" in run.notes[-1]
    with pytest.raises(failures.Hung):
        recommending._time_stages(run, "files.json", 32, needed=True)


class Slow(Measurer):
    """An arm: 107 samples a second, however many workers; more than 8 give no batch in time."""

    def with_workers(self, workers: int, **_: Any) -> Any:
        if workers > 8:
            raise failures.hung(self.what, "opened", workers, 20)
        return making.probe(workers, 107)


class Hanging(Slow):
    """Gives no batch, with any number of workers."""

    def with_workers(self, workers: int, **_: Any) -> Any:
        raise failures.hung(self.what, "opened", workers, 20)


def searching(kind: type[Slow]) -> Run:
    """Return a run that has timed the loader without workers."""
    share = making.share()
    deadline = time.monotonic() + LATER
    slow = kind({}, "mine", 32, share, deadline, 1.0, Silent())
    wish = Wish(None, None, 60.0, 224, measure=True, compare=False)
    run = Run(slow, wish, time.monotonic())
    waiting = 1 / 107
    run.cost = making.cost(
        seconds=waiting, worker_seconds=waiting, cpu_seconds=1e-4, waiting_seconds=waiting
    )
    run.curve = curve_of(run.cost, None, share.capacity_per_rank)
    run.search = Search(run.curve, None, run._probe, lambda: 64, lambda: 4, [making.probe(0, 107)])
    return run


def test_fewer_workers_are_tried_where_many_give_nothing_in_time() -> None:
    run = searching(Slow)
    assert run.search is not None
    run.search.run(None)
    assert run.search.chosen().workers == 1
    assert [probe.workers for probe in run.search.probes] == [0, 4, 2, 1]
    assert any("64 workers" in note for note in run.notes)


def test_a_loader_that_hangs_with_any_number_of_workers_is_remembered() -> None:
    run = searching(Hanging)
    assert run.search is not None
    run.search.run(None)
    assert len(run.search.probes) == 1
    assert run.came_to_nothing == {64, 4, 2, 1}


class Crowded(Hanging):
    """Gives batches where there are few workers; more do not start in time."""

    def with_workers(self, workers: int, **_: Any) -> Any:
        if workers > 2:
            return super().with_workers(workers)
        return making.probe(workers, 107 * workers)


@pytest.mark.parametrize(("kind", "hangs"), [(Crowded, False), (Hanging, True)])
def test_a_loader_hangs_that_does_so_with_few_workers(
    kind: type[Slow], hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "alone", lambda self: (making.probe(0, 107), found.cost))
    monkeypatch.setattr(Run, "_measure_transport", lambda self: None)
    monkeypatch.setattr(Pace, "affordable", lambda self: 1)
    found = searching(kind)
    monkeypatch.setattr(kind, "left", lambda self: 0.0 if found.came_to_nothing else 60.0)
    pool = {"dataset": "TypeError: cannot pickle '_queue.SimpleQueue' object"}
    found.measurer.subject = making.subject(pickle_errors=pool)
    if hangs:
        with pytest.raises(failures.Hung, match="with 2 workers") as caught:
            found.measure()
        assert (caught.value.hint or "").startswith("make pools of threads in the worker")
        return
    found.measure()
    assert found.search is not None
    assert [probe.workers for probe in found.search.probes] == [0, 2]


def test_few_workers_that_hung_are_not_asked_again_when_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = searching(Hanging)
    assert run._probe(2) is None
    monkeypatch.setattr(Hanging, "left", lambda self: 0.0)
    monkeypatch.setattr(Hanging, "with_workers", lambda self, *_: pytest.fail("asked again"))
    with pytest.raises(failures.Hung, match="with 2 workers"):
        run._ask_few()


class Spawned(Slow):
    """Workers of a loader that waits: they import for two seconds each before they begin."""

    spent_seconds = 0.0

    def left(self) -> float:
        return 60.0 - self.spent_seconds

    def with_workers(self, workers: int, **_: Any) -> Any:
        self.spent_seconds += 2.0 * workers
        assert self.left() > 0
        return making.probe(workers, 107 * workers)


@pytest.mark.parametrize("seen", [2.0, None])
def test_no_more_workers_are_tried_than_there_is_time_to_spawn(seen: float | None) -> None:
    run = searching(Spawned)
    assert run.search is not None
    run.search.affordable = run._pace().affordable
    run.measurer.subject = making.subject(start_method="forkserver")
    run.measurer.opening_seconds = 2.0 * run.measurer.host.capacity_per_rank
    run.measurer.start_seconds = seen
    run.search.run(None)
    assert run.search.chosen().workers >= 2
    assert run.measurer.starting_seconds(4) == pytest.approx(8.0)
    run.measurer.subject = making.subject(start_method="fork")
    assert 0 < run.measurer.starting_seconds(4) <= 8.0


def test_a_large_data_set_is_sent_to_each_worker_that_is_not_forked() -> None:
    """Before any was tried: memory that runs out takes more with it than a probe."""
    run = searching(Slow)

    def with_start(method: str) -> tuple[int, float, float | None]:
        run.measurer.subject = making.subject(
            start_method=method, pickle_bytes=3 * GIB, pickle_seconds=2.0
        )
        pace = run._pace()
        return run._most(), run.measurer.starting_seconds(2), pace.limit_seconds(2)

    most, starting, limit = with_start("fork")
    assert most > 16 and starting < 1 and limit is not None
    run.measurer.imports_once = True
    for method in ("forkserver", "spawn"):
        most, starting, longer = with_start(method)
        assert most == 2  # of half of 16 GiB
        assert starting > 2 * (2 * 2.0 + 6)
        assert longer is not None and longer > limit + starting - 1
    run.search = None
    run.transport = Transport(2, 1e5, 1e-5, worker_memory_bytes=2 * GIB)
    assert run._most() == 1
    run.search = Search(run.curve, None, run._probe, run._most, lambda: 4, [making.probe(4, 400)])
    assert run._most() > 16  # what a worker was seen to hold counts


class Forked(Slow):
    """Workers of a loader that waits, forked for 40 ms each; more than four are killed then."""

    spent_seconds = 0.0
    limits: list[float]

    def left(self) -> float:
        return 6.0 - self.spent_seconds

    def with_workers(
        self,
        workers: int,
        *,
        limit_seconds: float = 20.0,
        **_: Any,
    ) -> Any:
        self.limits.append(limit_seconds)
        self.spent_seconds += self.opening_seconds + 0.04 * workers
        if workers > 4:
            return FailedProbe(workers, Binding.MEMORY, "killed")
        self.spent_seconds += self.window_seconds
        return making.probe(workers, 107 * workers)


def test_the_first_workers_that_come_to_nothing_leave_time_for_fewer() -> None:
    run = searching(Forked)
    assert run.search is not None and isinstance(run.measurer, Forked)
    run.measurer.limits = []
    run.measurer.window_seconds = 0.8
    assert run.curve is not None and run.curve.proposal(None) >= 64
    run.search.run(None, run._pace().affordable_at_first)
    (failed, *_), (_, probe, *_) = run.search.failures, run.search.probes
    assert 4 < failed.workers < 20
    assert probe.workers in (2, 3, 4)
    assert run.measurer.limits[0] <= 3.0


def test_in_little_time_the_first_probe_is_of_as_many_as_it_suffices_for() -> None:
    run = searching(Forked)
    assert isinstance(run.measurer, Forked)
    run.measurer.window_seconds = 0.8
    run.measurer.spent_seconds = 6.0 - run.measurer.opening_seconds - 2.3
    assert 2 < run._pace().affordable_at_first() < 16


@pytest.mark.parametrize(
    ("current", "rate", "gpu_rate", "change", "words"),
    [
        (None, 500, None, None, "by the model; the bottleneck"),
        (0, 500, None, True, "by the model (num_workers=0 now)"),
        # As good as ready, by the model: that is no word on workers that nobody has tried.
        (0, 1e5, None, None, "the best that there was time to try: 100,000 samples/s (num_w"),
        (4, 1e5, None, None, "(num_workers=4 now, which there was too little time to try)"),
        (0, 1e5, 1e3, False, "no change needed: num_workers=0 now"),
    ],
)
def test_without_time_for_workers_the_model_speaks_and_that_is_noted(
    current: int | None,
    rate: float,
    gpu_rate: float | None,
    change: bool | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = searching(Slow)
    found.measurer.subject = making.subject(current_workers=current)
    found.wish = replace(found.wish, gpu_rate=gpu_rate)
    found.cost = making.cost(
        seconds=1 / rate, worker_seconds=1 / rate, cpu_seconds=1 / rate, collate_cpu_seconds=0.0
    )
    monkeypatch.setattr(Slow, "alone", lambda self: (making.probe(0, rate), found.cost))
    monkeypatch.setattr(Run, "_measure_transport", lambda self: None)
    seconds = found.measurer.opening_seconds + found._pace()._seconds(0, rate) + 0.01
    monkeypatch.setattr(Slow, "left", lambda self: seconds)  # for one more look without workers
    found.measure()
    assert found.search is not None
    assert [probe.workers for probe in found.search.probes] == [0]
    assert "their rate is the model's" in found.notes[-1]
    made = report_of(found, "loader").recommendation
    assert (made.change_needed, made.confirmed) == (change, made.num_workers == 0)
    assert words in made.verdict


@pytest.mark.parametrize("beside", [1.0, 0.2])
@pytest.mark.parametrize(("gpu", "noted"), [(None, True), (1000.0, False)])
def test_more_workers_that_there_was_no_time_for_are_noted(
    gpu: float | None, noted: bool, beside: float
) -> None:
    run = searching(Slow)
    assert run.search is not None
    run.gpu_rate = gpu
    clocked = making.probe(16, 1700 * beside)  # by other programs, which took the rest of it
    run.search.probes.append(replace(clocked, undisturbed_samples_per_s=1700))
    run.search.untried = 32
    run._note_untried()
    assert (
        any("no time to try 32 workers: the model predicts" in note for note in run.notes) is noted
    )


@pytest.mark.parametrize(("half", "noted"), [(5000, True), (9900, False)])
def test_more_workers_are_noted_where_the_rate_rose_beyond_the_model(
    half: float, noted: bool
) -> None:
    run = searching(Slow)
    assert run.search is not None and run.curve is not None and run.curve.rate(32) < 10_000
    run.search.probes += [making.probe(8, half), making.probe(16, 10_000)]
    run.search.untried = 32
    run._note_untried()
    assert any("32 workers, and the rate was still rising" in note for note in run.notes) is noted
    assert (run.better_untried == 32) is noted


@pytest.mark.parametrize(
    ("tried", "capacity", "noted"),
    [([0, 4], 2, True), ([0, 2, 4], 2, False), ([0, 4], 64, False), ([0, 1], 2, False)],
)
def test_fewer_workers_that_there_was_no_time_for_are_noted(
    tried: list[int], capacity: int, noted: bool
) -> None:
    run = searching(Slow)
    assert run.search is not None
    run.curve = Curve(100, 100, 100 * capacity, Ceiling.CPUS)
    run.search.probes += [making.probe(workers, 100 * max(1, workers)) for workers in tried]
    run._note_fewer_untried()
    assert any("fewer than 4 workers, and 2 may do as well" in n for n in run.notes) is noted


def test_where_there_is_time_the_first_probe_is_of_as_many_as_the_model_says() -> None:
    run = searching(Slow)
    assert run._pace().affordable_at_first() == 64


def test_likely_rates_fall_with_what_probes_have_shown() -> None:
    run = searching(Slow)
    assert run.search is not None
    assert run._pace().likely_rate(8) > 500
    run.search.probes.append(making.probe(4, 107))
    assert run._pace().likely_rate(8) == pytest.approx(214)
    assert run._pace().likely_rate(2) == pytest.approx(107)


class Told:
    """A child that tells its events one by one, each so many seconds after the one before."""

    def __init__(self, now: list[float], events: list[tuple[float, str]]) -> None:
        self.now = now
        self.events = events

    def chunks(self, *, timeout_seconds: float) -> Iterator[bytes]:
        for after, event in self.events:
            for _ in range(round(after)):
                self.now[0] += 1
                yield b""
            told = {"event": event, "pids": [1, 2], "seconds": 0.3, "result": {}}
            yield json.dumps(told).encode() + b"\n"


def test_until_workers_are_started_they_have_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(
        *events: tuple[float, str], workers: int, patience: float = math.inf
    ) -> dict[str, Any]:
        now = [LATER]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        child: Any = Told(now, list(events))
        return asking._listen(child, {"job": "probe"}, 4.0, workers, patience, [])

    asking = measurer()
    busy = [(1, "opened"), (20, "workers"), (8, "first_batch"), (0, "result")]
    assert told(*busy, workers=64) == {}
    assert asking.starting_seconds(10) == pytest.approx(1.5)  # as it took just now
    with pytest.raises(failures.Hung, match="gave no batch with 2 workers within 10 s"):
        told(*busy, workers=2)
    with pytest.raises(failures.Hung, match="gave no batch with 64 workers within 10 s"):
        told((1, "opened"), (20, "workers"), (20, "first_batch"), workers=64)
    with pytest.raises(failures.Hung, match="gave no batch with 64 workers within 6 s"):
        told(*busy, workers=64, patience=5)
    assert told(*busy, workers=64, patience=8) == {}


def test_a_child_that_closes_its_way_back_is_told_in_a_sentence() -> None:
    """As a module does that closes all descriptors, to be a daemon."""
    script = "import os, time; os.close(1); time.sleep(300)"
    following = Following(
        "probe", "mine:data", 0, 60, 60, lambda *_: None, lambda _: None, lambda: None
    )
    with (
        start([sys.executable, "-c", script], wanted_for="test") as child,
        pytest.raises(failures.LoaderFailed, match="closed the files that it had open"),
    ):
        following.result(child)


def test_many_workers_make_their_first_batches_at_once_and_have_that_long() -> None:
    run = searching(Slow)
    assert run.search is not None and run.curve is not None
    assert run._pace().first_batch_seconds(4) == math.inf  # few are not in each other's way
    assert run._pace().first_batch_seconds(64) == 4.0  # less than that is nothing to wait for
    run.ceiling = 40
    assert run._pace().first_batch_seconds(8) == pytest.approx(3 * 8 * 32 / 40)
    run.search.probes[0] = making.probe(0, 107, first_batch_seconds=9.0)
    once = 9.0 - 32 / 107
    assert run._pace().once_seconds() == pytest.approx(once)
    assert run._pace().first_batch_seconds(8) == pytest.approx(once + 3 * 8 * 32 / 40)
    run.measurer.subject = making.subject(start_method="spawn")
    run.measurer.start_seconds = 2.0
    assert run._pace().first_batch_seconds(8) == pytest.approx(once + 3 * (8 * 32 / 40 + 16))
    run.search.probes.append(making.probe(8, 300))
    assert run._pace().first_batch_seconds(64) == math.inf  # that they give batches is known


def test_what_is_done_once_before_the_first_batch_has_its_time() -> None:
    run = searching(Slow)
    assert run.search is not None
    before = run._pace().limit_seconds(8)
    run.search.probes[0] = making.probe(0, 107, first_batch_seconds=13 + 32 / 107)
    after = run._pace().limit_seconds(8)
    assert before is not None and after == pytest.approx(before + 13)


class Connecting(Slow):
    """Workers that need a while to begin; many more than there is time for them."""

    def with_workers(self, workers: int, **_: Any) -> Any:
        if workers > 8:
            raise failures.TooSlow("too slow.", None, 40)
        return making.probe(workers, 107 * workers)


def test_after_few_workers_the_search_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = searching(Connecting)
    monkeypatch.setattr(Connecting, "alone", lambda self: (making.probe(0, 107), found.cost))
    monkeypatch.setattr(Run, "_measure_transport", lambda self: None)
    monkeypatch.setattr(Pace, "affordable", lambda self: 16)
    limits = iter([None])  # for the 16 that there is no time for at first
    real = Pace.limit_seconds
    monkeypatch.setattr(
        Pace, "limit_seconds", lambda self, n: next(limits, 1.0) if n == 16 else real(self, n)
    )
    found.measure()
    assert found.search is not None
    assert found.search.chosen().workers == 8
    assert found.came_to_nothing == {64, 16}
    assert not any("no time to try" in note for note in found.notes)


def test_the_model_promises_no_more_than_a_probe_that_was_too_slow_had_shown() -> None:
    run = searching(Slow)
    assert run.search is not None
    run._take_note(64, failures.TooSlow("too slow.", None, 5))
    assert run._pace().likely_rate(16) == pytest.approx(5 * 32)
    assert max(point.rate for point in modelled_points(run, [])) == pytest.approx(5 * 32)


@pytest.mark.parametrize(
    ("current", "left", "timed"), [(2, 15, False), (2, 25, True), (0, 15, True)]
)
def test_what_is_set_now_and_the_proposal_come_before_the_transport(
    current: int, left: float, timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    run = searching(Slow)
    run.measurer.subject = making.subject(current_workers=current)
    run.measurer.opening_seconds, run.measurer.window_seconds = 2.5, 1.0
    monkeypatch.setattr(Slow, "left", lambda self: left)
    monkeypatch.setattr(Slow, "transport", lambda self, workers: asked.append(workers))
    run._measure_transport()
    assert bool(asked) is timed


def test_a_leap_to_many_workers_leaves_time_for_fewer_and_a_step_has_its_own() -> None:
    run = searching(Slow)
    assert run.search is not None
    run.search.probes.append(making.probe(2, 214))
    assert [run._pace().is_leap(workers) for workers in (2, 4, 16, 17, 64)] == [False] * 3 + [
        True
    ] * 2
    assert run._pace().first_batch_seconds(16) == math.inf
    assert run._pace().first_batch_seconds(64) == 4.0


def test_workers_that_import_first_have_time_for_it_whatever_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    late = measurer()
    late.deadline, late.opening_seconds = time.monotonic(), 6.0
    monkeypatch.setattr(
        Measurer, "_ask", lambda self, job, limit, *_: asked.append(limit) or {"probe": {}}
    )
    for method in ("fork", "spawn"):
        late.subject = making.subject(start_method=method)
        late._ask_probe(4)
    assert asked == pytest.approx([4.0, 4.0 + 4 * 6.0 / 8])  # on the eight processors of the host


@pytest.mark.parametrize(("spare", "grace"), [(-3.0, 2.0), (3.0, 3.0), (60.0, 5.0)])
def test_a_batch_under_way_is_waited_for_as_long_as_there_is_time(
    spare: float, grace: float
) -> None:
    script = 'import time; print(\'{"event": "opened"}\', flush=True); time.sleep(300)'
    opened: list[float] = []
    following = Following(
        "probe",
        "mine:data",
        0,
        patience_seconds=60,
        limit_seconds=0.1,
        on_opened=lambda *_: opened.append(time.monotonic()),
        on_workers=lambda _: None,
        on_waiting=lambda: None,
        spare_seconds=spare,
    )
    with (
        start([sys.executable, "-c", script], wanted_for="test") as child,
        pytest.raises(failures.Hung, match="gave no batch without workers"),
    ):
        following.result(child)
    assert grace <= time.monotonic() - opened[0] < grace + 2


def test_many_workers_that_hang_leave_half_of_the_time_for_fewer() -> None:
    run = searching(Slow)
    run.measurer.deadline = time.monotonic() + 40
    limit = run._pace().limit_seconds(16)
    assert limit is not None
    waited = run.measurer.starting_seconds(16) + limit + GRACE_SECONDS
    assert waited <= 20.1


@pytest.mark.parametrize("error", [hung("opened"), Inconclusive("the first batch took 9 s.")])
def test_files_of_which_no_batch_comes_in_time_are_told_by_their_stages(
    error: HostprepError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Measurer) -> Any:
        raise error

    monkeypatch.setattr(Measurer, "alone", fail)
    wish = Wish(None, None, 60.0, 224, measure=True, compare=False)
    run = Run(measurer(), wish, time.monotonic())
    with pytest.raises(type(error)):
        recommending._measure(run, 32)  # nothing is known of it
    names = ("read_as_is", "read_cold", "read_warm", "decode", "resize", "collate")
    each = tuple(Stage(name, 0.2, 0.001) for name in names)
    run.stages = Stages("image", "pillow", 3, 0, "", 1e5, 600_000, each, "fuse", "far")
    with pytest.raises(type(error)):
        recommending._measure(run, 32)  # it was not even opened: too short, for instance
    run.measurer.subject = making.subject()
    recommending._measure(run, 32)
    assert run.curve is not None
    assert any("not confirmed by a DataLoader" in note for note in run.notes)


@pytest.mark.parametrize(
    ("left", "opening", "workers"),
    [(3.0, 0.0, 1), (6.0, 0.0, 2), (18.0, 0.0, 8), (18.0, 1.5, 4), (18.0, 7.0, 1)],
)
def test_a_third_of_the_time_is_for_a_probe_of_workers_that_do_not_help(
    left: float, opening: float, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two take 1.84 s at a tenth of a second a batch, four 2.76, eight 5.00 and sixteen 9.48."""
    measurer = Measurer({}, "mine", None, making.share(), time.monotonic(), 0.1, Silent())
    measurer.opening_seconds = opening
    monkeypatch.setattr(Measurer, "left", lambda _: left)
    monkeypatch.setattr(Measurer, "starting_seconds", lambda *_: 0.0)
    pace = Pace(measurer, 10, Curve(100, 100, 1000, Ceiling.CPUS), ())
    assert pace.affordable() == workers
