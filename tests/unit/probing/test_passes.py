"""The passes of fio in a budget of time, on storage and with a clock that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hostprep.probing import fio
from hostprep.probing.layout import Layout
from hostprep.probing.model import RANDOM_READS, SEQUENTIAL_READS, FioRun, Latency
from hostprep.probing.observer import Silent
from hostprep.probing.passes import WANTED, Passes, Read
from tests.unit.probing.made import QUIET

START_SECONDS = 0.4


class Storage:
    """Storage that answers ``at_a_time`` requests side by side, in so many seconds each.

    Its clock goes on by what a real fio would take: its start, its time, and what was under way.
    """

    def __init__(self, random: float, sequential: float, at_a_time: int = 1) -> None:
        self.now = 0.0
        self.asked: list[tuple[str, int]] = []
        self.given_up: list[float] = []
        self._each = {"randread": random, "read": sequential}
        self._at_a_time = at_a_time

    def measure(self, job: fio.Job, **more: object) -> FioRun:
        self.asked.append((job.pattern, job.depth))
        assert isinstance(more["within_seconds"], float)
        self.given_up.append(self.now + more["within_seconds"])
        each, served = self._each[job.pattern], min(self._at_a_time, job.depth)
        done = served / each * job.seconds + job.depth
        took = max(job.seconds, done * each / served)
        self.now += START_SECONDS + took
        latency = each * job.depth / served
        return FioRun(
            pattern=job.pattern,
            block_bytes=job.block_bytes,
            depth=job.depth,
            read_bytes=int(done * job.block_bytes),
            seconds=took,
            bytes_per_s=done * job.block_bytes / took,
            iops=done / took,
            latency=Latency(latency, latency, latency),
            load=QUIET,
        )


def read(storage: Storage, seconds: float, most: float, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.setattr(fio, "measure", storage.measure)
    file = Layout(0, "/data/file", 64 << 20, holes=False)
    passes = Passes(
        file,
        direct=True,
        left=lambda: seconds - storage.now,
        most_seconds=most,
        disks=(),
        loading_seconds=0.0,
        observer=Silent(),
        tell=lambda _: None,
    )
    return passes.read()


def depths(found: Read) -> list[tuple[str, int]]:
    return [(run.pattern, run.depth) for run in found.runs]


@pytest.mark.parametrize("requests_a_second", [3, 8, 15, 40, 200])
@pytest.mark.parametrize("seconds", [2.0, 3.0, 6.0, 15.0, 40.0])
def test_what_is_under_way_at_the_end_arrives_within_the_time(
    requests_a_second: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(1 / requests_a_second, 2 / requests_a_second)
    found = read(storage, seconds, seconds / 5, monkeypatch)
    # What reads one at a time cannot know what a request takes, and is made nonetheless.
    assert storage.now <= seconds + 0.35 + 3 / requests_a_second
    assert {("read", 1), ("randread", 1)} <= set(depths(found))
    for fewer in found.fewer:
        assert (fewer.wanted, fewer.used in (None, 4, 8, 16)) == (32, True)
        assert "32 at a time need" in fewer.message and "there was only" in fewer.message
    made = {(run.pattern, run.depth) for run in found.runs}
    for pattern, of in (("read", SEQUENTIAL_READS), ("randread", RANDOM_READS)):
        told = [fewer.used for fewer in found.fewer if fewer.of == of]
        assert (
            (pattern, 32) in made
            or (len(told) == 1 and told[0] is None)
            or ((pattern, told[0]) in made)
        )


def test_with_time_enough_all_passes_are_made_in_the_order_that_people_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = Storage(1 / 8, 1 / 6)
    found = read(storage, 40.0, 3.0, monkeypatch)
    assert depths(found) == [("read", 1), ("read", 32), ("randread", 1), ("randread", 32)]
    assert found.fewer == () and found.note is None
    # One at a time first: only then is it known what many would take.
    assert [depth for _, depth in storage.asked] == [1, 1, 32, 32]


def test_storage_far_away_is_asked_at_full_depth_in_the_usual_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenth of a second a request: 32 of them would be 4 s, were they answered in a row."""
    storage = Storage(0.1, 0.1, at_a_time=32)
    found = read(storage, 16.0, 3.0, monkeypatch)
    assert len(found.runs) == 4 and found.fewer == ()


def test_time_that_nobody_needs_goes_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 MB/s: small reads have arrived at once, so that large ones get the more of the time."""
    storage = Storage(1 / 1200, 1 / 4.8)
    found = read(storage, 7.8, 1.2, monkeypatch)
    (fewer,) = found.fewer
    assert (fewer.of, fewer.used) == (SEQUENTIAL_READS, 8)
    assert ("randread", 32) in depths(found)
    assert storage.now <= 8.1


def test_without_any_time_nothing_is_read_and_all_of_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = Storage(0.001, 0.001)
    found = read(storage, 0.3, 0.5, monkeypatch)
    assert storage.asked == [] and found.runs == ()
    assert [(fewer.of, fewer.wanted, fewer.used) for fewer in found.fewer] == [
        (wanted.of, wanted.depth, None) for wanted in WANTED
    ]
    assert all("were left out: there was only" in fewer.message for fewer in found.fewer)


def test_how_fast_storage_answers_is_told_in_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(Storage(1 / 50_000, 1 / 0.4), 1.2, 0.5, monkeypatch)
    told = {fewer.of: fewer.message for fewer in found.fewer}
    assert "by the 50,0" in told[RANDOM_READS] and "e+" not in told[RANDOM_READS]
    assert "the 0.40 a second of one at a time" in told[SEQUENTIAL_READS]


def test_no_pass_is_waited_for_long_after_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = Storage(0.001, 0.001)
    read(storage, 4.0, 0.5, monkeypatch)
    assert max(storage.given_up) < 4.0 + 2.5


def test_a_pass_that_does_not_end_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(0.001, 0.001)
    whole = storage.measure

    def measure(job: fio.Job, **more: object) -> FioRun:
        if job.depth > 1:
            raise fio.FioTooLate("fio did not end.", "see `dmesg`")
        return whole(job, **more)

    monkeypatch.setattr(storage, "measure", measure)
    found = read(storage, 10.0, 1.0, monkeypatch)
    assert [run.depth for run in found.runs] == [1, 1]
    assert found.note == "fio did not end: see `dmesg`"


def test_the_first_few_that_a_limit_lets_through_do_not_make_it_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = Storage(1 / 8, 1 / 8)
    whole = storage.measure
    monkeypatch.setattr(
        storage, "measure", lambda job, **more: replace(whole(job, **more), iops=100.0)
    )
    found = read(storage, 4.0, 0.5, monkeypatch)
    assert storage.now < 4.5
    assert len(found.fewer) == 2
