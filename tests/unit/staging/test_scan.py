"""A source as it is read: all of it, by whoever is free, also where one directory holds it all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.staging import batches, tree
from hostprep.staging.batches import LARGE_DIRECTORY, look_up_batches, pack_batches
from hostprep.staging.model import RANGE_BYTES
from hostprep.staging.plans.copy_plan import plan_fresh
from hostprep.staging.processes.worker import Worker
from hostprep.staging.source import scan as scan_module
from hostprep.staging.source.scan import Scan, scan_tree
from hostprep.staging.tree import Plain, look_up
from hostprep.system.trees import DirCache
from tests.kit.appended import appended_by_all

_MANY = 3 * LARGE_DIRECTORY


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    """A flat data set with something of every kind in it, and below it an ordinary one."""
    for number in range(_MANY):
        (tmp_path / f"{number:05d}.jpg").write_bytes(b"x" * (number % 7))
    for number in range(20):
        os.link(tmp_path / f"{number:05d}.jpg", tmp_path / f"link-{number}")
        (tmp_path / f"symlink-{number}").symlink_to(f"{number:05d}.jpg")
        (tmp_path / f"below-{number}").mkdir()
        (tmp_path / f"below-{number}" / "file").write_bytes(b"y")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / os.fsdecode(b"not utf-8 \xff")).write_bytes(b"z")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def found(scan: Scan) -> dict[str, tuple[int, int]]:
    """Return (inode, size) of each file and symlink by its path."""
    return {
        os.path.join(listing.directory, entry.name): (entry.ino, entry.size)
        for listing in scan.listings
        for entry in listing.entries()
    }


def there(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(root)): (status.st_ino, status.st_size)
        for path in root.rglob("*")
        if stat.S_ISREG((status := path.lstat()).st_mode) or stat.S_ISLNK(status.st_mode)
    }


@pytest.mark.parametrize(("processes", "threads"), [(0, 1), (1, 1), (2, 1), (2, 8)])
def test_a_large_directory_is_found_as_it_is(
    source: int, tmp_path: Path, processes: int, threads: int
) -> None:
    told: list[int] = []
    scan = scan_tree(source, processes=processes, threads=threads, on_tick=told.append)
    assert found(scan) == there(tmp_path)
    assert [item.path for item in scan.skipped] == ["fifo"] and not scan.unreadable
    assert set(scan.directories) == {"", *(f"below-{number}" for number in range(20))}
    assert len(scan.listings) == 21  # one for each directory, however many looked at it
    assert scan.totals.files == len(there(tmp_path))
    assert scan.totals.entries == scan.totals.files + 20
    assert told == sorted(told) and max(told, default=0) <= scan.totals.entries
    (root,) = (listing for listing in scan.listings if not listing.directory)
    inodes = [entry.ino for batch in root.batches for entry in batch.entries()]
    assert len(inodes) > _MANY - 20 and inodes == sorted(inodes)


def test_what_is_mounted_in_a_source_does_not_make_all_of_it_a_servers(
    source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a snapshot of Btrfs, what it lacks of other subvolumes is told all the same."""
    monkeypatch.setattr(scan_module, "_is_snapshots_gap", lambda entry: True)
    for served, told in (("served", 21), ("from_server", 1)):  # and the fifo
        assert len(scan_tree(source, processes=2, **{served: True}).skipped) == told


@pytest.mark.parametrize("prompt", [0, 500, LARGE_DIRECTORY + 1, 2 * _MANY])
def test_a_server_is_asked_name_by_name_only_for_what_its_listing_does_not_bring(
    source: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: int
) -> None:
    """The first looks are answered promptly, up to all of them."""
    asked = appended_by_all()

    def look(descriptor: int, names: list[str]) -> list[Plain]:
        os.write(asked, b"x" * len(names))
        return look_up(descriptor, names)

    monkeypatch.setattr(batches, "look_up", look)
    monkeypatch.setattr(tree, "is_slow", lambda seconds, entries: entries > prompt)
    told: list[int] = []
    scan = scan_tree(source, processes=2, threads=4, from_server=True, on_tick=told.append)
    assert found(scan) == there(tmp_path)
    assert scan.totals.entries == scan.totals.files + 20 and len(scan.listings) == 21
    assert max(told, default=0) <= scan.totals.entries
    assert os.fstat(asked).st_size == max(0, len(os.listdir(source)) - prompt - 1)
    os.close(asked)


def test_many_look_at_once_at_a_directory_that_answers_late(
    source: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server does that is asked for each file: one after the other it would be for hours."""
    together = threading.Barrier(8)

    def late(descriptor: int, names: list[str]) -> list[Plain]:
        try:
            together.wait(0.1)
        except threading.BrokenBarrierError:
            together.reset()
        else:
            os.write(met, b"x")
        return look_up(descriptor, names)

    met = appended_by_all()
    monkeypatch.setattr(batches, "look_up", late)
    assert found(scan_tree(source, processes=1, threads=8)) == there(tmp_path)
    assert os.fstat(met).st_size >= 8 * 2
    os.close(met)


def test_a_look_that_waits_for_a_busy_processor_makes_no_slow_source(
    source: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of that few names would be asked at a time, by all threads, to the end of the directory."""
    asked = appended_by_all()

    def look(
        cache: DirCache, directory: str, names: list[str], *, from_server: bool
    ) -> tuple[float, tuple[Any, ...]]:
        os.write(asked, b"x")
        _, found_there = look_up_batches(cache, directory, names, from_server=from_server)
        return 0.01 if names[0] == first else len(names) * 2e-6, found_there

    with os.scandir(source) as listing:
        first = next(listing).name
    monkeypatch.setattr("hostprep.staging.processes.worker.look_up_batches", look)
    assert found(scan_tree(source, processes=2)) == there(tmp_path)
    assert os.fstat(asked).st_size < _MANY // 32 // 2
    os.close(asked)


def test_what_vanishes_meanwhile_was_never_there(
    source: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(descriptor: int, names: list[str]) -> list[Plain]:
        for name in names:
            if name.endswith("7.jpg"):
                os.unlink(name, dir_fd=descriptor)
        return look_up(descriptor, names)

    monkeypatch.setattr(batches, "look_up", look)
    scan = scan_tree(source, processes=2)
    assert found(scan) == there(tmp_path)
    assert scan.totals.files < _MANY


def test_a_directory_of_which_a_part_cannot_be_read_counts_as_unread(
    source: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(descriptor: int, names: list[str]) -> list[Plain]:
        if "00500.jpg" in names:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return look_up(descriptor, names)

    monkeypatch.setattr(batches, "look_up", look)
    scan = scan_tree(source, processes=2)
    assert scan.unreadable == {""} and found(scan) == {}
    (skipped,) = scan.skipped
    assert (skipped.path, skipped.reason, skipped.failed) == (".", "Input/output error", True)


def test_what_the_parent_cannot_finish_it_leaves_to_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They all wait for what it looks at alone."""
    looked_at: list[str] = []

    class Watched(Worker):
        def do(self, kind: str, payload: Any) -> Any:
            looked_at.extend(payload)  # of workers in their own processes: only this one's is seen
            return super().do(kind, payload)

    monkeypatch.setattr("hostprep.staging.source.scan.Worker", Watched)
    monkeypatch.setattr("hostprep.staging.source.scan.is_slow", lambda *_: False)  # under load
    for folders, alone in ((10, 11), (20, 1)):
        looked_at.clear()
        for number in range(folders):
            (tmp_path / f"{number}").mkdir(exist_ok=True)
            (tmp_path / f"{number}" / "file").touch()
        descriptor = os.open(tmp_path, os.O_RDONLY)
        assert found(scan_tree(descriptor, processes=2)) == there(tmp_path)
        assert len(looked_at) == alone
        looked_at.clear()
        assert found(scan_tree(descriptor, processes=1, from_server=True)) == there(tmp_path)
        os.close(descriptor)
        assert not looked_at  # while a server does not answer, it could not be interrupted


def test_what_is_to_be_copied_is_counted_without_holes_and_without_the_ends_of_pages(
    tmp_path: Path,
) -> None:
    """By it the time left is told: small files beside a sparse one take a page each in memory."""
    for number in range(3 * LARGE_DIRECTORY):
        (tmp_path / f"{number}").write_bytes(b"x" * 10)
    for name, size in (("sparse", 1 << 20), ("linked", 1 << 20), ("large", 2 * RANGE_BYTES)):
        with open(tmp_path / name, "wb") as file:
            file.write(b"y" * 65536)
            file.truncate(size)
    os.link(tmp_path / "linked", tmp_path / "link")
    data_bytes = 3 * LARGE_DIRECTORY * 10 + 3 * 65536
    descriptor = os.open(tmp_path, os.O_RDONLY)
    scan = scan_tree(descriptor, processes=1)
    os.close(descriptor)
    assert scan.totals.data_bytes == data_bytes + 65536  # the other name of what is linked
    plan = plan_fresh(scan)
    assert plan.copied.data_bytes == data_bytes
    again = [
        pack for each in plan.batches for pack in pack_batches(each.directory, each.entries(), 7)
    ]
    assert sum(each.size_bytes - each.hole_bytes for each in again) == data_bytes


def test_folders_below_a_path_that_no_program_can_open_are_left_out(tmp_path: Path) -> None:
    """Each would have the names of all above it in its own: a few thousand took all the memory."""
    root = descriptor = os.open(tmp_path, os.O_RDONLY)
    descriptors = [root]
    for _ in range(18):
        os.mkdir("d" * 255, dir_fd=descriptor)
        descriptor = os.open("d" * 255, os.O_RDONLY, dir_fd=descriptor)
        descriptors.append(descriptor)
    scan = scan_tree(root, processes=1)
    (skipped,) = scan.skipped
    assert skipped.failed and skipped.path.count("/") == 16
    assert skipped.reason == (
        "its path is longer than 4,095 characters, which no program opens by one name"
    )
    assert scan.unreadable == {skipped.path} and len(scan.directories) == 18
    for each in descriptors:
        os.close(each)
