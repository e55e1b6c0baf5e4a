"""Directories in which all is copied get their modes and times by the worker that copied into them.

What comes of a whole run is in ``tests/integration``.
"""

from __future__ import annotations

import errno
import marshal
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.staging.processes import copier
from hostprep.staging.processes.descriptors import Descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.worker import Worker
from hostprep.staging.reasons import GONE
from hostprep.staging.tree import entry_of

LONG_AGO_NS = 123_456_789_000_000_001


class Trees:
    """A source with two folders, an empty target, and a worker between them."""

    def __init__(self, base: Path) -> None:
        self.source, self.target = base / "source", base / "target"
        self.target.mkdir()
        for folder in ("a", "b"):
            (self.source / folder).mkdir(parents=True)
            for name in ("one", "two"):
                (self.source / folder / name).write_bytes(b"x")
            (self.source / folder).chmod(0o2751)
            os.utime(self.source / folder, ns=(5, LONG_AGO_NS))
        self.roots = [os.open(path, os.O_RDONLY) for path in (self.source, self.target)]
        self.worker = Worker(Job(*self.roots), None, Descriptors())

    def copy(self, names: list[str], folders: list[str]) -> tuple[list[str], list[Any]]:
        """Copy files, a batch for each; return which folders are not finished, and modes."""
        batches = [
            (path.parent.name, marshal.dumps([tuple(entry_of(path.name, os.lstat(path)))]))
            for path in (self.source / name for name in names)
        ]
        finishing = {path: tuple(entry_of(path, os.lstat(self.source / path))) for path in folders}
        unfinished, modes = self.worker.do("copy", (batches, finishing))[-1]
        return sorted(unfinished), modes

    def finished(self, folder: str) -> bool:
        st = os.stat(self.target / folder)
        return (st.st_mode & 0o7777, st.st_mtime_ns) == (0o2751, LONG_AGO_NS)


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[Trees]:
    umask = os.umask(0)
    made = Trees(tmp_path)
    yield made
    os.umask(umask)
    made.worker.close()
    for root in made.roots:
        os.close(root)


def test_they_are_finished_after_the_last_of_their_files(trees: Trees) -> None:
    names = ["a/one", "b/one", "a/two"]  # as where a is that of the first of two hard links
    assert trees.copy(names, ["a"]) == ([], [])
    assert trees.finished("a") and not trees.finished("b")


def test_one_in_which_a_file_failed_is_left_for_the_end(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(item: Any, source_dir: int, target_dir: int, *rest: Any) -> str | None:
        if item[0] == "one" and os.readlink(f"/proc/self/fd/{target_dir}").endswith("a"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(item, source_dir, target_dir, *rest)

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    real = copier.copy_small
    monkeypatch.setattr(copier, "copy_small", copy)
    monkeypatch.setattr(copier.Copier, "_copy_with_care", fail)
    assert trees.copy(["a/one", "a/two", "b/one", "b/two"], ["a", "b"]) == (["a"], [])
    assert not trees.finished("a") and trees.finished("b")


def test_what_is_in_the_way_of_it_is_met_at_the_end(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(copier, "finish_directory", fail)
    assert trees.copy(["a/one", "a/two"], ["a"]) == (["a"], [])


def test_a_mode_that_the_target_made_another_one_is_told(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "finish_directory", lambda *_: 0o700)
    assert trees.copy(["a/one"], ["a"]) == ([], [("a", 0o700)])


def test_most_are_finished_the_quick_way(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    folder = trees.source / "a"
    if os.geteuid() == 0:
        os.chown(folder, 3, 4)
    folder.chmod(0o1751)
    os.utime(folder, ns=(LONG_AGO_NS + 1, LONG_AGO_NS))
    monkeypatch.setattr(copier, "finish_directory", fail)
    assert trees.copy(["a/one", "a/two"], ["a"]) == ([], [])
    wanted, made = os.stat(folder), os.stat(trees.target / "a")
    for field in ("st_mode", "st_uid", "st_gid", "st_atime_ns", "st_mtime_ns"):
        assert getattr(made, field) == getattr(wanted, field), field


def test_one_that_has_more_is_finished_with_care(trees: Trees) -> None:
    folder = trees.source / "a"
    folder.chmod(0o751)
    try:
        os.setxattr(folder, "user.of", b"it")
    except OSError:
        pytest.skip("the file system of temporary files holds no attributes")
    os.utime(folder, ns=(5, LONG_AGO_NS))
    assert trees.copy(["a/one", "a/two"], ["a"]) == ([], [])
    assert os.getxattr(trees.target / "a", "user.of") == b"it"
    assert os.stat(trees.target / "a").st_mtime_ns == LONG_AGO_NS


def test_one_that_the_quick_way_fails_is_finished_with_care(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(copier, "finish_new", fail)
    assert trees.copy(["a/one", "a/two"], ["a"]) == ([], [])
    assert trees.finished("a")


def test_a_large_file_that_cannot_be_seen_is_not_said_to_be_deleted(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changed while it was copied, and is looked at before it is copied once more."""
    assert trees.worker.do("lstat", ("a", "one"))[0] == "one"
    assert trees.worker.do("lstat", ("a", "three")) == GONE

    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "lstat", failing)
    assert trees.worker.do("lstat", ("a", "one")) == "Input/output error"


@pytest.mark.parametrize("gone", [True, False])
def test_a_source_of_which_nothing_comes_ends_the_run_at_the_first_file(
    gone: bool, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A soft mount gives EIO for each file, after minutes; a bad sector is that of one file."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(copier, "copy_small", fail)
    monkeypatch.setattr(copier.copying, "copy_file", fail)
    if gone:
        monkeypatch.setattr(os, "fstatvfs", fail)
        with pytest.raises(OSError, match="nothing comes from the source any more: Input"):
            trees.copy(["a/one"], ["a"])
    else:
        assert trees.copy(["a/one"], ["a"]) == (["a"], [])
