"""How workers share what a process may have open."""

from __future__ import annotations

import resource

import pytest

from hostprep.errors import Refused
from hostprep.staging.processes.descriptors import (
    Descriptors,
    check_descriptors,
    fitting_processes,
    share_descriptors,
)

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
@pytest.mark.parametrize("limit", [64, 80, 128, 256, 512, 1024, 4096, 65_536])
def test_the_shares_of_all_fit(limit: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(limit, limit)
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    each = share_descriptors(workers)
    assert each.directories >= 2 and each.ahead >= 1
    assert 1 <= each.workers <= workers
    at_hand, beside = 4, min(64, limit // 2)
    assert each.workers * (3 * each.directories + each.ahead + at_hand) <= limit - beside
    if limit >= 512:  # enough for each to do something
        assert each.workers == workers
    if limit == 65_536:
        assert each == Descriptors(workers=workers)


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "fitting"),
    [
        (1024, 4096, 2, 2),
        (1024, 4096, 400, 400),
        (256, 256, 128, 48),
        (64, 64, 128, 8),
        (8, 8, 2, 1),
    ],
)
def test_there_are_as_many_processes_as_there_may_be_pipes(
    soft: int, hard: int, wanted: int, fitting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    assert fitting_processes(wanted) == fitting
    assert fitting_processes(0) == 0


def test_what_could_not_get_to_its_end_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits(20, 63)
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    with pytest.raises(Refused) as error:
        check_descriptors()
    assert "no more than 63 open files" in error.value.message
    assert "nothing was changed" in error.value.message
    limits.now = (20, 64)
    check_descriptors()
    assert limits.now == (64, 64)
