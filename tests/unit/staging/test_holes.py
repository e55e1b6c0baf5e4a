"""How many blocks the data of a file takes, whatever its file system counts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.host.mounts import read_mounts
from hostprep.staging.files import holes
from hostprep.staging.files.holes import next_data, with_data_blocks
from hostprep.staging.files.small import SMALL_BYTES
from hostprep.staging.model import Entry
from hostprep.staging.tree import Plain

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def item(name: str, size: int, blocks: int = 1) -> Plain:
    """Return a file's entry as of a file system that counts one block, whatever it holds."""
    return (name, 0o100644, size, 1, 2, 3, blocks, 4, 5, 6)


def data_bytes(
    folder: int, name: str, size: int, *, from_server: bool = False, blocks: int = 1
) -> int:
    before = item(name, size, blocks)
    after = with_data_blocks(folder, before, from_server=from_server)
    assert (*after[:6], *after[7:]) == (*before[:6], *before[7:])
    return 512 * Entry._make(after).blocks


@pytest.mark.parametrize("from_server", [False, True])
@pytest.mark.parametrize("size", [1, 100_000, 3 * MIB])
def test_a_whole_file_has_no_holes(
    size: int, from_server: bool, folder: int, tmp_path: Path
) -> None:
    (tmp_path / "whole").write_bytes(os.urandom(size))
    assert data_bytes(folder, "whole", size, from_server=from_server) == -(-size // 512) * 512
    assert not Entry._make(
        with_data_blocks(folder, item("whole", size), from_server=from_server)
    ).is_sparse


def test_of_a_sparse_file_its_data_counts(folder: int, tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        os.truncate(file.fileno(), 8 * MIB)
        for offset in (MIB, 5 * MIB):
            os.pwrite(file.fileno(), b"x" * 4096, offset)
    assert data_bytes(folder, "sparse", 8 * MIB) == 8192
    assert data_bytes(folder, "sparse", 8 * MIB, from_server=True) == 8192
    # Where each question takes its time no small file is asked.
    assert data_bytes(folder, "sparse", SMALL_BYTES, from_server=True) == SMALL_BYTES


def test_what_cannot_be_asked_counts_whole(folder: int, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("gone", "link"):
        assert data_bytes(folder, name, MIB) == MIB


@pytest.mark.parametrize(
    ("fstype", "blocks", "at_most"),
    [("ext4", 64, 64 * 512), ("tmpfs", 2000, MIB), ("zfs", 64, MIB), (None, 64, MIB)],
)
def test_beyond_many_stretches_the_rest_counts_whole_where_blocks_say_nothing(
    fstype: str | None,
    blocks: int,
    at_most: int,
    folder: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open(tmp_path / "islands", "wb") as file:
        os.truncate(file.fileno(), MIB)
        for offset in range(0, MIB, MIB // 8):
            os.pwrite(file.fileno(), b"x" * 4096, offset)
    assert data_bytes(folder, "islands", MIB) == 8 * 4096
    monkeypatch.setattr(holes, "_MOST_STRETCHES", 2)
    mount = None if fstype is None else replace(read_mounts()[0], fstype=fstype)
    monkeypatch.setattr(holes, "mount_of", lambda *_: mount)
    counted = 2 * 4096 + MIB - MIB // 8 - 4096
    assert data_bytes(folder, "islands", MIB, blocks=blocks) == min(counted, at_most)


@pytest.mark.parametrize(
    ("data", "hole"), [(0, 0), (4096, 4096), (0, MIB), (8192, 4096), (4096, 0)]
)
def test_who_asks_for_data_where_nothing_is_told_comes_to_an_end(
    data: int, hole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program behind FUSE may answer with where it was before, or what was asked for."""
    monkeypatch.setattr(os, "lseek", lambda _, __, whence: {os.SEEK_DATA: data}.get(whence, hole))
    with pytest.raises(OSError, match="does not say where its data is"):
        next_data(-1, 4096, MIB)
