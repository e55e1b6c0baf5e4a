"""The order in which a disk is swept, and what a plan in that order takes."""

from __future__ import annotations

import fcntl
import os
import random
import tracemalloc
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from hostprep.host import fiemap
from hostprep.staging.batches import BATCH_FILES, Batch, pack_batches
from hostprep.staging.files import placing
from hostprep.staging.plans import ordering
from hostprep.staging.plans.copy_plan import CopyPlan, plan_fresh
from hostprep.staging.plans.ordering import Sequenced, order_files
from hostprep.staging.source.scan import scan_tree
from hostprep.staging.tree import entry_of
from hostprep.system.trees import join


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    for number in range(40):
        folder = tmp_path / f"d{number % 4}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{number:02}").write_bytes(b"x" * (number + 1))
    (tmp_path / "d0" / "empty").touch()
    (tmp_path / "d0" / "link").symlink_to("f00")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def paths(batches: Iterable[Batch]) -> list[str]:
    return [join(batch.directory, entry.name) for batch in batches for entry in batch.entries()]


def test_entries_come_in_the_order_of_their_places(tmp_path: Path) -> None:
    """Neighbours of one directory in one batch, of a size that others have too."""
    (tmp_path / "file").write_bytes(b"abc")
    like = entry_of("file", os.lstat(tmp_path / "file"))
    count = 3 * BATCH_FILES
    batches: list[Batch] = []
    for directory in ("a", "b"):
        entries = [like._replace(name=f"{directory}{number}") for number in range(count)]
        batches.extend(pack_batches(directory, entries))
    # All of a descending, with ten of b in the middle of them; the others of b after that.
    middle = count // 2
    places = {f"a{number}": (count - number) * 100 for number in range(count)}
    places |= {f"b{number}": middle * 100 + 1 + number for number in range(10)}
    places |= {f"b{number}": (count + number) * 100 for number in range(10, count)}
    of = [array("Q", (places[entry.name] for entry in batch.entries())) for batch in batches]

    sequenced = Sequenced(batches, of)

    for _ in range(2):  # a list of batches can be gone through more than once, and so can this
        names = [path.partition("/")[2] for path in paths(sequenced)]
        assert names == sorted(places, key=lambda name: places[name])
    found = list(sequenced)
    assert max(batch.files for batch in found) == BATCH_FILES
    assert sum(batch.size_bytes for batch in found) == 3 * 2 * count
    assert len(found) < 12


@pytest.mark.parametrize("few", [0, 1000])
def test_a_disk_is_swept_by_first_extents(
    source: int, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """By one process or by several; what lies in its inode comes first, in their order."""
    places: dict[int, int | None] = {}
    shuffled = random.Random(3).sample(range(1, 1000), 50)

    def first_physical(descriptor: int) -> int | None:
        return places[os.fstat(descriptor).st_ino]

    scan = scan_tree(source, processes=1)
    files = {e.ino: e for listing in scan.listings for e in listing.entries()}
    places.update(dict(zip(files, shuffled, strict=False)))
    in_inode = [ino for ino, entry in files.items() if entry.name in ("f03", "f21")]
    places.update(dict.fromkeys(in_inode, None))
    monkeypatch.setattr(placing, "first_physical", first_physical)
    monkeypatch.setattr(ordering, "_FEW_FILES", few)
    monkeypatch.setattr(ordering, "_TASK_BATCHES", 1)
    plan = plan_fresh(scan)

    order_files(plan, "physical", source, processes=2)

    placed = [(places[e.ino], e) for e in files.values() if e.name[0] == "f"]
    first = sorted(e.ino for place, e in placed if place is None)
    first += [e.ino for e in files.values() if e.name in ("empty", "link")]
    expected = [files[ino].name for ino in sorted(first)]
    expected += [e.name for place, e in sorted((p, e) for p, e in placed if p is not None)]
    assert plan.sequence is not None
    assert [path.rpartition("/")[2] for path in paths(plan.sequence)] == expected


def test_large_files_are_in_order_too(source: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = scan_tree(source, processes=1)
    large = [(li.directory, entry) for li in scan.listings for entry in li.entries()]
    monkeypatch.setattr(placing, "first_physical", lambda fd: (1 << 40) - os.fstat(fd).st_ino)
    plan = CopyPlan(large=[item for item in large if item[1].name[0] == "f"])

    order_files(plan, "physical", source, processes=1)

    inodes = [entry.ino for _, entry in plan.large]
    assert len(inodes) == 40
    assert inodes == sorted(inodes, reverse=True)


def test_where_nothing_is_told_inodes_are_the_order_and_one_file_is_asked(
    source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's file would be opened for it, which takes as long as to read it."""
    asked: list[int] = []

    def untold(descriptor: int) -> None:
        asked.append(descriptor)
        raise fiemap.Untold

    monkeypatch.setattr(placing, "first_physical", untold)
    plan = plan_fresh(scan_tree(source, processes=1))

    order_files(plan, "physical", source, processes=1)

    assert plan.sequence is not None
    inodes = [entry.ino for batch in plan.sequence for entry in batch.entries()]
    assert inodes == sorted(inodes)
    assert len(inodes) == 42
    assert len(asked) == 1


def test_the_order_of_inodes_opens_nothing(source: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_fresh(scan_tree(source, processes=1))
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: pytest.fail("a file was asked"))
    order_files(plan, "inode", source, processes=1)
    assert plan.sequence is not None
    inodes = [entry.ino for batch in plan.sequence for entry in batch.entries()]
    assert inodes == sorted(inodes)


def test_files_that_lie_criss_cross_take_little_memory(tmp_path: Path) -> None:
    """As batches of one they would take 250 bytes each, for as long as the copy lasts."""
    (tmp_path / "file").touch()
    like = entry_of("file", os.lstat(tmp_path / "file"))
    count, folders = 20_000, 20
    batches = [
        batch
        for folder in range(folders)
        for batch in pack_batches(
            f"d{folder}", [like._replace(name=f"f{n:09}") for n in range(count // folders)]
        )
    ]
    places = random.Random(5).sample(range(1 << 40), count)
    each = iter(places)
    of = [array("Q", (next(each) for _ in range(batch.files))) for batch in batches]
    tracemalloc.start()
    sequenced = Sequenced(batches, of)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(batch.files for batch in sequenced) == count
    assert kept < 150 * count
    assert most < 250 * count
