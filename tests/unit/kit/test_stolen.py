"""How often it is looked whether the machine keeps time."""

from __future__ import annotations

import pytest

from tests.kit import stolen


def test_that_it_does_stands_for_some_seconds_and_is_then_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, looks = 1000.0, iter([1e-3, 20e-6, 30e-6])  # at first it does not
    waited = []

    def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(stolen, "round_trip_seconds", lambda: next(looks))
    monkeypatch.setattr(stolen, "_kept_time_at", None)
    monkeypatch.setattr(stolen, "_waited", 0.0)
    monkeypatch.setattr(stolen.time, "monotonic", lambda: now)
    monkeypatch.setattr(stolen.time, "sleep", wait)
    assert stolen.why_no_time_is_kept() is None and waited == [5]
    now += 14
    assert stolen.why_no_time_is_kept() is None and next(looks, None) == 30e-6
    now += 2
    with pytest.raises(StopIteration):
        stolen.why_no_time_is_kept()
