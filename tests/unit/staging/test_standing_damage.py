"""A quick look at a directory: what it counts, which lines it tells nothing of, what it holds."""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.staging.files.standing import stands
from hostprep.staging.model import Recorded
from hostprep.staging.record import digest
from hostprep.staging.record.lines import encode_line
from hostprep.staging.tree import entry_of
from hostprep.system.trees import DIRECTORY_FLAGS, DirCache


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("name", '["x"]'),
        ("kind", "5"),
        ("kind", '["f"]'),
        ("mode", '"a"'),
        ("mtime_ns", "null"),
        ("content", "[7]"),
        ("size", "[" * 99_999),
    ],
)
def test_of_a_damaged_line_nothing_is_said(field: str, other: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"data")
    found = entry_of("x", os.stat(tmp_path / "x"))
    record = Recorded(
        "x", "f", found.size, found.mtime_ns, found.mode & 0o7777, found.uid, found.gid, "00"
    )
    line = encode_line("", [record])
    values = line[5:-4].split(b",")
    values[Recorded._fields.index(field)] = other.encode()
    damaged = line[:5] + b",".join(values) + line[-4:]
    root_fd = os.open(tmp_path, DIRECTORY_FLAGS)
    try:
        with DirCache(root_fd) as target:
            whole = stands("", [], [(*found,)], [line], (0, 1), target, verified=False)
            assert whole is not None and whole[0] == 1
            told = stands("", [], [(*found,)], [damaged], (0, 1), target, verified=False)
            assert told is None or field == "content"
    finally:
        os.close(root_fd)


@pytest.mark.parametrize("was", ["unhashed", "folder", "both"])
def test_what_has_changed_is_not_counted_beside_what_stands(was: str, tmp_path: Path) -> None:
    """Nor is a name that is on record twice passed by: one of its records would be lost."""
    (tmp_path / "x").write_bytes(b"data")
    (tmp_path / "y").write_bytes(b"other")
    x, y = (entry_of(name, os.stat(tmp_path / name)) for name in "xy")
    file, changed = (
        Recorded(each.name, "f", each.size, each.mtime_ns, each.mode & 0o7777, 0, 0, "00")
        for each in (x, y)
    )
    changed = changed._replace(content=None, size=9)
    if was != "unhashed":
        changed = changed._replace(kind="d", content="", name="y" if was == "folder" else "x")
    lines = [encode_line("", [file, changed])]
    root_fd = os.open(tmp_path, DIRECTORY_FLAGS)
    try:
        with DirCache(root_fd) as target:
            told = stands("", [], [(*x,), (*y,)], lines, (0, 1), target, verified=False)
    finally:
        os.close(root_fd)
    if was == "both":
        assert told is None
        return
    assert told is not None and told[7] == [(0, encode_line("", [file]))]
    assert told[:4] == (1, 4, digest.packed(digest.entry_term("f", "x", "00")), False)
    assert told[8] == ([(*y,)], [[*changed[:-1]]], [(*y,)])


def test_of_a_large_directory_a_part_is_unpacked_at_a_time(tmp_path: Path) -> None:
    def packed() -> Iterator[bytes]:
        yield marshal.dumps([(*entry_of("new", os.stat(tmp_path)),)])
        raise AssertionError("all of them at once take 400 bytes a file")

    root_fd = os.open(tmp_path, DIRECTORY_FLAGS)
    try:
        with DirCache(root_fd) as target:
            assert stands("", packed(), [], [], (0, 1), target, verified=False) is None
    finally:
        os.close(root_fd)
