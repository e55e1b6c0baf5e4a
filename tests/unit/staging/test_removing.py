"""What an unstaging removes of a real copy, in sight and out of it, and what it leaves."""

from __future__ import annotations

import errno
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError
from hostprep.staging import observer
from hostprep.staging import unstage as unstaging
from hostprep.staging.model import Recorded
from hostprep.staging.observer import Silent
from hostprep.staging.publishing import removing
from hostprep.staging.record.lines import decode_line
from hostprep.staging.record.manifest import manifest_path
from hostprep.staging.record.records import Record, folder, load_record
from hostprep.staging.target.owned import private_name
from hostprep.staging.target.private import prepare
from hostprep.staging.unstage import unstage
from hostprep.staging.unstage_plan import plan_unstage
from hostprep.system.trees import DIRECTORY_FLAGS, names_in
from tests.kit.processes import open_files
from tests.kit.stagecraft import hostprep, make_source, rewrite, snapshot


class Staged:
    """A staged data set, with descriptors of what it lies in and of its private directory."""

    def __init__(self, base: Path) -> None:
        source = make_source(base / "source", directories=3, files=3)
        (source / "class-0").chmod(0o555)
        hostprep("stage", source, "--to", base / "to", "--name", "data")
        record = load_record("data", str(base / "to/data"))
        assert record is not None
        self.record: Record = record
        self.copy = base / "to/data"
        self.private = base / "to" / private_name("data")
        self.private.mkdir(mode=0o700)
        self.parent_fd, self.private_fd = (
            os.open(path, DIRECTORY_FLAGS) for path in (base / "to", self.private)
        )

    def compare(self) -> tuple[int, tuple[str, ...]]:
        descriptor = os.open(self.copy, DIRECTORY_FLAGS)
        try:
            return removing.compare(self.record, descriptor, Silent())
        finally:
            os.close(descriptor)

    def hide(self) -> None:
        removing.hide(self.parent_fd, self.private_fd, self.record)

    def remove_hidden(self) -> tuple[str, ...]:
        return removing.remove_hidden(self.parent_fd, self.private_fd, self.record, Silent())

    def refusal(self, record: Record | None) -> str | None:
        target = self.record.target
        found = removing.cut_short_refusal(self.parent_fd, "data", target, record, Silent())
        return None if found is None else found.message

    def on_record(self) -> set[str]:
        lines = manifest_path(folder("data", self.record.target)).read_bytes().splitlines()
        return {
            f"{directory}/{each.name}".lstrip("/")
            for directory, records in map(decode_line, lines)
            for each in records
        }


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    made = Staged(tmp_path)
    before = open_files()
    yield made
    assert open_files() == before, "descriptors were left open"
    os.close(made.parent_fd)
    os.close(made.private_fd)


def meddle(copy: Path) -> set[str]:
    """Change this and that, and return what is not as it was staged."""
    rewrite(copy / "class-1/images/001.bin", b"somebody changed it")
    (copy / "class-2/mine/deep").mkdir(parents=True)
    (copy / "class-2/images/002.bin").unlink()
    (copy / "class-2/images/002.bin").mkdir()
    return {"class-1/images/001.bin", "class-2/mine", "class-2/images/002.bin"}


def test_what_is_as_staged_is_told_from_what_is_not(staged: Staged) -> None:
    whole, foreign = staged.compare()
    # All that is on record but for the root itself.
    assert (whole, foreign) == (staged.record.entries - 1, ())
    theirs = meddle(staged.copy)
    ours, foreign = staged.compare()
    assert set(foreign) == theirs
    # Two files less, and the four directories around what stays.
    assert ours == whole - 2 - len({"class-1", "class-1/images", "class-2", "class-2/images"})


def test_what_is_not_as_staged_is_named_in_order(staged: Staged) -> None:
    theirs = [f"class-1/theirs-{number:02}" for number in range(20)]
    for path in theirs:
        (staged.copy / path).touch()
    assert staged.compare()[1] == tuple(theirs)


def test_what_vanishes_at_the_look_is_nobodys(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removing, "names_in", lambda fd: [*names_in(fd), "vanished"])
    assert staged.compare() == (staged.record.entries - 1, ())


def test_a_file_as_staged_takes_one_look_and_little_else(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million files, all else that is done for each of them takes most of the time."""
    stat, looked = os.stat, []

    def counting(name: str, **how: Any) -> os.stat_result:
        looked.append(name)
        return stat(name, **how)

    monkeypatch.setattr(os, "stat", counting)
    monkeypatch.setattr(Recorded, "present_as", lambda record, entry: record.kind != "f")
    assert staged.compare() == (staged.record.entries - 1, ())
    names = sorted(map(os.path.basename, staged.on_record() - {"."}))
    assert sorted(name for name in looked if name in names) == names


def test_all_of_it_goes_and_nothing_beside_it(staged: Staged) -> None:
    (staged.copy.parent / "other").mkdir()
    assert removing.remove_ours(staged.parent_fd, staged.record, Silent()) == ()
    assert sorted(os.listdir(staged.copy.parent)) == [staged.private.name, "other"]


class Told(Silent):
    """Keeps the last that was told of each phase: what is done, and of how much."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[int, int | None]] = {}

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        self._name, self._files = name, files

    def progress(self, files: int, size_bytes: int) -> None:
        self.last[self._name] = files, self._files


def test_how_far_it_is_is_told(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "_TELL_SECONDS", 0.0)
    told = Told()
    plan = plan_unstage(staged.record, fstab=False, observer=told)
    assert told.last == {"compare": (staged.record.files, staged.record.files)}
    unstage(plan, told)
    assert told.last["remove"] == (plan.files, plan.files)


def test_how_much_of_what_a_run_left_is_gone_is_told(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of it beforehand, and it may be millions of files."""
    monkeypatch.setattr(observer, "_TELL_SECONDS", 0.0)
    staged.private.rmdir()
    purpose = {"target": staged.record.target, "verify": "none"}

    def leave_some() -> None:
        prepare(staged.parent_fd, purpose).close()
        for number in range(5):
            (staged.private / f"tree/{number}").touch()

    leave_some()
    told = Told()
    told.phase("clear")
    another = {**purpose, "verify": "readback"}
    prepare(staged.parent_fd, another, on_removed=observer.Count(told).add).close()
    assert told.last["clear"] == (6, None)
    leave_some()
    told = Told()
    unstage(plan_unstage(staged.record, fstab=False), told)
    assert told.last["clear"] == (6, None)


def test_of_a_folder_little_is_held_until_it_goes(staged: Staged, tmp_path: Path) -> None:
    """They go last, so of hundreds of thousands something is held; not their records."""
    folders = 2000
    for number in range(folders):
        (tmp_path / f"source/{number % 40}/folder-{number:09}").mkdir(parents=True)
    hostprep("stage", tmp_path / "source", "--to", tmp_path / "to", "--name", "data")
    record = load_record("data", staged.record.target)
    assert record is not None
    tracemalloc.start()
    assert removing.remove_ours(staged.parent_fd, record, Silent()) == ()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most / folders < 200


def test_what_is_not_as_staged_stays_with_what_is_around_it(staged: Staged) -> None:
    theirs = meddle(staged.copy)
    assert set(removing.remove_ours(staged.parent_fd, staged.record, Silent())) == theirs
    left = {str(path.relative_to(staged.copy)) for path in staged.copy.rglob("*")}
    around = {"class-1", "class-1/images", "class-2", "class-2/images"}
    assert left == theirs | around | {"class-2/mine/deep"}
    # Only the directories are ours from now on: what is put where copies were is not.
    assert staged.on_record() == around
    (staged.copy / "class-1/images/000.bin").write_bytes(b"somebody's")
    assert "class-1/images/000.bin" in removing.remove_ours(
        staged.parent_fd, staged.record, Silent()
    )
    for path in theirs | {"class-1/images/000.bin"}:
        whole = staged.copy / path
        shutil.rmtree(whole) if whole.is_dir() else whole.unlink()
    assert removing.remove_ours(staged.parent_fd, staged.record, Silent()) == ()
    assert not staged.copy.exists()


def test_a_symlink_of_a_files_size_and_time_is_not_the_file(staged: Staged) -> None:
    files = [path for path in staged.copy.rglob("*.bin") if path.stat().st_size in range(1, 4000)]
    status = files[0].stat()
    files[0].unlink()
    files[0].symlink_to("x" * status.st_size)
    os.utime(files[0], ns=(0, status.st_mtime_ns), follow_symlinks=False)
    theirs = (str(files[0].relative_to(staged.copy)),)
    assert staged.compare()[1] == theirs
    assert removing.remove_ours(staged.parent_fd, staged.record, Silent()) == theirs
    assert files[0].is_symlink()


def test_what_is_gone_is_so_for_good_before_its_names_are(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies that a power cut brought back would be taken for somebody's, and stay."""
    meddle(staged.copy)
    whole, at_flush = staged.on_record(), []

    def flushing(descriptor: int) -> None:
        assert os.path.samestat(os.fstat(descriptor), staged.copy.parent.stat())
        at_flush.append(((staged.copy / "class-0").exists(), staged.on_record() == whole))

    monkeypatch.setattr(removing, "flush_file_system", flushing)
    removing.remove_ours(staged.parent_fd, staged.record, Silent())
    assert at_flush == [(False, True)] and staged.on_record() != whole


def test_it_is_hidden_before_it_is_removed(staged: Staged) -> None:
    assert removing.open_hidden(staged.parent_fd, "data") is None
    staged.copy.chmod(0o555)
    before = snapshot(staged.copy)
    staged.hide()
    assert not staged.copy.exists()
    hidden = removing.open_hidden(staged.parent_fd, "data")
    assert hidden is not None
    os.close(hidden)
    assert len(snapshot(staged.private / "removing")) == len(before)
    assert staged.refusal(staged.record) is None, "the next run goes on with it"
    assert "holds files that hostprep did not stage" in (staged.refusal(None) or "")
    assert staged.remove_hidden() == () and os.listdir(staged.private) == []
    assert staged.refusal(None) is None


def test_what_others_put_in_the_private_ones_place_is_not_followed(staged: Staged) -> None:
    """Right after it was looked at: who may write around it can do that at any moment."""
    (staged.private / "removing").mkdir()
    elsewhere = staged.private.rename(staged.private.with_name("elsewhere"))
    staged.private.symlink_to(elsewhere)
    assert removing.open_hidden(staged.parent_fd, "data") is None
    staged.private.unlink()
    staged.private.write_bytes(b"somebody's")
    assert removing.open_hidden(staged.parent_fd, "data") is None


def test_that_it_is_gone_is_so_for_good_before_it_is_forgotten(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut brought back would be nobody's."""
    fsync, flushed = os.fsync, []

    def noting(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), staged.copy.parent.stat()):
            there = os.listdir(staged.copy.parent)
            flushed.append((there, load_record("data", staged.record.target) is not None))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    unstage(plan_unstage(staged.record, fstab=False), Silent())
    assert flushed == [([], True)] and load_record("data", staged.record.target) is None
    assert not folder("data", staged.record.target).exists(), "its manifest is forgotten too"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_without_room_to_hide_it_it_goes_where_it_lies(
    code: int, staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    staged.private.rmdir()
    plan, before = plan_unstage(staged.record, fstab=False), snapshot(staged.copy)
    monkeypatch.setattr(unstaging, "open_or_make", fail)
    if code == errno.EIO:
        with pytest.raises(HostprepError, match="could not be removed: Input/output error"):
            unstage(plan, Silent())
        assert snapshot(staged.copy) == before
        return
    assert unstage(plan, Silent()).foreign == ()
    assert not staged.copy.exists() and load_record("data", staged.record.target) is None


def test_where_it_cannot_be_hidden_it_is_as_it_was(staged: Staged) -> None:
    staged.copy.chmod(0o555)
    (staged.private / "removing").mkdir()
    (staged.private / "removing/something").touch()
    with pytest.raises(OSError, match="not empty"):
        staged.hide()
    assert staged.copy.stat().st_mode & 0o777 == 0o555


def test_what_was_added_before_it_was_hidden_comes_back(staged: Staged) -> None:
    staged.hide()
    theirs = meddle(staged.private / "removing")
    said = staged.refusal(staged.record)
    assert said is not None and f"{staged.private}/removing: " in said
    assert set(staged.remove_hidden()) == theirs
    assert (staged.copy / "class-1/images/001.bin").read_bytes() == b"somebody changed it"
    assert os.listdir(staged.private) == []


def test_a_record_that_cannot_be_looked_at_by_then_is_not_said_to_have_changed_nothing(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records' disk or server may fail at any moment; the next run goes on."""
    plan = plan_unstage(staged.record, fstab=False)
    file, hidden, stat = folder("data", staged.record.target), staged.private / "removing", os.stat

    def failing(path: Any, *args: Any, **named: Any) -> os.stat_result:
        if path == file / "dataset.json" and os.path.lexists(hidden):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, *args, **named)

    with monkeypatch.context() as patch, pytest.raises(HostprepError) as no:
        patch.setattr(os, "stat", failing)
        unstage(plan, Silent())
    assert hidden.exists() and not staged.copy.exists()
    assert no.value.message.endswith("cannot be looked at: Input/output error.")
    assert unstage(plan_unstage(staged.record, fstab=False), Silent()).foreign == ()
    assert not hidden.exists()
