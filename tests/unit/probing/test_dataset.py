"""The data set under a path: counted in the time that there is, and its largest file."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.host import fiemap
from hostprep.probing.compression import kept_compressed
from hostprep.probing.dataset import Found, largest, measure_size, scan
from hostprep.probing.model import Settings
from hostprep.probing.observer import Silent
from hostprep.probing.phases import Phases
from hostprep.probing.probe import target
from hostprep.units import MIB
from tests.unit.probing.folders import tree


def test_the_data_set_is_counted_without_what_is_not_its_own(tmp_path: Path) -> None:
    files = tree(tmp_path)
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/object").write_text("x")
    (tmp_path / "link").symlink_to(files[0])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("x")
    found = scan(str(tmp_path), 10, mount_points=[str(tmp_path / "elsewhere")])
    assert (found.files, found.complete, found.links) == (60, True, 1)
    assert set(found.sample) == {str(file) for file in files}
    assert list(found.sample) != sorted(found.sample)
    size = measure_size(found, 10)
    assert size.size_bytes == sum(file.stat().st_size for file in files)
    assert (size.links, size.mounts, size.closed) == (1, 1, 0)
    assert measure_size(found, 0) == size  # a few are asked for however late it is
    files[0].unlink()
    less = measure_size(found, 10)
    assert less.files == 59
    assert less.size_bytes == sum(file.stat().st_size for file in files[1:])


def test_sizes_that_cannot_be_read_are_not_taken_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path)
    found = scan(str(tmp_path), 10)

    def stat(*_: object, **__: object) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "stat", stat)
    size = measure_size(found, 10)
    assert (size.files, size.size_bytes) == (60, None)


def test_a_folder_that_opens_and_cannot_be_listed_is_left_out() -> None:
    with subprocess.Popen(["true"]) as ended:
        process = Path(f"/proc/{ended.pid}")
        while process.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
            time.sleep(0.01)
        with pytest.raises(OSError):
            os.listdir(process / "net")  # so it is with one that has ended
        found = scan(str(process), 10)
        assert found.files > 0 and found.closed > 0
        assert measure_size(found, 10).closed == found.closed


def test_a_count_out_of_time_says_so(tmp_path: Path) -> None:
    tree(tmp_path)
    found = scan(str(tmp_path), -1)
    assert not found.complete
    assert measure_size(found, 10).size_bytes is None


class SlowAnswers:
    """A clock that goes on by a second with each question: about an entry, a size, an open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        monkeypatch.setattr(time, "monotonic", lambda: float(self.asked))

    def after(self, question: Callable[..., Any]) -> Callable[..., Any]:
        def slowly(*arguments: Any, **keywords: Any) -> Any:
            self.asked += 1
            return question(*arguments, **keywords)

        return slowly


def test_what_answers_slowly_is_asked_no_longer_than_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path)
    found = scan(str(tmp_path), 10)
    with monkeypatch.context() as patch:
        answers = SlowAnswers(patch)
        patch.setattr(os, "stat", answers.after(os.stat))
        assert measure_size(found, 3).size_bytes is None
        assert answers.asked < 6
    with monkeypatch.context() as patch:
        answers = SlowAnswers(patch)
        patch.setattr(os, "open", answers.after(os.open))
        assert not kept_compressed("ext4", found.sample, 3)
        assert answers.asked < 6


def test_a_listing_that_does_not_tell_the_kinds_of_entries_is_ended_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(500):
        (tmp_path / f"{number}.jpg").touch()
    answers = SlowAnswers(monkeypatch)

    class Entry:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.path = entry.name, entry.path
            self.is_dir = answers.after(entry.is_dir)
            self.is_file = entry.is_file

    class Listing(list[Entry]):
        def __enter__(self) -> Iterator[Entry]:
            return iter(self)

        def __exit__(self, *_: object) -> None:
            pass

    entries = [Entry(entry) for entry in os.scandir(tmp_path)]
    monkeypatch.setattr(os, "scandir", lambda _: Listing(entries))
    found = scan(str(tmp_path), 3)
    assert not found.complete
    assert answers.asked < 40


def test_a_long_count_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who hears nothing for long takes it for stuck, and a second count may last all the time."""
    for number in range(40):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "file").touch()
    now, told = itertools.count(0.0, 0.25), list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    settings, observer = Settings(), Silent()
    monkeypatch.setattr(observer, "progress", told.append)
    counted = Phases(target(str(tmp_path)), settings, observer).count_on(Found(3, False, ()))
    assert (counted.files, counted.complete) == (40, True)
    assert len(told) == 10  # a folder each quarter of a second
    assert all(text.endswith(" files") for text in told)


def test_the_largest_file_is_found_for_reading(tmp_path: Path) -> None:
    files = tree(tmp_path)
    found = scan(str(tmp_path), 10)
    assert largest(found, 10, at_least_bytes=1) == str(files[-1])
    assert largest(found, 10, at_least_bytes=MIB) is None


def test_a_larger_file_of_holes_is_read_only_where_no_other_is(tmp_path: Path) -> None:
    sparse, whole = tmp_path / "sparse", tmp_path / "whole"
    sparse.touch()
    os.truncate(sparse, 3 * MIB)
    assert largest(scan(str(tmp_path), 10), 10, at_least_bytes=MIB) == str(sparse)
    for path in (whole, tmp_path / "smaller"):
        path.write_bytes(os.urandom(2 * MIB if path == whole else MIB))
    assert largest(scan(str(tmp_path), 10), 10, at_least_bytes=MIB) == str(whole)


def test_holes_are_counted_where_the_file_system_tells(tmp_path: Path) -> None:
    for name, size in (("whole", 0), ("sparse", 1 << 20), ("inline", 0)):
        with open(tmp_path / name, "wb") as file:
            file.write(b"x" * (100 if name == "inline" else 8192))
            file.truncate(max(size, file.tell()))
    found = scan(str(tmp_path), 10)
    size = measure_size(found, 10, tells_holes=True)
    assert (size.size_bytes, size.hole_bytes) == ((1 << 20) + 8292, (1 << 20) - 8192)
    assert size.hole_share == pytest.approx(0.984, abs=0.001)
    assert measure_size(found, 10).hole_bytes == 0


def test_one_compressed_file_is_enough_and_at_least_one_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(tmp_path / name) for name in ("a", "b")]
    for name in names:
        Path(name).touch()
    asked: list[int] = []

    def extents(_fd: int, *, sync: bool) -> list[fiemap.Extent]:
        asked.append(fiemap.ENCODED if len(asked) % 2 else 0)
        return [fiemap.Extent(0, 0, 4096, asked[-1])]

    monkeypatch.setattr(fiemap, "extents", extents)
    assert kept_compressed("btrfs", names, 60)
    assert len(asked) == 2
    assert not kept_compressed("btrfs", names, -1)
    assert len(asked) == 3
    assert kept_compressed("zfs", (), 60)  # which does not tell
