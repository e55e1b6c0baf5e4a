"""What is read again is taken from the records directory by directory, not all at once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hostprep.staging import checking
from hostprep.staging.checking import check_kept, check_written
from hostprep.staging.model import Recorded
from hostprep.staging.observer import Silent
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.reasons import OTHER_CONTENT
from hostprep.staging.record.lines import decode_line, encode_line
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.target.private import prepare
from hostprep.staging.tasks import Copied


def lines(count: int) -> list[bytes]:
    """Return the lines of so many directories with a file each."""
    record = Recorded("file", "f", 1, 2, 0o644, 0, 0, "0" * 32)
    return [encode_line(f"{number}", [record]) for number in range(count)]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have two directories checked, and no more; what was read for that is in the list."""
    decoded: list[str] = []
    records = ManifestIndex.records

    def decode(line: bytes) -> tuple[str, list[Recorded]]:
        decoded.append(decode_line(line)[0])
        return decode_line(line)

    def recorded(self: ManifestIndex, directory: str) -> dict[str, Recorded]:
        decoded.append(directory)
        return records(self, directory)

    def check(
        job: object, lines: Iterable[tuple[str, list[Recorded]]], *_: object, **__: object
    ) -> list[Any]:
        del decoded[:]
        for (_, records), _ in zip(lines, range(2), strict=False):
            assert [record.name for record in records] == ["file"]
        return []

    monkeypatch.setattr(checking, "decode_line", decode)
    monkeypatch.setattr(ManifestIndex, "records", recorded)
    monkeypatch.setattr(checking, "_check", check)
    return decoded


def test_what_is_kept(read: list[str]) -> None:
    plan = CopyPlan()
    plan.keep_lines.extend(lines(9))
    check_kept(plan, 0, 0, 1, Silent(), gentle=False)
    assert len(read) in (2, 3)


def test_what_was_written(read: list[str], tmp_path: Path) -> None:
    parent_fd = os.open(tmp_path, os.O_RDONLY)
    private = prepare(parent_fd, {"target": str(tmp_path / "data")})
    private.replace_journals(lines(9))
    told: list[tuple[object, ...]] = []

    class Told(Silent):
        def phase(
            self, name: str, *, files: int | None = None, size_bytes: int | None = None
        ) -> None:
            told.append((name, files, size_bytes))

    nothing = CopyPlan()
    check_written(
        parent_fd, private, nothing, Copied(), 1, Told(), lambda plan: Copied(), gentle=False
    )
    private.close()
    os.close(parent_fd)
    assert len(read) in (2, 3) and told == [("verify", 9, 9)]


def test_of_sparse_files_the_holes_are_not_read_back(tmp_path: Path) -> None:
    """Else the rate that is shown is one that no disk has."""
    parent_fd = os.open(tmp_path, os.O_RDONLY)
    private = prepare(parent_fd, {"target": str(tmp_path / "data")})
    with open("sparse", "xb", opener=partial(os.open, dir_fd=private.tree_fd)) as file:
        file.write(b"x" * 8192)
        file.truncate(64 << 20)
        there = os.fstat(file.fileno())
    record = Recorded("sparse", "f", there.st_size, there.st_mtime_ns, 0o644, 0, 0, "0" * 32)
    private.replace_journals([encode_line("", [record])])
    told: list[int | None] = []

    class Told(Silent):
        def phase(
            self, name: str, *, files: int | None = None, size_bytes: int | None = None
        ) -> None:
            told.append(size_bytes)

        def progress(self, files: int, size_bytes: int) -> None:
            told.append(size_bytes)

    wrong = checking._check_private(private, 1, Told(), gentle=False)
    private.close()
    os.close(parent_fd)
    assert wrong == [("sparse", OTHER_CONTENT)]
    assert there.st_blocks * 512 < 1 << 20
    assert told[0] == told[-1] == there.st_blocks * 512


@pytest.mark.parametrize("twice", [False, True])
def test_holes_of_what_is_copied_again_count_once(
    twice: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    with open(tmp_path / "source/sparse", "wb") as sparse:
        sparse.truncate(1 << 20)
    source_fd, parent_fd = (os.open(path, os.O_RDONLY) for path in (tmp_path / "source", tmp_path))
    private = prepare(parent_fd, {"target": str(tmp_path / "data")})
    line = encode_line("", [Recorded("sparse", "f", 1 << 20, 1, 0o644, 0, 0, "00")])
    found = iter([[("sparse", "differs")], [("sparse", "differs")] if twice else []])
    monkeypatch.setattr(checking, "_check_private", lambda *_, **__: next(found))

    def copy(plan: CopyPlan) -> Copied:
        assert plan.copied.data_bytes == 0
        private.replace_journals([line])
        os.close(os.open("sparse", os.O_CREAT | os.O_RDWR, dir_fd=private.tree_fd))
        return Copied(1, 1 << 20, 1 << 20)

    first = Copied(2, (1 << 20) + 5, (1 << 20) + 3)  # beside another file
    copy(CopyPlan())
    check_written(source_fd, private, CopyPlan(), first, 1, Silent(), copy, gentle=False)
    for descriptor in (source_fd, parent_fd):
        os.close(descriptor)
    private.close()
    left = (1, 5, 3) if twice else (2, (1 << 20) + 5, (1 << 20) + 3)
    assert (first.files, first.bytes, first.hole_bytes) == left


def test_what_differs_and_is_gone_from_the_source_by_then_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    source_fd, parent_fd = (os.open(path, os.O_RDONLY) for path in (tmp_path / "source", tmp_path))
    private = prepare(parent_fd, {"target": str(tmp_path / "data")})
    os.close(os.open("gone", os.O_CREAT | os.O_RDWR, dir_fd=private.tree_fd))
    private.replace_journals([encode_line("", [Recorded("gone", "f", 5, 1, 0o644, 0, 0, "00")])])
    found = iter([[("gone", "differs")], []])
    monkeypatch.setattr(checking, "_check_private", lambda *_, **__: next(found))

    def copy(plan: CopyPlan) -> Copied:
        assert not plan.batches
        return Copied()

    copied = Copied(1, 5)
    check_written(source_fd, private, CopyPlan(), copied, 1, Silent(), copy, gentle=False)
    assert [(each.path, each.failed) for each in copied.problems] == [("gone", True)]
    assert (copied.files, copied.bytes) == (0, 0) and os.listdir(private.tree_fd) == []
    with closing(ManifestIndex(private.journals())) as journal:
        assert journal.count() == 0
    for descriptor in (source_fd, parent_fd):
        os.close(descriptor)
    private.close()
