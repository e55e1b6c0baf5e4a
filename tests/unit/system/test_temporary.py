"""Temporary files where there is no place for any."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError
from hostprep.system.temporary import temporary_folder, temporary_text
from tests.kit.processes import open_files


def test_that_there_is_no_place_is_told_and_not_called_a_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(**kwargs: Any) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refused)
    with (
        pytest.raises(HostprepError, match="No usable temporary directory") as caught,
        temporary_text("words"),
    ):
        pass
    assert "TMPDIR" in (caught.value.hint or "")


def test_that_there_is_no_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**kwargs: Any) -> Any:
        return open("/dev/full", "wb", buffering=kwargs["buffering"])

    with monkeypatch.context() as patched, pytest.raises(HostprepError, match="No space left"):
        patched.setattr(tempfile, "NamedTemporaryFile", full)
        with temporary_text("words"):
            pass
    with temporary_text("words") as path:
        assert Path(path).read_text() == "words"
    assert not Path(path).exists()


def test_a_folder_goes_with_what_came_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_folder() as path:
        assert path is not None
        (Path(path) / "socket").touch()
    assert not Path(path).exists()

    def refused(**kwargs: Any) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refused)
    with temporary_folder() as path:
        assert path is None


def test_what_a_killed_run_left_goes_and_what_another_run_uses_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    open_before = open_files()
    theirs = tmp_path / "hostprep-m-theirs"
    if os.geteuid() == 0:
        theirs.mkdir()
        os.chown(theirs, 54321, -1)
    with temporary_folder() as used:
        assert used is not None
        left = Path(used).with_name(Path(used).name[:-1] + "-")
        left.mkdir()
        (left / "socket").touch()
        (tmp_path / "hostprep-of-somebody").mkdir()
        with temporary_folder() as path:
            assert path is not None
            assert not left.exists()
            assert Path(used).is_dir()
    if os.geteuid() == 0:
        theirs.rmdir()
    assert [each.name for each in tmp_path.iterdir()] == ["hostprep-of-somebody"]
    assert open_files() == open_before


def test_a_folder_that_another_run_took_for_left_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and the lock on it another run may have had that, or removed it."""

    def held(descriptor: int, how: int) -> None:
        raise BlockingIOError

    def gone(descriptor: int, how: int) -> None:
        os.rmdir(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for meanwhile in (held, gone):
        monkeypatch.setattr(fcntl, "flock", meanwhile)
        with temporary_folder() as path:
            assert path is None
    assert not list(tmp_path.iterdir())
