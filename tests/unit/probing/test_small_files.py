"""Small files: cold, cached and staged, whether they were there or were made."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hostprep.probing import evicting, small_files
from hostprep.probing.epoch import predict
from hostprep.probing.model import DataSet
from hostprep.probing.pass_rates import Pass
from hostprep.probing.readers import read_whole_files
from hostprep.probing.small_files import FEWEST_FILES, Budget, make_files, measure
from hostprep.system import page_cache
from hostprep.units import KIB, MIB
from tests.unit.probing.folders import tree

BUDGET = Budget(evict=1, one_reader=0.5, several=0.5, warm=0.1)


def test_small_files_are_measured_cold_cached_and_staged(
    tmp_path: Path, memory_folder: Path
) -> None:
    names = [str(file) for file in tree(tmp_path, files=80)]
    small = measure(names, "dataset", 4, BUDGET, disks=(), in_memory=False, dropped=False)
    assert small is not None
    assert [run.readers for run in small.cold] == [1, 4]
    assert sum(run.files for run in small.cold) == 80
    assert small.mean_bytes == pytest.approx(20_020, abs=60)
    assert small.cached is not None and small.cached.files_per_s > 0
    assert small.staged is not None and small.staged.files_per_s > 0
    assert not list(memory_folder.iterdir())


@pytest.mark.parametrize("readers", [1, 2])
def test_memory_is_read_for_longer_than_a_moment(memory_folder: Path, readers: int) -> None:
    names = [str(file) for file in tree(memory_folder, files=40)]
    small = measure(names, "dataset", readers, BUDGET, disks=(), in_memory=True, dropped=False)
    assert small is not None and small.cached is not None
    assert small.cold[-1] == small.cached
    assert [run.readers for run in small.cold] == [1, 2][:readers]
    assert small.cached.files > 40 or small.cached.seconds > 0.05


def test_empty_files_are_no_part_of_the_figures(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path, files=40)]
    for number in range(40):
        names.insert(2 * number, str(tmp_path / f"empty-{number}"))
        Path(names[2 * number]).touch()
    small = measure(names, "dataset", 2, BUDGET, disks=(), in_memory=False, dropped=False)
    assert small is not None
    assert small.empty == 40
    assert sum(run.files for run in small.cold) == 40
    assert small.mean_bytes > 10_000
    assert (
        measure(names[0:8:2], "dataset", 2, BUDGET, disks=(), in_memory=False, dropped=False)
        is None
    )


@pytest.mark.parametrize("new", [True, False])
def test_of_files_of_others_only_new_ones_are_written_out(
    new: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether these are in memory is told to nobody else."""
    names = [str(file) for file in tree(tmp_path, files=80)]
    calls: list[int] = []
    monkeypatch.setattr(page_cache, "resident_share", lambda *_, **__: None)
    monkeypatch.setattr(evicting, "_DIRTY_SECONDS", 3600 if new else 0)
    monkeypatch.setattr(os, "fdatasync", calls.append)
    small = measure(names, "dataset", 2, BUDGET, disks=("none",), in_memory=False, dropped=False)
    assert small is not None
    assert len(calls) == (80 if new else 0)


@pytest.mark.parametrize("written_out", [True, False])
def test_on_disks_only_what_is_dirty_is_written_out(
    written_out: bool, disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each that is, a disk empties its own cache: few could be taken out, and read cold."""
    names = [str(file) for file in tree(disk_folder, files=80)]
    if page_cache.resident_share(names) is None:
        pytest.skip("residency is not told here")
    if written_out:
        page_cache.write_out(str(disk_folder))
    calls: list[int] = []
    fdatasync = os.fdatasync

    def counted(fd: int) -> None:
        calls.append(fd)
        fdatasync(fd)

    monkeypatch.setattr(os, "fdatasync", counted)
    small = measure(names, "dataset", 2, BUDGET, disks=("none",), in_memory=False, dropped=False)
    assert small is not None
    assert small.cached_share == 0
    if written_out:  # else somebody may have called sync meanwhile
        assert len(calls) < 20


def test_what_the_kernel_takes_away_again_is_not_called_cached(
    disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(file) for file in tree(disk_folder, files=80)]
    gone = set(names[:60])
    passes: list[set[str]] = []

    def reading(names: Sequence[str], *arguments: Any, **more: Any) -> Pass:
        passes.append(set(names))
        done = read_whole_files(names, *arguments, **more)
        for name in gone:
            page_cache.evict(name)
        return done

    monkeypatch.setattr(small_files, "read_whole_files", reading)
    if page_cache.resident_share(names) is None:
        pytest.skip("residency is not told here")
    small = measure(names, "dataset", 2, BUDGET, disks=(), in_memory=False, dropped=False)
    assert small is not None and small.cached is not None
    cold_alone, cold_together, warming, cached = passes[:4]
    assert cold_alone | cold_together == warming == set(names)
    assert cached == warming - gone


def test_what_never_stays_in_memory_is_said_and_staging_is_measured_all_the_same(
    tmp_path: Path, memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(file) for file in tree(tmp_path, files=80)]
    # As of FUSE whose server does not want pages kept: the kernel drops them at the next open.
    monkeypatch.setattr(page_cache, "resident_share", lambda *_, **__: 0.0)
    patient = replace(BUDGET, warm=2)  # even where 80 files take long to make
    small = measure(names, "dataset", 2, patient, disks=(), in_memory=False, dropped=False)
    assert small is not None
    assert (small.stays_in_memory, small.cached) == (False, None)
    assert small.staged is not None
    each = small.staged.read_bytes / small.staged.files
    assert each == pytest.approx(small.mean_bytes, rel=0.01)
    assert not list(memory_folder.iterdir())
    epoch = predict(DataSet(80, True, 80 * 20_020), small, 1 << 40)
    assert epoch.staged_seconds is not None
    assert epoch.next_low_seconds == epoch.next_high_seconds == epoch.cold_seconds


@pytest.mark.parametrize(("seconds", "several"), [(1.2, {None}), (3.5, {2, 3, 4, 5}), (600.0, {8})])
def test_no_more_read_at_a_time_than_there_is_time_for(
    seconds: float,
    several: set[int | None],
    tmp_path: Path,
    memory_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At two files a second the last files of 8 readers take 4 s, and nobody calls them off."""
    files = tree(tmp_path, files=80)
    asked: list[tuple[int, float]] = []

    def slow(names: Sequence[str], readers: int, seconds: float, *_: object, **__: object) -> Pass:
        asked.append((readers, seconds))
        done = tuple(names[:10])
        times, sizes = array("d", [readers / 2] * 10), array("q", [100_000] * 10)
        return Pass(done, times, sizes, 2.0, 200_000.0, 5.0, 0, 0)

    monkeypatch.setattr("hostprep.probing.small_files.read_whole_files", slow)
    found = measure(
        [str(file) for file in files],
        "dataset",
        8,
        replace(BUDGET, arrived_by=time.monotonic() + seconds),
        disks=(),
        in_memory=False,
        dropped=False,
    )
    assert found is not None
    used = found.cold[1].readers if len(found.cold) > 1 else None
    assert used in several
    for readers, reading in asked[1 : len(found.cold)]:
        assert reading + readers / 2 <= seconds
    if used == 8:
        assert found.fewer is None
        return
    assert found.fewer is not None
    assert (found.fewer.wanted, found.fewer.used) == (8, used)
    assert "with 8, each would wait 5.0 s for its last file" in found.fewer.message
    assert "by the 2.0 files/s of one alone" in found.fewer.message


def test_made_files_look_like_photographs_and_keep_the_budget(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    names = make_files(at, 40 * MIB, 60)
    os.close(at)
    sizes = [os.path.getsize(tmp_path / name) for name in names]
    assert FEWEST_FILES < len(names) < 600
    assert sum(sizes) <= 40 * MIB
    assert sum(sizes) / len(sizes) == pytest.approx(111_000, rel=0.1)
    assert min(sizes) >= 4 * KIB and max(sizes) <= MIB


def test_made_files_are_written_out_while_others_are_made(disk_folder: Path) -> None:
    """Else each is waited for when it is taken out of memory, and few are read cold."""
    # A busy disk takes longer; what nobody asks for the kernel writes out after half a minute. To
    # take files out of memory has them be written, too: others are made for each try.
    for seconds in (2, 10, 20):
        folder = disk_folder / str(seconds)
        folder.mkdir()
        at = os.open(folder, os.O_RDONLY)
        names = make_files(at, 10 * MIB, 60)
        if page_cache.resident_share(names, at=at) is None:
            pytest.skip("residency is not told here")
        time.sleep(seconds)
        for name in names:
            page_cache.evict(name, written_out=True, at=at)
        share = page_cache.resident_share(names, at=at)
        os.close(at)
        if share is not None and share < 0.5:
            return
    raise AssertionError(f"{share} of what was made is still in memory, not written out")
