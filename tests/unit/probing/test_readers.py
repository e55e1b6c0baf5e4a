"""Whole files, read by one or several processes."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
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
    before = set(multiprocessing.active_children())  # of other tests
    with pytest.raises(HostprepError, match="no further process could be started") as error:
        read_whole_files(names, 8, 5)
    assert error.value.hint is not None and "ulimit -u" in error.value.hint
    assert not set(multiprocessing.active_children()) - before


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
    assert done.wall_seconds < 2


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
