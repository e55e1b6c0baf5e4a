"""A probe from first to last, and paths that do not answer."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError, UsageError
from hostprep.host.answering import NoAnswer
from hostprep.probing.alive import check_listable
from hostprep.probing.contradictions import contradictions
from hostprep.probing.judge import judge
from hostprep.probing.model import Settings
from hostprep.probing.observer import Silent
from hostprep.probing.phases import Phases
from hostprep.probing.probe import probe, target
from hostprep.probing.small_files import FEWEST_FILES
from hostprep.units import MIB
from tests.unit.probing.folders import leftovers, tree
from tests.unit.probing.made import small_files, small_run


def test_looking_at_paths(tmp_path: Path) -> None:
    check_listable(str(tmp_path))
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UsageError, match="not a folder"):
        check_listable(str(file))
    with pytest.raises(UsageError, match="does not exist") as caught:
        check_listable(str(tmp_path / "missing"))
    assert caught.value.hint
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(HostprepError, match="could not be read"):
        check_listable(str(loop))


def test_a_path_that_hangs_is_left_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "stat", lambda path: time.sleep(60))
    begun = time.monotonic()
    with pytest.raises(NoAnswer, match="does not answer"):
        check_listable(str(tmp_path), patience_seconds=0.3)
    assert time.monotonic() - begun < 40


@pytest.mark.parametrize(
    ("code", "exit_code"), [(errno.ENOTCONN, 4), (errno.ESTALE, 4), (errno.ENOMEM, 1)]
)
def test_storage_that_goes_while_it_is_measured_is_a_sentence(
    code: int, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> int:
        raise OSError(code, os.strerror(code), str(tmp_path))

    monkeypatch.setattr("hostprep.probing.phases.room", gone)
    with pytest.raises(HostprepError, match=os.strerror(code)) as error:
        probe(target(str(tmp_path)), Settings(5, MIB), Silent())
    assert error.value.exit_code == exit_code
    assert leftovers(tmp_path) == []


def test_storage_that_hangs_while_it_is_measured_may_keep_the_test_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostprep.probing.probe._SILENCE_SECONDS", 1.0)
    monkeypatch.setattr("hostprep.probing.phases.room", lambda *_: time.sleep(60))
    with pytest.raises(NoAnswer, match="stopped answering") as error:
        probe(target(str(tmp_path)), Settings(5, MIB), Silent())
    assert "A hidden folder with test data may still be there" in error.value.message
    assert "removes that folder" in str(error.value.hint)


def test_small_files_that_cannot_be_removed_do_not_end_the_probe(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In memory: on a busy disk there may be no time left to write what comes after them.
    path = memory_folder / "here"
    path.mkdir()

    def refusing(path: Any, **more: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refusing)
        measured = probe(target(str(path)), Settings(10, 40 * MIB), Silent())
    assert measured.small is not None
    assert measured.sequential is not None, measured.file_note


@pytest.mark.timed  # on a busy disk the time for taking files out of memory is over too soon
@pytest.mark.parametrize("files", [FEWEST_FILES - 1, FEWEST_FILES])
def test_however_few_files_there_are_a_rate_is_taken(files: int, tmp_path: Path) -> None:
    tree(tmp_path, files=files)
    os.sync()  # on a busy disk writing them out would take the time that they are evicted in
    settings = Settings(5, 40 * MIB)
    measured = probe(target(str(tmp_path)), settings, Silent())
    assert measured.small is not None
    assert measured.small.source == ("dataset" if files >= FEWEST_FILES else "made")
    assert "too_few_files" not in {reason.code for reason in contradictions(measured)}


def forty_files(folder: Path) -> None:
    for number in range(FEWEST_FILES):
        (folder / str(number)).write_bytes(b"x")


@pytest.mark.parametrize(
    ("mean_bytes", "made_files_per_s", "source"),
    [(100_000, 2, "dataset"), (100_000, 80, "made"), (32 * MIB, 2, "made")],
)
def test_where_the_storage_is_slow_made_files_do_not_stand_for_those_that_are_here(
    mean_bytes: int,
    made_files_per_s: float,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forty_files(tmp_path)
    few = small_files(cold=(small_run(1, 2),), mean_bytes=mean_bytes)
    made = small_files(cold=(small_run(1, made_files_per_s),), source="made")
    monkeypatch.setattr(Phases, "read_small", lambda *_: few)
    monkeypatch.setattr(Phases, "make_and_read_small", lambda *_: (made, None))
    monkeypatch.setattr(Phases, "lay_out", lambda *_: (None, "no room"))
    found = Phases(target(str(tmp_path)), Settings(seconds=5), Silent()).run()
    assert found.small is not None and found.small.source == source
    epoch = judge(found, None)
    assert (epoch.epoch is not None) is (source == "dataset")
    assert epoch.epoch_note != "there is no data set under the path"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errno.ENOSPC, "there is no room to write here (No space left on device)"),
        (errno.EROFS, "nothing can be written here (Read-only file system)"),
    ],
)
def test_a_full_disk_is_not_called_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, said: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("hostprep.probing.phases.own_folder", refuse)
    found = Phases(target(str(tmp_path)), Settings(seconds=5), Silent()).run()
    assert said in (found.small_note or "") and said in (found.file_note or "")


def test_files_that_cannot_be_read_are_not_called_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    forty_files(tmp_path)
    monkeypatch.setattr("hostprep.probing.phases.own_folder", refuse)
    monkeypatch.setattr("hostprep.probing.phases.refusal", lambda *_: "Permission denied")
    monkeypatch.setattr(Phases, "read_small", lambda *_: None)
    found = Phases(target(str(tmp_path)), Settings(seconds=5), Silent()).run()
    assert found.small_note == (
        "the files here cannot be read, and nothing can be written here (Permission denied)"
    )


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTUNREACH])
def test_a_path_whose_server_is_gone_gives_no_answer(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"errno": code, "words": os.strerror(code)}
    monkeypatch.setattr("hostprep.probing.alive.ask_in_child", lambda *_, **__: gone)
    with pytest.raises(NoAnswer, match=os.strerror(code)):
        check_listable(str(tmp_path))


@pytest.mark.parametrize("user", [0, 1000])
def test_root_whom_a_server_keeps_out_is_not_told_to_be_root(
    user: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = {"errno": errno.EACCES, "words": "Permission denied"}
    monkeypatch.setattr("hostprep.probing.alive.ask_in_child", lambda *_, **__: denied)
    monkeypatch.setattr("os.geteuid", lambda: user)
    with pytest.raises(HostprepError, match="may not be read") as caught:
        check_listable(str(tmp_path))
    assert (caught.value.hint == "run it as root") is (user != 0)
