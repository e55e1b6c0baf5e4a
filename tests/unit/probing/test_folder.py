"""The probe's own folder: locked, hidden, and gone afterwards, whatever is in its way."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hostprep.probing.folder import own_folder
from tests.kit.processes import open_files
from tests.unit.probing.folders import leftovers


def test_the_folder_goes_and_the_parents_time_stays(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(10**18, 10**18))
    with own_folder(tmp_path) as folder:
        (folder.path / "data").write_bytes(b"x")
        assert folder.path.parent == tmp_path and folder.path.name.startswith(".")
        assert folder.path.stat().st_mode & 0o777 == 0o700
    assert leftovers(tmp_path) == []
    assert tmp_path.stat().st_mtime_ns == 10**18


def test_what_others_change_beside_the_folder_still_shows(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(10**18, 10**18))
    with own_folder(tmp_path):
        made = tmp_path.stat().st_mtime_ns
        while time.time_ns() < made + 20_000_000:  # beyond a tick, in which times are the same
            time.sleep(0.001)
        (tmp_path / "new.jpg").touch()
    assert leftovers(tmp_path) == []
    assert tmp_path.stat().st_mtime_ns > made


def test_a_killed_runs_folder_is_removed_by_the_next_and_a_living_ones_is_not(
    tmp_path: Path,
) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from hostprep.probing.folder import own_folder\n"
        "with own_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder.path / 'data').write_bytes(b'x'); print(folder.path, flush=True)\n"
        "    time.sleep(300)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with own_folder(tmp_path):
            assert (theirs / "data").exists()
        assert (theirs / "data").exists()
        other.kill()
        other.wait()
        assert (theirs / "data").exists()
        with own_folder(tmp_path):
            assert not (theirs / "data").exists()
    assert leftovers(tmp_path) == []


def test_what_could_not_be_removed_is_removed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def refusing(path: Any, **more: Any) -> None:
        if path == "1":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refusing)
        with own_folder(tmp_path) as folder:
            (folder.path / "small").mkdir()
            (folder.path / "small" / "1").write_bytes(b"x")
            (folder.path / "data").write_bytes(b"x")
    assert (folder.path / "small" / "1").exists()  # the test itself: it was left
    assert not (folder.path / "data").exists() and not folder.moved
    said = folder.note()
    assert said is not None and f"{folder.path}, which held the test files, could not" in said
    with own_folder(tmp_path) as again:
        assert not (again.path / "small").exists()
    assert again.note() is None
    assert leftovers(tmp_path) == []


def test_a_killed_runs_folder_is_removed_where_files_have_an_owner_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on vfat, and on an NFS export that makes nobody of root."""
    left = left_by_a_killed_run(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with own_folder(tmp_path) as ours:
        assert ours.path != left and not left.exists()
    assert leftovers(tmp_path) == []


def left_by_a_killed_run(parent: Path, slot: int = 0) -> Path:
    """Make what a run leaves that was killed, without waiting for one."""
    with own_folder(parent) as folder:
        path = folder.path.with_name(f"{folder.path.name.rpartition('-')[0]}-{slot}")
    path.mkdir(mode=0o700)
    (path / "lock").touch()
    (path / "data").write_bytes(b"x")
    return path


def test_what_is_only_named_like_ours_stays(tmp_path: Path) -> None:
    strange = left_by_a_killed_run(tmp_path)
    (strange / "lock").unlink()
    (strange / "precious").write_text("x")
    with own_folder(tmp_path):
        pass
    (strange / "lock").touch()  # as other programs do
    with own_folder(tmp_path):
        pass
    assert (strange / "precious").exists() and (strange / "data").exists()
    (strange / "precious").unlink()
    strange.chmod(0o777)
    with own_folder(tmp_path):
        pass
    assert (strange / "data").exists()
    strange.chmod(0o700)
    with own_folder(tmp_path):
        assert not (strange / "data").exists()  # the test itself: nothing else kept it


@pytest.mark.parametrize("kind", ["file", "fifo", "link", "link to one that was left"])
def test_names_that_are_taken_are_passed_by_and_left_alone(kind: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    parent = tmp_path / "parent"
    parent.mkdir()
    left = left_by_a_killed_run(outside)
    for slot in range(16):
        place = parent / f"{left.name.rpartition('-')[0]}-{slot}"
        if kind == "file":
            place.write_text("x")
        elif kind == "fifo":
            os.mkfifo(place)
        else:
            place.symlink_to(outside if kind == "link" else left)
        if slot == 14:
            with own_folder(parent) as folder:
                assert folder.path.name.endswith("-15")
    with pytest.raises(OSError, match="all 16 names of hostprep's folder are taken"):
        own_folder(parent).__enter__()
    assert len(leftovers(parent)) == 16
    assert (left / "data").exists()


def test_a_folder_without_a_lock_is_taken_once_it_is_old_and_empty(tmp_path: Path) -> None:
    with own_folder(tmp_path) as folder:
        pass
    folder.path.mkdir(mode=0o700)
    with own_folder(tmp_path) as other:
        assert other.path != folder.path  # somebody may be about to make its lock
    os.utime(folder.path, (0, 0))
    with own_folder(tmp_path) as again:
        assert again.path == folder.path
    assert leftovers(tmp_path) == []


def refusing(code: int) -> Any:
    def flock(_: int, __: int) -> None:
        raise OSError(code, os.strerror(code))

    return flock


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_there_is_a_folder_and_another_ones_stays(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(code))
    held = open_files()
    with own_folder(tmp_path) as folder:
        (folder.path / "data").write_bytes(b"x")
        os.utime(folder.path, (0, 0))
        with own_folder(tmp_path) as other:
            assert other.path != folder.path
        assert (folder.path / "data").exists()  # whether somebody uses it cannot be told
    assert leftovers(tmp_path) == []
    assert open_files() == held


def test_a_lock_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.EIO))
    held = open_files()
    with pytest.raises(OSError, match="Input/output error"), own_folder(tmp_path):
        pass
    assert leftovers(tmp_path) == []
    assert open_files() == held


def test_runs_beside_each_other_have_folders_of_their_own(tmp_path: Path) -> None:
    with ExitStack() as stack:
        folders = {stack.enter_context(own_folder(tmp_path)).path for _ in range(5)}
        assert len(folders) == 5
    assert leftovers(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_an_oserror(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(OSError), own_folder(file):
        pass


def test_locks_are_of_files_and_not_of_processes(tmp_path: Path) -> None:
    # What own_folder relies on: the same process cannot take its own lock a second time.
    with (
        own_folder(tmp_path) as folder,
        open(folder.path / "lock") as again,
        pytest.raises(OSError),
    ):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
