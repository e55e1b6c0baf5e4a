"""How workers share what a process may have open."""

from __future__ import annotations

import resource

import pytest

from hostprep.staging.processes.descriptors import Descriptors, share_descriptors

INFINITE = resource.RLIM_INFINITY


class Limits:
    """Stands in for the kernel's limits of this process."""

    def __init__(self, soft: int, hard: int) -> None:
        self.now = (soft, hard)

    def get(self, kind: int) -> tuple[int, int]:
        return self.now

    def set(self, kind: int, limits: tuple[int, int]) -> None:
        assert INFINITE in (self.now[1], limits[0]) or limits[0] <= self.now[1] == limits[1]
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "workers", "left"),
    [
        (1024, 524_288, 1, 1024),  # enough as it is
        (1024, 524_288, 32, 32 * 324 + 64),
        (1024, INFINITE, 32, 32 * 324 + 64),
        (1024, 4096, 32, 4096),
        (65_536, 65_536, 32, 65_536),
    ],
)
def test_the_limit_is_raised_as_far_as_is_needed(
    soft: int, hard: int, workers: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    share_descriptors(workers)
    assert limits.now == (left, hard)


@pytest.mark.parametrize("workers", [1, 2, 8, 32])
@pytest.mark.parametrize("limit", [256, 512, 1024, 4096, 65_536])
def test_the_shares_of_all_fit(limit: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(limit, limit)
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    each = share_descriptors(workers)
    assert each.directories >= 2 and each.ahead >= 1
    at_hand = 4
    if (limit, workers) != (256, 32):  # the least that a worker needs is all that is left there
        assert workers * (3 * each.directories + each.ahead + at_hand) <= limit - 64
    if limit == 65_536:
        assert each == Descriptors()
