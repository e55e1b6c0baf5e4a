"""Where symlinks lead while somebody exchanges them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.cli.main import run
from hostprep.errors import Refused
from hostprep.system.following import followed


def _exchanging(way: Path, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``way`` be a folder, and no symlink any more, when it is read, that often."""
    readlink, left = os.readlink, [times + 1]

    def read(path: str, *, dir_fd: int | None = None) -> str:
        if Path(path).absolute() != way or left[0] == 0:
            return readlink(path, dir_fd=dir_fd)
        left[0] -= 1
        leads_to = readlink(path)
        way.unlink()
        way.mkdir()
        try:
            return readlink(path)
        finally:
            way.rmdir()
            way.symlink_to(leads_to)

    monkeypatch.setattr(os, "readlink", read)
    try:
        os.path.realpath(way)
    except OSError:
        return
    pytest.skip("this Python passes over it by itself")


def test_a_symlink_that_is_exchanged_as_it_is_read_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "way").symlink_to("there")
    _exchanging(tmp_path / "way", 3, monkeypatch)
    assert followed(tmp_path / "way/file") == str(tmp_path / "there/file")
    _exchanging(tmp_path / "way", 10**6, monkeypatch)
    with pytest.raises(Refused, match="somebody exchanges symlinks all the time"):
        followed(tmp_path / "way/file")


def test_who_exchanges_them_all_the_time_has_commands_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "way").symlink_to("there")
    path = str(tmp_path / "way/file")
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    _exchanging(tmp_path / "way", 10**6, monkeypatch)
    for command in (
        ["unstage", path, "--dry-run"],
        ["check", "--only", "HP020", "--output", path],
    ):
        assert run(command) == 5
        assert "somebody exchanges symlinks" in capsys.readouterr().err


def test_a_folder_that_was_removed_below_us_is_no_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError):
        followed("file")
