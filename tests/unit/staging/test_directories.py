"""What a directory has beside its entries: lost with its source, never because of the target."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hostprep.staging.files.directories import finish_directory
from hostprep.staging.files.metadata import CopyStyle
from hostprep.staging.model import Entry, Verify
from hostprep.staging.tree import entry_of
from hostprep.system.trees import DirCache

Trees = tuple[Path, DirCache, DirCache, Entry, CopyStyle]


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[Trees]:
    (tmp_path / "from/a").mkdir(parents=True)
    (tmp_path / "to/a").mkdir(parents=True)
    try:
        os.setxattr(tmp_path / "from/a", "user.of", b"it")
    except OSError:
        pytest.skip("the file system of temporary files holds no attributes")
    os.utime(tmp_path / "from/a", ns=(1, 2))
    with ExitStack() as stack:

        def opened(name: str) -> DirCache:
            descriptor = os.open(tmp_path / name, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            return stack.enter_context(DirCache(descriptor))

        found = entry_of("a", os.lstat(tmp_path / "from/a"))
        style = CopyStyle(Verify.NONE, os.geteuid(), os.getegid(), os.geteuid() == 0)
        yield tmp_path, opened("from"), opened("to"), found, style


def test_a_target_that_fails_ends_the_run(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    _, source, target, entry, style = trees

    def fail(descriptor: int, *_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), descriptor)

    monkeypatch.setattr(os, "setxattr", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        finish_directory("a", entry, source, target, style)
    assert caught.value.filename == "a"


def test_a_source_that_fails_once_is_not_called_the_target(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name the error would be taken for the target's."""
    _, source, target, entry, style = trees

    def fail(descriptor: int, *_: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), descriptor)

    monkeypatch.setattr(os, "getxattr", fail)
    with pytest.raises(OSError, match="Stale file handle") as caught:
        finish_directory("a", entry, source, target, style)
    assert caught.value.filename != "a"


@pytest.mark.parametrize("name", ["fchmod", "utime"])
def test_what_a_target_refuses_a_directory_is_told_with_its_name(
    name: str, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those are calls by descriptor, whose errors name nothing, or its number."""
    _, source, target, entry, style = trees

    def fail(descriptor: int, *_: object, **__: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), descriptor)

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(PermissionError) as caught:
        finish_directory("a", entry, source, target, style)
    assert caught.value.filename == "a"


def test_a_source_that_fails_as_a_whole_is_not_called_the_target(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, source, target, entry, style = trees

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "getxattr", fail)
    monkeypatch.setattr(os, "fstatvfs", fail)
    with pytest.raises(OSError, match="nothing comes from the source any more") as caught:
        finish_directory("a", entry, source, target, style)
    assert caught.value.filename is None


def test_a_source_that_is_gone_does_not(trees: Trees) -> None:
    folder, source, target, entry, style = trees
    shutil.rmtree(folder / "from/a")
    assert finish_directory("a", entry, source, target, style) is None
    assert os.stat(folder / "to/a").st_mtime_ns == 2
