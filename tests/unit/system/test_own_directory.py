"""A directory of our own where others may write: what is put in its place is never touched."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostprep.system.own_directory import make_own, own_directory, remove_left
from hostprep.system.trees import DIRECTORY_FLAGS
from tests.kit.processes import open_files


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    (tmp_path / "victim/sub").mkdir(parents=True)
    (tmp_path / "victim/sub/precious").write_text("x")
    (tmp_path / "parent").mkdir()
    return tmp_path / "parent"


def precious(parent: Path) -> bool:
    victim = parent.parent / "victim"
    return os.listdir(victim) == ["sub"] and os.listdir(victim / "sub") == ["precious"]


def meanwhile(monkeypatch: pytest.MonkeyPatch, exchange: Callable[[Path], None], at: Path) -> None:
    """Have what was just made be exchanged before anybody opens it."""
    mkdir = os.mkdir

    def exchanging(name: str, mode: int, *, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        monkeypatch.setattr(os, "mkdir", mkdir)
        (at / name).rename(at / f"moved-{name}")
        exchange(at / name)
        monkeypatch.setattr(os, "mkdir", exchanging)

    monkeypatch.setattr(os, "mkdir", exchanging)


def test_it_is_ours_alone_and_goes_with_all_that_came_into_it(parent: Path) -> None:
    held = open_files()
    with own_directory(str(parent), "own-") as descriptor:
        (made,) = parent.iterdir()
        assert made.name.startswith("own-") and made.stat().st_mode & 0o777 == 0o700
        assert os.path.samestat(os.fstat(descriptor), made.stat())
        (made / "deep/deeper").mkdir(parents=True)
        (made / "deep/file").write_text("x")
        (made / "deep/link").symlink_to(parent.parent / "victim")
    assert not list(parent.iterdir()) and precious(parent)
    assert open_files() == held


def test_what_was_moved_is_emptied_and_what_has_its_name_stays(parent: Path) -> None:
    with own_directory(str(parent), "own-") as descriptor:
        (made,) = parent.iterdir()
        (made / "file").write_text("x")
        made.rename(parent / "moved")
        made.symlink_to(parent.parent / "victim")
        os.mkdir("later", dir_fd=descriptor)
    assert made.is_symlink() and precious(parent)
    assert os.listdir(parent / "moved") == []


def put_nothing(place: Path) -> None:
    pass


def put_symlink(place: Path) -> None:
    place.symlink_to(place.parents[1] / "victim")


def put_file(place: Path) -> None:
    place.write_text("x")


def put_fifo(place: Path) -> None:
    os.mkfifo(place)


def put_full(place: Path) -> None:
    (place.parents[1] / "victim").rename(place)
    place.chmod(0o777)  # whoever may rename it may well write to it, and shall still


def put_anothers(place: Path) -> None:
    place.mkdir(mode=0o777)
    os.chown(place, 65534, 65534)


@pytest.mark.parametrize(
    "put", [put_nothing, put_symlink, put_file, put_fifo, put_full, put_anothers]
)
def test_what_is_exchanged_before_it_is_open_is_not_used(
    put: Callable[[Path], None], parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if put is put_anothers and os.geteuid() != 0:
        pytest.skip("needs root, to make a directory of somebody else's")
    held = open_files()
    meanwhile(monkeypatch, put, parent)
    descriptor = os.open(parent, os.O_RDONLY)
    with pytest.raises(FileExistsError):
        make_own(descriptor, "own")
    os.close(descriptor)
    there = parent / "own" if put is put_full else parent.parent / "victim"
    assert os.listdir(there / "sub") == ["precious"] and os.listdir(there) == ["sub"]
    assert os.path.lexists(parent / "own") is (put is not put_nothing)
    if put is put_full:
        assert there.stat().st_mode & 0o777 == 0o777
    if put is put_anothers:
        assert not list((parent / "own").iterdir())
    assert open_files() == held


def test_where_all_are_taken_away_it_is_an_oserror(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, put_symlink, parent)
    with pytest.raises(OSError, match="somebody removes each folder"):
        own_directory(str(parent), "own-").__enter__()
    assert precious(parent)


def test_an_empty_directory_that_all_may_write_is_closed_to_them(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_open(place: Path) -> None:
        place.mkdir()
        place.chmod(0o777)

    meanwhile(monkeypatch, put_open, parent)
    with own_directory(str(parent), "own-") as descriptor:
        assert os.fstat(descriptor).st_mode & 0o777 == 0o700


def test_where_the_file_system_names_the_owner_ours_is_ours(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on vfat, and on an NFS export that makes nobody of root."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with own_directory(str(parent), "own-") as descriptor:
        assert os.listdir(descriptor) == []
    assert not list(parent.iterdir())


def test_what_cannot_be_looked_at_is_not_left(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = open_files()

    def failing(*_: Any, **__: Any) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", failing)
        with pytest.raises(OSError, match="No space"):
            own_directory(str(parent), "own-").__enter__()
    assert not list(parent.iterdir()) and open_files() == held


def test_where_no_more_files_may_be_open_nothing_is_left(parent: Path) -> None:
    parent_fd = os.open(parent, DIRECTORY_FLAGS)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.dup(parent_fd)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, limits[1]))
    try:
        with pytest.raises(OSError) as caught:
            make_own(parent_fd, "own")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(parent_fd)
    assert caught.value.errno == errno.EMFILE
    assert not list(parent.iterdir())


def test_what_a_killed_process_left_goes_where_it_is_still_that(parent: Path) -> None:
    held = open_files()
    left = parent / "own-1"
    (left / "deep").mkdir(parents=True)
    (left / "deep/file").write_text("x")
    status = left.stat()
    for other in ((status.st_dev, status.st_ino + 1), (status.st_dev + 1, status.st_ino)):
        remove_left(str(left), *other)
        assert (left / "deep/file").exists()
    left.rename(parent / "moved")
    left.symlink_to(parent / "moved")
    remove_left(str(left), status.st_dev, status.st_ino)
    assert (parent / "moved/deep/file").exists() and left.is_symlink()
    remove_left(str(parent / "moved"), status.st_dev, status.st_ino)
    assert list(parent.iterdir()) == [left]
    remove_left(str(parent / "none/at/all"), status.st_dev, status.st_ino)
    assert open_files() == held
