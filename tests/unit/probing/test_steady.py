"""Storage that gave less in the end than in the beginning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hostprep.host.block import StorageClass
from hostprep.probing.contradictions import contradictions
from hostprep.probing.judge import judge
from hostprep.probing.judgement import Behaviour, Verdict
from hostprep.probing.model import FioRun, Load, Measured
from hostprep.probing.needs import parse_need
from tests.unit.probing.made import fio_run, measured, small_files, small_run, storage

MIB = 1 << 20


def counted(
    sequential: tuple[float, float],
    random: tuple[float, float] = (4000, 4900),
    small: tuple[float, float] = (150, 200),
    *,
    late: float | None = None,
) -> Measured:
    """A disk that counts what it delivers: each rate by one, and by many at a time."""
    rates = {"read": sequential, "randread": random}
    runs = tuple(
        with_load(fio_run(pattern, depth, rate))
        for pattern, pair in rates.items()
        for depth, rate in zip((1, 32), pair, strict=True)
    )
    cold = tuple(
        replace(run, load=Load(0.2, run.read_bytes, None, 0, run.files, 0, run.seconds))
        for run in map(small_run, (1, 8), small)
    )
    if late is not None:
        runs = (replace(runs[0], late_bytes_per_s=late * runs[0].bytes_per_s), *runs[1:])
    return measured(storage=storage(StorageClass.VIRTUAL), fio=runs, small=small_files(cold=cold))


def with_load(run: FioRun) -> FioRun:
    requests = int(run.iops * run.seconds)
    return replace(run, load=Load(0.2, run.read_bytes, None, 0, requests, 0, run.seconds + 0.5))


def told(of: Measured) -> list[tuple[str | None, str]]:
    return [(one.of, one.message) for one in contradictions(of) if one.code == "slowed_down"]


@pytest.mark.parametrize(
    "of",
    [
        counted((20, 20)),
        counted((500, 260)),
        counted((20, 20), late=0.7),
        # Faster in the end, as where a server has to find its data first.
        counted((20, 20), late=1.6),
        counted((20, 200)),
        # Small files as fast as requests of their size are, by many at a time.
        counted((500, 500), (2000, 40_000), (1500, 4900)),
    ],
)
def test_what_is_about_the_same_or_grows_is_no_doubt(of: Measured) -> None:
    assert told(of) == []


def test_a_pass_of_fio_that_slows_down_is_told() -> None:
    [(of, message)] = told(counted((20, 20), late=0.3))
    assert of is None
    assert "fio (read, depth 1) gave 21.0 MB/s, but 6.29 MB/s in the second half" in message


def test_few_requests_tell_nothing() -> None:
    assert told(counted((4, 4), late=0.5)) == []
    assert told(counted((13, 13), late=0.4)) == []  # of 39 reads 20 were to be expected, 8 came


def test_a_credit_that_ends_between_two_passes_is_told() -> None:
    [(of, message)] = told(counted((940, 20)))
    assert of is None
    assert "986 MB/s one at a time, and later 21.0 MB/s with 32 at a time" in message


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (counted((20, 20), small=(150, 9000)), ("900 MB/s", "21.0 MB/s")),
        # A limit of requests lets large ones through.
        (counted((200, 200), (300, 300), (1500, 1600)), ("1,500 requests", "300 requests")),
    ],
)
def test_small_files_before_the_credit_ended_are_told(of: Measured, words: tuple[str, ...]) -> None:
    [(about, message)] = told(of)
    assert about == "small files"
    assert all(word in message for word in words)


def test_fewer_at_a_time_than_readers_contradict_nobody() -> None:
    few = counted((20, 20), small=(150, 9000))
    few = replace(few, fio=tuple(run for run in few.fio if run.depth == 1))
    assert told(few) == []
    random_alone = replace(few, fio=(*few.fio, counted((20, 20)).fio[-1]))
    assert told(random_alone) == []


@pytest.mark.parametrize(
    "of",
    [
        counted((20, 20), small=(150, 9000)),
        counted((940, 20)),
        counted((20, 20), late=0.3),
        counted((200, 200), (868, 118_845)),
    ],
)
def test_what_a_cache_answered_does_not_tell_what_disks_can(of: Measured) -> None:
    assert {"slowed_down", "sped_up"} & {one.code for one in contradictions(of)}
    runs = tuple(replace(run, load=replace(run.load, device_bytes=4096)) for run in of.fio)
    assert {one.code for one in contradictions(replace(of, fio=runs))} == {"not_delivered"}


def test_what_is_no_disk_may_suffer_from_many_requests() -> None:
    network = counted((940, 20), small=(150, 90_000))
    runs = tuple(replace(run, load=Load(0.2, None)) for run in network.fio)
    assert told(replace(network, fio=runs)) == []


@pytest.mark.parametrize(("need", "verdict"), [("3000", Verdict.INVALID), ("30000", Verdict.FAIL)])
def test_a_rate_that_does_not_last_passes_nothing_and_may_fail(need: str, verdict: Verdict) -> None:
    of = counted((20, 20), small=(150, 9000))
    assert judge(of, parse_need(need)).verdict is verdict


@pytest.mark.parametrize("need", ["100", "3000"])
def test_a_limit_that_was_lifted_is_told_and_decides_nothing(need: str) -> None:
    of = counted((200, 200), (868, 118_845))  # as measured: 200 IOPS, until the middle of a pass
    judged = judge(of, parse_need(need))
    assert judged.verdict is Verdict.INVALID
    assert judged.behaviour is Behaviour.UNCLEAR
    [message] = [one.message for one in judged.invalid if one.code == "sped_up"]
    assert "868 IOPS one at a time, and later 118,845 with 32 at a time, 137 times" in message


def test_a_queue_may_gain_what_it_can() -> None:
    for of in (counted((20, 640)), counted((200, 200), (1000, 60_000))):
        assert "sped_up" not in {one.code for one in contradictions(of)}
    far = counted((200, 200), (868, 118_845))
    runs = tuple(replace(run, load=Load(0.2, None)) for run in far.fio)
    assert "sped_up" not in {one.code for one in contradictions(replace(far, fio=runs))}


def test_processors_that_were_full_may_have_been_the_reason() -> None:
    full = counted((20, 20), late=0.4)
    run = replace(full.fio[0], load=replace(full.fio[0].load, cpu_busy=0.99))
    ((of, message),) = told(replace(full, fio=(run, *full.fio[1:])))
    assert of is None and "others took the processors, or the storage slowed down" in message
    ((_, message),) = told(full)
    assert "others" not in message
