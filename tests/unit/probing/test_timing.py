"""The time that a probe was given, counted down."""

from __future__ import annotations

import time

import pytest

from hostprep.probing.timing import Clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    return moment


def test_what_it_took_before_is_part_of_the_time(now: list[float]) -> None:
    clock = Clock(10, 3, fixed=0, elastic=0.5)
    assert (clock.passed(), clock.left(), clock.left(2), clock.by(1)) == (3, 7, 5, 106)
    now[0] += 9
    assert (clock.passed(), clock.left()) == (12, 0)


def test_a_part_is_never_more_than_is_left(now: list[float]) -> None:
    clock = Clock(10, 0, fixed=0, elastic=0.5)
    assert clock.part(0.2) == 2
    now[0] += 9
    assert clock.part(0.2) == 1
    assert clock.part(0.2, keep=0.5) == 0.5
    assert clock.part(0.2, keep=3) == 0


def test_with_little_time_the_elastic_phases_are_the_shorter(now: list[float]) -> None:
    assert Clock(30, 0, fixed=4, elastic=0.5).part(0.2, elastic=True) == 6
    short = Clock(6, 0, fixed=4, elastic=0.5)
    assert short.part(0.5, elastic=True) == pytest.approx(2)
    assert short.part(0.5) == 3
    assert Clock(6, 4, fixed=4, elastic=0.5).part(0.5, elastic=True) == pytest.approx(0.6)
