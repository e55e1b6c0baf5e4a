"""A name that something has is never taken."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.system import renaming
from hostprep.system.renaming import rename_new


@pytest.fixture(params=["one step", "no flag", "no hard links"])
def folders(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[int, int]]:
    def unknown(*_: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if request.param != "one step":
        monkeypatch.setattr(renaming, "_renameat2", unknown)
    if request.param == "no hard links":
        monkeypatch.setattr(os, "link", no_links)
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    opened = [os.open(tmp_path / name, os.O_RDONLY) for name in ("from", "to")]
    yield opened[0], opened[1]
    for descriptor in opened:
        os.close(descriptor)


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
@pytest.mark.parametrize("there", ["nothing", "file", "link", "directory"])
def test_it_is_moved_where_nothing_is(
    kind: str, there: str, folders: tuple[int, int], tmp_path: Path
) -> None:
    def make(path: Path, what: str) -> None:
        if what == "file":
            path.write_bytes(b"")
        elif what == "link":
            path.symlink_to("nowhere")
        elif what == "directory":
            path.mkdir()

    old, new = tmp_path / "from/\udcff", tmp_path / "to/new"
    make(old, kind)
    make(new, there)
    inode = old.lstat().st_ino
    before = new.lstat() if there != "nothing" else None
    if before is None:
        rename_new("\udcff", "new", src_dir_fd=folders[0], dst_dir_fd=folders[1])
        assert new.lstat().st_ino == inode and not os.path.lexists(old)
        return
    with pytest.raises(FileExistsError):
        rename_new("\udcff", "new", src_dir_fd=folders[0], dst_dir_fd=folders[1])
    assert new.lstat().st_ino == before.st_ino and old.lstat().st_ino == inode


def test_what_is_not_there_cannot_be_moved(folders: tuple[int, int]) -> None:
    with pytest.raises(FileNotFoundError):
        rename_new("none", "new", src_dir_fd=folders[0], dst_dir_fd=folders[1])


def test_what_fails_in_one_step_is_not_tried_in_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where the kernel or the file system does not know how: the second way has a gap."""

    def failing(*_: object) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(renaming, "_renameat2", failing)
    (tmp_path / "old").mkdir()
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Input/output error"):
            rename_new("old", "new", src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
    assert os.listdir(tmp_path) == ["old"]
