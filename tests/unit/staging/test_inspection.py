"""A staged data set and its source against the manifest, after a real `stage` to a directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError
from hostprep.probing.folder import own_folder
from hostprep.staging.inspection import Inspected, inspect_source, inspect_target, read_through
from hostprep.staging.record import manifest
from hostprep.staging.record.manifest import manifest_path
from hostprep.staging.record.records import Record, folder_of, load_record
from hostprep.system.own_directory import PROBE_PREFIX
from tests.kit.stagecraft import flip_bit, hostprep, make_source, rewrite, snapshot

FILE = "class-1/images/002.bin"


@pytest.fixture
def staged(tmp_path: Path) -> Record:
    source = make_source(tmp_path / "source", directories=3, files=6)
    hostprep("stage", source, "--to", tmp_path / "to", "--name", "data")
    record = load_record("data", str(tmp_path / "to" / "data"))
    assert record is not None
    return record


def differing(found: Inspected) -> tuple[int, int, int]:
    return found.changed, found.missing, found.added


@pytest.mark.parametrize("inspect", [inspect_target, inspect_source])
def test_what_was_just_staged_is_as_it_was(
    staged: Record, inspect: Callable[..., Inspected]
) -> None:
    found = inspect(staged, seconds=60)
    assert differing(found) == (0, 0, 0) and found.examples == ()
    assert found.whole and found.compared == found.known == staged.entries


@pytest.mark.parametrize("inspect", [inspect_target, inspect_source])
def test_what_differs_is_counted_and_named(
    staged: Record, inspect: Callable[..., Inspected]
) -> None:
    root = Path(staged.target if inspect is inspect_target else staged.source)
    rewrite(root / FILE, b"other")
    (root / "class-0" / "images" / "000.bin").unlink()
    (root / "class-2" / "new.bin").touch()
    found = inspect(staged, seconds=60)
    assert differing(found) == (1, 1, 1)
    assert set(found.examples) == {
        ("changed", FILE),
        ("missing", "class-0/images/000.bin"),
        ("added", "class-2/new.bin"),
    }


@pytest.mark.parametrize("left", [0, 1, 2])
@pytest.mark.parametrize(
    "look",
    [
        lambda record: inspect_target(record, seconds=60),
        lambda record: inspect_source(record, seconds=60),
        lambda record: read_through(record, seconds=60, processes=1),
    ],
    ids=["target", "source", "read"],
)
def test_what_a_manifest_that_lost_lines_lacks_is_not_taken_for_compared(
    staged: Record, look: Callable[[Record], object], left: int
) -> None:
    manifest = manifest_path(folder_of(staged))
    lines = manifest.read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    manifest.write_bytes(b"".join(lines[:left]) + lines[left][:20])
    words = "holds nothing" if left == 0 else "damaged: it has"
    opened = os.listdir("/proc/self/fd")
    with pytest.raises(HostprepError, match=words):
        look(staged)
    assert os.listdir("/proc/self/fd") == opened


def test_a_few_of_each_kind_are_named(staged: Record) -> None:
    for number in range(5):
        (Path(staged.target) / f"new-{number}").touch()
    (Path(staged.target) / "class-0" / "images" / "000.bin").unlink()
    found = inspect_target(staged, seconds=60)
    assert sorted(kind for kind, _ in found.examples) == ["added"] * 3 + ["missing"]


@pytest.mark.parametrize("inspect", [inspect_target, inspect_source])
def test_a_folder_that_is_gone_counts_with_all_that_was_in_it(
    staged: Record, inspect: Callable[..., Inspected]
) -> None:
    root = Path(staged.target if inspect is inspect_target else staged.source)
    (root / "class-1").rename(root.parent / "elsewhere")
    found = inspect(staged, seconds=60)
    assert differing(found) == (0, 2 + 6, 0)  # class-1, class-1/images, and its files


def test_a_temporary_file_in_the_source_leaves_it_fresh(staged: Record) -> None:
    (Path(staged.source) / "lock").touch()
    (Path(staged.source) / "lock").unlink()
    assert differing(inspect_source(staged, seconds=60)) == (0, 0, 0)


def test_what_cannot_be_staged_is_not_new(staged: Record) -> None:
    os.mkfifo(Path(staged.source) / "fifo")
    assert differing(inspect_source(staged, seconds=60)) == (0, 0, 0)


@pytest.mark.parametrize("folder", ["", "class-1/images"])
def test_a_probe_of_the_source_meanwhile_is_no_part_of_it(staged: Record, folder: str) -> None:
    source = Path(staged.source)
    with own_folder(source / folder) as probing:
        (probing.path / "data").write_bytes(b"test data")
        assert differing(inspect_source(staged, seconds=60)) == (0, 0, 0)
        again = hostprep("stage", source, "--to", Path(staged.target).parent, "--name", "data")
        assert (again["copied_files"], again["deleted_files"]) == (0, 0)
        first = hostprep("stage", source, "--to", Path(staged.target).parent, "--name", "first")
    assert first["files"] == again["files"] and first["digest"] == again["digest"]
    assert not list(Path(staged.target).parent.rglob(f"{PROBE_PREFIX}*"))


def test_a_probe_of_the_copy_is_nothing_new_there(staged: Record) -> None:
    with own_folder(Path(staged.target)):
        assert inspect_target(staged, seconds=60).added == 0


def test_an_empty_source_is_empty_while_it_is_probed(staged: Record) -> None:
    source = Path(staged.source)
    shutil.rmtree(source)
    source.mkdir()
    with own_folder(source):
        refused = hostprep(
            "stage", source, "--to", Path(staged.target).parent, "--name", "data", expect=5
        )
    assert "error" in refused and differing(inspect_target(staged, seconds=60)) == (0, 0, 0)


def test_without_time_part_is_compared_and_it_is_said(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", directories=2, files=200)
    hostprep("stage", source, "--to", tmp_path / "to", "--name", "data")
    record = load_record("data", str(tmp_path / "to" / "data"))
    assert record is not None
    found = inspect_target(record, seconds=0)
    assert not found.whole and 0 < found.compared < found.known
    assert differing(found) == (0, 0, 0)
    assert not read_through(record, seconds=-1, processes=0).whole


def test_a_large_directory_is_read_in_parts_and_no_more_of_it_than_there_is_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A record takes some 3 us: of a million in one folder the time was over before the first look.
    source = tmp_path / "source"
    source.mkdir()
    for number in range(600):
        (source / f"{number}").touch()
    hostprep("stage", source, "--to", tmp_path / "to", "--name", "data")
    record = load_record("data", str(tmp_path / "to" / "data"))
    assert record is not None
    asked: list[bytes] = []

    def decode(line: bytes, decode: Callable[[bytes], Any] = manifest.decode_line) -> Any:
        asked.append(line)
        return decode(line)

    monkeypatch.setattr(manifest, "decode_line", decode)
    monkeypatch.setattr(manifest, "_PART_BYTES", 1000)
    copies = Path(record.target)
    rewrite(copies / "5", b"other")
    (copies / "70").unlink()
    (copies / "new").touch()
    found = inspect_target(record, seconds=60)
    assert (found.whole, differing(found)) == (True, (1, 1, 1))
    lines = len(asked)
    assert lines > 2
    asked.clear()
    found = inspect_target(record, seconds=0)
    assert not found.whole and found.compared and len(asked) < lines


def test_a_changed_byte_is_found_by_reading_alone(staged: Record) -> None:
    intact = read_through(staged, seconds=60, processes=1)
    assert (intact.whole, intact.wrong) == (True, ())
    assert intact.bytes == sum(
        path.stat().st_size
        for path in Path(staged.target).rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    flip_bit(Path(staged.target) / FILE)
    assert differing(inspect_target(staged, seconds=60)) == (0, 0, 0)
    assert read_through(staged, seconds=60, processes=1).wrong == ((FILE, "has other content"),)


def test_what_goes_on_behind_what_was_staged_is_found_by_reading(staged: Record) -> None:
    with Path(staged.target, FILE).open("ab") as file:
        file.write(b"more")
    found = read_through(staged, seconds=60, processes=1)
    assert found.wrong == ((FILE, "has another size"),)


def test_what_was_staged_without_a_hash_is_not_said_to_differ(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", directories=1, files=2)
    hostprep("stage", source, "--to", tmp_path / "to", "--name", "data", "--verify", "none")
    record = load_record("data", str(tmp_path / "to" / "data"))
    assert record is not None
    found = read_through(record, seconds=60, processes=1)
    assert (found.files, found.whole, found.wrong) == (0, True, ())


def test_reading_makes_no_directory_that_somebody_removed(staged: Record) -> None:
    shutil.rmtree(Path(staged.target, "class-1"))
    before = snapshot(Path(staged.target))
    found = read_through(staged, seconds=60, processes=1)
    assert snapshot(Path(staged.target)) == before
    assert sorted(found.wrong) == [
        (f"class-1/images/{number:03}.bin", "No such file or directory") for number in range(6)
    ]


def test_a_fifo_in_a_files_place_is_named_and_not_waited_for(staged: Record) -> None:
    file = Path(staged.target, FILE)
    file.unlink()
    os.mkfifo(file)
    found = read_through(staged, seconds=60, processes=2)
    assert found.wrong == ((FILE, "is not a file any more"),)
