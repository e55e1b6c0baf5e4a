"""Whole files, read by one or several processes."""

from __future__ import annotations

import errno
import itertools
import os
import signal
from array import array
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError
from hostprep.probing import readers as module
from hostprep.probing.pass_rates import Cut, Pass, Told, lasting, together
from hostprep.probing.readers import read_whole_files
from hostprep.system import page_cache
from hostprep.units import MIB
from tests.unit.probing.folders import tree


def test_readers_that_may_not_be_started_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(file) for file in tree(tmp_path)]
    forks = itertools.count()
    fork = os.fork

    def limited() -> int:
        if next(forks) == 2:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    before = _children()
    with pytest.raises(HostprepError, match="no further process could be started") as error:
        read_whole_files(names, 8, 5)
    assert error.value.hint is not None and "ulimit -u" in error.value.hint
    assert not _children() - before


@pytest.mark.parametrize("readers", [1, 3])
def test_every_file_is_read_whole_and_once(tmp_path: Path, readers: int) -> None:
    files = tree(tmp_path, size=100_000)
    (tmp_path / "large").write_bytes(os.urandom(3 * MIB))
    (tmp_path / "empty").touch()
    aside = [str(tmp_path / "empty"), str(tmp_path / "missing")]
    names = [*map(str, files), str(tmp_path / "large"), *aside]
    before = files[0].stat().st_atime_ns
    done = read_whole_files(names, readers, 30)
    assert sorted(done.names) == sorted(names[:-2])
    assert (done.unreadable, done.empty) == (1, 1)
    assert dict(zip(done.names, done.sizes, strict=True)) == {
        name: os.path.getsize(name) for name in names[:-2]
    }
    assert all(seconds > 0 for seconds in done.seconds)
    assert done.files_per_s > 0 and done.bytes_per_s > done.files_per_s
    assert files[0].stat().st_atime_ns == before


def test_storage_that_fails_is_told_from_what_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(file) for file in tree(tmp_path)]
    read_whole = module._read_whole

    def failing(name: str, at: int | None, buffer: memoryview, end: float) -> tuple[int, int]:
        if name == names[7]:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return read_whole(name, at, buffer, end)

    monkeypatch.setattr(module, "_read_whole", failing)
    done = read_whole_files([*names, str(tmp_path / "missing")], 2, 30)
    assert (done.unreadable, done.fault) == (2, "Input/output error")
    assert read_whole_files([names[0], str(tmp_path / "missing")], 2, 30).fault is None


def test_what_took_a_files_place_neither_hangs_nor_leads_elsewhere(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path, files=4)]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(names[0])
    page_cache.evict(str(tmp_path / "pipe"))
    assert page_cache.resident_share([str(tmp_path / "pipe")]) is None
    done = read_whole_files([*names, str(tmp_path / "pipe"), str(tmp_path / "link")], 1, 30)
    assert sorted(done.names) == sorted(names)
    assert (done.unreadable, done.empty) == (1, 1)


def test_rates_are_files_over_time_for_one_reader(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path)]
    done = read_whole_files(names, 1, 30)
    assert done.files_per_s == pytest.approx(60 / done.wall_seconds)
    assert done.bytes_per_s == pytest.approx(sum(done.sizes) / done.wall_seconds)
    assert sum(done.seconds) <= done.wall_seconds


def test_time_ends_the_reading(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path)] * 100_000
    done = read_whole_files(names, 2, 0.3)
    assert 0 < len(done.names) < len(names)
    assert done.wall_seconds < 20  # for all of them it would be minutes


class Limited:
    """Storage behind a limit, and its clock: so many bytes at once, the others at a steady rate."""

    def __init__(self, at_once: float, bytes_per_s: float) -> None:
        self.at_once, self.bytes_per_s = at_once, bytes_per_s
        self.now = 0.0
        self.cached: set[str] = set()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self, name: str, at: None, buffer: object, end: float) -> tuple[int, int]:
        size = int(name)
        if name not in self.cached:
            waits = max(0.0, size - self.at_once)
            self.at_once = max(0.0, self.at_once - size)
            self.now += waits / self.bytes_per_s
            self.cached.add(name)
        self.now += 1e-5
        if self.now > end:
            size -= int((self.now - end) * self.bytes_per_s)
            self.now = end
        return size, int(name)

    def evict(self, name: str, **_: object) -> None:
        self.cached.remove(name)
        self.now += 1e-5


def read_behind(
    limit: Limited, monkeypatch: pytest.MonkeyPatch, sizes: list[int], at_least_seconds: float
) -> Pass:
    """Read files of these sizes, which are their names, by one reader."""
    monkeypatch.setattr(module, "time", limit)
    monkeypatch.setattr(module, "_read_whole", limit.read)
    monkeypatch.setattr(page_cache, "evict", limit.evict)
    names = [str(size) for size in sizes]
    return read_whole_files(names, 1, 4, at_least_seconds=at_least_seconds)


ALIKE = [100_000 + number for number in range(30)]


@pytest.mark.parametrize("at_once", [1_000_000, 3_500_000])
def test_what_a_limit_lets_through_at_once_is_not_the_rate(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a cgroup's does: what it allows in a tenth of a second, or a cloud's disk: far more."""
    done = read_behind(Limited(at_once, 10_000_000), monkeypatch, ALIKE, 1.5)
    assert done.bytes_per_s == pytest.approx(10_000_000, rel=0.02)
    assert done.files_per_s == pytest.approx(100, rel=0.02)
    assert done.early_files_per_s is not None and done.early_files_per_s > 140
    # Each file is told of once, and what it took is told of those that the rate is of.
    assert done.sizes.tolist() == ALIKE
    assert done.again_bytes > 10_000_000
    assert min(done.later_seconds) > 0.009


def test_of_memory_nobody_asks_whether_its_rate_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no limit: a rate that others make slower later is no credit that was used up."""
    done = read_behind(Limited(1_000_000, 10_000_000), monkeypatch, ALIKE, 0.0)
    assert (done.early_files_per_s, len(done.later_seconds)) == (None, 0)
    assert done.files_per_s == pytest.approx(30 / done.wall_seconds)


@pytest.mark.parametrize("at_least_seconds", [0.0, 1.5])
def test_a_rate_that_lasts_is_that_of_the_first_time(
    at_least_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = read_behind(Limited(0, 10_000_000), monkeypatch, ALIKE, at_least_seconds)
    assert done.files_per_s == pytest.approx(30 / done.wall_seconds)
    assert done.bytes_per_s == pytest.approx(10_000_000, rel=0.02)
    assert (done.early_files_per_s, len(done.later_seconds)) == (None, 0)
    assert bool(done.again_bytes) is bool(at_least_seconds)


@pytest.mark.parametrize("sizes", [[*ALIKE, 15_000_000], [15_000_000, *ALIKE]])
def test_large_files_among_small_ones_are_no_change_of_the_rate(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = read_behind(Limited(0, 10_000_000), monkeypatch, sizes, 1.5)
    assert done.early_files_per_s is None
    assert done.files_per_s == pytest.approx(31 / done.wall_seconds)


def test_a_file_that_the_time_does_not_suffice_for_takes_its_share_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a pass that soon meets a large file has the rate of the few before it."""
    limit = Limited(0, 10_000_000)
    done = read_behind(limit, monkeypatch, [*ALIKE[:20], 76_000_000, *ALIKE[20:]], 1.5)
    assert done.wall_seconds == pytest.approx(4)
    assert done.bytes_per_s == pytest.approx(10_000_000, rel=0.01)
    assert done.files_per_s == pytest.approx(20.5 / 4, rel=0.01)
    assert (len(done.names), done.early_files_per_s) == (20, None)
    assert done.cut_bytes == pytest.approx(38_000_000, rel=0.01)


def told(ends: list[float], sizes: list[int] | None = None, **changed: Any) -> Told:
    """Return what a reader did whose files came at these times."""
    fields: dict[str, Any] = {
        "seconds": array("d", (b - a for a, b in pairwise([0.0, *ends]))),
        "ends": array("d", ends),
        "sizes": array("q", sizes or [100] * len(ends)),
        "indices": array("q", range(len(ends))),
        "first": len(ends),
        "cut": None,
        "through": True,
        "unreadable": 0,
        "empty": 0,
        "fault": None,
    }
    return Told(**{**fields, **changed})


def test_rates_add_up_as_long_as_all_readers_are_at_work() -> None:
    """The last one has the storage to itself, which is no rate of several."""
    quick, slow = told([1, 2, 3, 3.5], first=3), told([2, 2.5, 6], cut=Cut(6.5, 40, 0.4))
    done = together([["a", "b", "c"], ["d", "e", "f"]], [quick, slow])
    assert done.names == ("a", "b", "c", "d", "e", "f")
    assert (list(done.seconds), list(done.sizes)) == ([1, 1, 1, 2, 0.5, 3.5], [100] * 6)
    assert done.files_per_s == pytest.approx(3 / 3 + 2 / 2.5)
    assert done.bytes_per_s == pytest.approx(100 * done.files_per_s)
    assert (done.wall_seconds, done.again_bytes, done.cut_bytes) == (3, 100, 0)
    # Where the time ended both, what each was reading at the end is in its rate.
    begun = [told([1, 2, 3], through=False), replace(slow, through=False)]
    done = together([["a", "b", "c"], ["d", "e", "f"]], begun)
    assert done.files_per_s == pytest.approx(3 / 3 + 3.4 / 6.5)
    assert done.bytes_per_s == pytest.approx(300 / 3 + 340 / 6.5)
    assert (done.wall_seconds, done.cut_bytes) == (6.5, 40)


@pytest.mark.parametrize(
    ("files_per_s", "ends", "size", "lasts"),
    [
        (8, [1.5, 2.0, 2.5, 3.0], 100, False),
        (10, [1.5, 2.0, 2.5, 3.0], 500, True),  # fewer files, but larger ones
        (109, [1.2 + number / 100 for number in range(181)], 1, True),  # smaller ones: 92 % of 196
        (2, [1.5, 3.0], 100, True),  # one less than the three expected, which may be chance
        (10, [], 100, True),
    ],
)
def test_a_rate_did_not_last_if_files_and_bytes_are_fewer_than_by_chance(
    files_per_s: float, ends: list[float], size: int, lasts: bool
) -> None:
    early = Pass((), array("d"), array("q"), files_per_s, 600, 1.0, 0, 0)
    # One of two ends at 3: from then on the other one is alone.
    both = [told([1.1, *ends, 3.5], [100, *[size] * len(ends), 100]), told([0.9, 3.0])]
    found = lasting(early, both)
    if lasts:
        assert found == early
        return
    assert (found.early_files_per_s, len(found.later_seconds)) == (files_per_s, 5)
    assert found.files_per_s == pytest.approx(4 / 1.5)
    assert found.bytes_per_s == pytest.approx(400 / 1.5)


def test_what_cannot_be_read_is_not_tried_for_ever(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    names = [str(tmp_path / "empty"), str(tmp_path / "missing")]
    done = read_whole_files(names, 1, 30, at_least_seconds=30)
    assert (done.names, done.unreadable, done.empty) == ((), 1, 1)


def test_a_readers_death_is_noticed(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path)] * 100_000
    before = _children()

    def kill_one() -> None:
        for child in _children() - before:
            os.kill(child, signal.SIGKILL)

    with pytest.raises(HostprepError, match="died"):
        read_whole_files(names, 1, 3, kill_one)
    assert not _children() - before


def _children() -> set[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in text.split()}
