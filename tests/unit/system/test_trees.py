"""Directories by descriptor: nothing is followed, however deep, whatever is swapped meanwhile."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.system.trees import (
    DIRECTORY_FLAGS,
    DirCache,
    empty_tree,
    join,
    names_in,
    remove_directory,
    remove_tree,
    writable,
)
from tests.kit.hostile import tree_that_leads_out
from tests.kit.processes import open_files


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "root").mkdir()
    descriptor = os.open(tmp_path / "root", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_it_opens_and_makes_and_closes(root: int, tmp_path: Path) -> None:
    before = open_files()
    with DirCache(root) as cache, pytest.raises(FileNotFoundError):
        cache.fd("a/b")
    with DirCache(root, create=True) as cache:
        assert cache.fd("") == root
        assert os.stat(cache.fd("a/b/c")).st_ino == (tmp_path / "root/a/b/c").stat().st_ino
        assert os.stat(cache.fd("a")).st_ino == (tmp_path / "root/a").stat().st_ino
        assert (tmp_path / "root/a/b").stat().st_mode & 0o777 == 0o700
    assert open_files() == before


def test_what_is_there_is_opened_in_a_fresh_tree_too(root: int, tmp_path: Path) -> None:
    (tmp_path / "root/a").mkdir(mode=0o755)
    with DirCache(root, create=True, fresh=True) as cache:
        assert os.stat(cache.fd("a/b")).st_ino == (tmp_path / "root/a/b").stat().st_ino
    assert (tmp_path / "root/a").stat().st_mode & 0o777 == 0o755


def test_what_an_earlier_run_left_in_a_fresh_tree_hands_no_group_down(
    root: int, tmp_path: Path
) -> None:
    (tmp_path / "root/a").mkdir()
    (tmp_path / "root/a").chmod(0o2755)
    for fresh, mode in ((False, 0o2755), (True, 0o755)):
        with DirCache(root, create=True, fresh=fresh) as cache:
            assert stat.S_IMODE(os.fstat(cache.fd("a")).st_mode) == mode


@pytest.mark.parametrize("limit", [1, 2, 3, 64])
def test_it_keeps_to_its_limit_on_any_way_through_the_tree(limit: int, root: int) -> None:
    before = open_files()
    paths = [
        "a",
        "a/b",
        "a/b/c/d/e",
        "a/x",
        "f/g/h",
        "a/b/c",
        "f",
        "",
        "a/b/c/d/e",
        "/".join("z" * 80),
    ]
    with DirCache(root, create=True, limit=limit) as cache:
        for path in paths * 2:
            found = os.readlink(f"/proc/self/fd/{cache.fd(path)}")
            assert found.endswith("root" + (f"/{path}" if path else ""))
            assert open_files() <= before + limit
    assert open_files() == before


@pytest.mark.parametrize("where", ["a", "a/b", "a/b/c"])
@pytest.mark.parametrize("how", [{}, {"create": True}, {"create": True, "fresh": True}])
def test_a_symlink_is_never_followed(
    where: str, how: dict[str, bool], root: int, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "b/c").mkdir(parents=True)
    (outside / "c").mkdir()
    place = tmp_path / "root" / where
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside)
    with DirCache(root, **how) as cache:
        for path in (where, join(where, "c"), join(where, "new")):
            with pytest.raises(OSError) as caught:
                cache.fd(path)
            assert not isinstance(caught.value, FileNotFoundError)
    assert sorted(os.listdir(outside)) == ["b", "c"]


def test_a_directory_that_becomes_a_symlink_after_it_was_opened(root: int, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (tmp_path / "root/a/sub").mkdir(parents=True)
    with DirCache(root) as cache:
        inside = os.fstat(cache.fd("a")).st_ino
        (tmp_path / "root/a").rename(tmp_path / "moved")
        (tmp_path / "root/a").symlink_to(outside)
        assert os.fstat(cache.fd("a")).st_ino == inside
        assert os.fstat(cache.fd("a/sub")).st_ino == (tmp_path / "moved/sub").stat().st_ino


def test_a_file_in_the_way_is_an_error(root: int, tmp_path: Path) -> None:
    (tmp_path / "root/a").write_bytes(b"")
    with DirCache(root, create=True) as cache, pytest.raises(NotADirectoryError):
        cache.fd("a/b")


def test_removal_follows_nothing(root: int, tmp_path: Path) -> None:
    precious = tree_that_leads_out(tmp_path / "root")
    (tmp_path / "root/top/sub").chmod(0)
    before = open_files()
    remove_tree(root, "top")
    assert os.listdir(tmp_path / "root") == [] and open_files() == before
    assert precious.read_bytes() == b"x"
    remove_tree(root, "top")  # what is gone is fine
    (tmp_path / "root/link").symlink_to(precious.parent)
    with pytest.raises(OSError):
        remove_tree(root, "link")
    assert precious.exists()


def test_a_tree_deeper_than_any_path_is_removed(root: int, tmp_path: Path) -> None:
    before = open_files()
    with DirCache(root, create=True) as cache:
        for names in ("top", "top/side"):
            deep = cache.fd("/".join([names, *["d"] * 1500]))
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, dir_fd=deep))
    try:
        remove_tree(root, "top")
        assert names_in(root) == [] and open_files() == before
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "root/top")], check=True)  # too deep for pytest


def test_what_says_whose_it_is_goes_last(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed meanwhile leaves what the next one knows it by."""
    (tmp_path / "root/sub").mkdir()
    for name in ("info", "zzz", "aaa", "sub/info"):
        (tmp_path / "root" / name).write_bytes(b"x")
    unlink = os.unlink

    def noting(name: str, *, dir_fd: int) -> None:
        left.append(sorted(names_in(root)))
        unlink(name, dir_fd=dir_fd)

    left: list[list[str]] = []
    monkeypatch.setattr(os, "unlink", noting)
    empty_tree(root, last="info")
    assert all("info" in names for names in left) and left[-1] == ["info"]
    assert names_in(root) == []


def test_nobody_else_gets_into_what_is_being_removed(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root/open/sub").mkdir(parents=True)
    for folder in (tmp_path / "root", tmp_path / "root/open", tmp_path / "root/open/sub"):
        (folder / "file").write_bytes(b"x")
        folder.chmod(0o777)
    unlink, modes = os.unlink, []

    def noting(name: str, *, dir_fd: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(dir_fd).st_mode))
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", noting)
    empty_tree(root)
    assert modes == [0o700] * 3


def test_only_the_open_directory_is_removed(root: int, tmp_path: Path) -> None:
    os.mkdir("own", dir_fd=root)
    descriptor = os.open("own", DIRECTORY_FLAGS, dir_fd=root)
    try:
        (tmp_path / "root/own").rename(tmp_path / "root/moved")
        assert remove_directory(root, "own", descriptor) is False, "it is somewhere else"
        (tmp_path / "root/own").symlink_to("moved")
        assert remove_directory(root, "own", descriptor) is False
        (tmp_path / "root/own").unlink()
        (tmp_path / "root/own").mkdir()
        assert remove_directory(root, "own", descriptor) is False
        assert sorted(names_in(root)) == ["moved", "own"]
        assert remove_directory(root, "moved", descriptor) is True
        assert remove_directory(root, "moved", descriptor) is True, "it is gone already"
        assert names_in(root) == ["own"]
    finally:
        os.close(descriptor)


def test_a_file_system_that_refuses_modes_keeps_nothing(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some FUSE, which show one mode for all."""

    def refusing(_: int, __: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    (tmp_path / "root/top/sub").mkdir(parents=True)
    (tmp_path / "root/top/sub/file").write_bytes(b"x")
    monkeypatch.setattr(os, "fchmod", refusing)
    (tmp_path / "root/top/sub").chmod(0o500)
    with pytest.raises(PermissionError):
        remove_tree(root, "top")
    (tmp_path / "root/top/sub").chmod(0o755)
    remove_tree(root, "top")
    assert names_in(root) == []


@pytest.fixture
def ordinary(tmp_path: Path) -> Iterator[int]:
    """Open a directory of an ordinary user's, who is at work until the test ends."""
    (tmp_path / "own").mkdir()
    descriptor = os.open(tmp_path / "own", DIRECTORY_FLAGS)
    before = os.geteuid()
    if before == 0:
        os.chown(descriptor, 65534, 65534)
        os.seteuid(65534)
    yield descriptor
    os.seteuid(before)
    os.close(descriptor)


def mode_of(name: str, parent_fd: int) -> int:
    return os.stat(name, dir_fd=parent_fd).st_mode & 0o777


def test_an_ordinary_user_gets_into_their_own_that_is_closed_to_them(ordinary: int) -> None:
    os.mkdir("closed", 0, dir_fd=ordinary)
    with DirCache(ordinary) as cache, pytest.raises(PermissionError):
        cache.fd("closed")
    assert mode_of("closed", ordinary) == 0, "who only looks opens nothing"
    with DirCache(ordinary, create=True) as cache:
        cache.fd("closed")
        assert mode_of("closed", ordinary) == 0o700
        os.chmod("closed", 0o500, dir_fd=ordinary)
        cache.fd("closed/below")
        assert mode_of("closed", ordinary) == 0o700
    os.chmod("closed/below", 0o000, dir_fd=ordinary)
    os.chmod("closed", 0o500, dir_fd=ordinary)
    remove_tree(ordinary, "closed")
    assert names_in(ordinary) == []


@pytest.mark.parametrize(("mode", "then"), [(0o550, 0o750), (0o650, 0o750), (0o750, 0o750)])
def test_what_they_may_not_write_is_opened_to_them_and_nobody_else(
    mode: int, then: int, ordinary: int
) -> None:
    os.mkdir("own", dir_fd=ordinary)
    descriptor = os.open("own", DIRECTORY_FLAGS, dir_fd=ordinary)
    try:
        os.chmod("own", mode, dir_fd=ordinary)
        assert writable(descriptor) == descriptor
        assert mode_of("own", ordinary) == then
    finally:
        os.close(descriptor)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write what is closed")
def test_root_changes_no_mode_for_it(root: int) -> None:
    os.mkdir("own", 0o500, dir_fd=root)
    with DirCache(root, create=True) as cache:
        cache.fd("own/below")
    assert mode_of("own", root) == 0o500
