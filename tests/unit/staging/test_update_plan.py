"""What an update would do to a real copy, of which somebody has changed this and that."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import Refused
from hostprep.staging import observer
from hostprep.staging.model import Recorded
from hostprep.staging.observer import Silent
from hostprep.staging.plans import update
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.plans.update import plan_update
from hostprep.staging.record.lines import encode_line
from hostprep.staging.record.manifest import ManifestIndex, manifest_path
from hostprep.staging.record.records import folder
from hostprep.staging.source.scan import scan_tree
from hostprep.system.trees import DIRECTORY_FLAGS
from tests.kit.stagecraft import hostprep, make_source, rewrite


class Staged:
    """A data set that was staged, and what an update of it would do."""

    def __init__(self, base: Path) -> None:
        self.source = make_source(base / "source", directories=3, files=3)
        hostprep("stage", self.source, "--to", base / "to", "--name", "data")
        self.copy = base / "to/data"
        self.manifest = manifest_path(folder("data", str(self.copy)))

    def plan(
        self,
        private: Path | None = None,
        unreadable: str | None = None,
        told: Silent | None = None,
        suspect: frozenset[str] = frozenset(),
    ) -> CopyPlan:
        """Plan an update, over what an interrupted run left in ``private`` too.

        ``unreadable`` is a directory of the source that could not be read, though root can;
        ``suspect`` is what a full check has found.
        """
        paths = [self.source, self.copy, *([] if private is None else [private])]
        descriptors = [os.open(path, DIRECTORY_FLAGS) for path in paths]
        manifest, journal = ManifestIndex([self.manifest]), ManifestIndex([])
        try:
            scan = scan_tree(descriptors[0], processes=1)
            if unreadable is not None:
                below = [path for path in scan.directories if path.startswith(f"{unreadable}/")]
                for path in below:
                    del scan.directories[path]
                scan.listings = [
                    each for each in scan.listings if each.directory not in (unreadable, *below)
                ]
                scan.unreadable.add(unreadable)
            plan = plan_update(
                scan,
                manifest=manifest,
                journal=journal,
                published_fd=descriptors[1],
                private_fd=None if private is None else descriptors[2],
                suspect=suspect,
                observer=told,
            )
            if plan.opens is not None and not plan.nothing_to_do:
                raise plan.opens
            return plan
        finally:
            manifest.close()
            journal.close()
            for descriptor in descriptors:
                os.close(descriptor)

    def promise(self, directory: str, record: Recorded) -> None:
        """Note what an update that was killed was yet to put there."""
        with open(self.manifest, "ab") as file:
            file.write(b"\n" + encode_line(directory, [record]))


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    yield Staged(tmp_path)


def test_what_others_have_in_a_folder_of_theirs_is_not_gone_through(staged: Staged) -> None:
    """Deep enough, it held up root for as long as they liked."""
    (staged.copy / "class-1/theirs/below/it").mkdir(parents=True)
    assert staged.plan().foreign == ["class-1/theirs/"]


def test_how_far_the_comparison_is_is_told(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(Silent):
        def progress(self, files: int, size_bytes: int) -> None:
            told.append(files)

    told: list[int] = []
    monkeypatch.setattr(observer, "_TELL_SECONDS", 0.0)
    kept = staged.plan(told=Told()).kept.files
    assert told == sorted(told) and told[-1] == kept > 0


@pytest.mark.parametrize("cut_short", ["nothing", "copies", "an update", "found to differ"])
def test_after_a_run_that_was_cut_short_or_a_full_check_nothing_is_passed_by(
    cut_short: str, staged: Staged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was left or found is dealt with, also where copy and source look as they were."""
    passed: list[bool] = []

    def find_standing(*args: Any, **kwargs: Any) -> dict[str, Any]:
        passed.append(True)
        return {}

    monkeypatch.setattr(update, "find_standing", find_standing)
    private = tmp_path / "tree" if cut_short == "copies" else None
    if private is not None:
        private.mkdir()
    if cut_short == "an update":
        staged.promise("", Recorded("new", "f", 1, 0, 0o644, 0, 0, None, ""))
    suspect = {"class-1/images/001.bin"} if cut_short == "found to differ" else ()
    assert staged.plan(private, suspect=frozenset(suspect)).copied.files == len(suspect)
    assert passed == ([True] if cut_short == "nothing" else [])


def test_nothing_is_to_be_done_where_nothing_has_changed(staged: Staged) -> None:
    plan = staged.plan()
    assert plan.nothing_to_do and not plan.foreign and not plan.skipped and not plan.discard


@pytest.mark.parametrize("what", ["delete", "delete_directories", "make_directories"])
def test_whatever_is_to_be_done_is_not_nothing(what: str) -> None:
    assert not CopyPlan(**{what: ["x"]}).nothing_to_do


def test_what_somebody_made_of_the_mode_of_a_directory_is_undone(staged: Staged) -> None:
    (staged.copy / "class-1").chmod(0o700)
    assert staged.plan().make_directories == ["class-1"]


def test_of_a_directory_that_is_gone_only_what_is_as_staged_goes(staged: Staged) -> None:
    images = staged.copy / "class-1/images"
    rewrite(images / "001.bin", b"somebody changed it")
    (images / "notes").write_bytes(b"somebody's")
    (images / "theirs").mkdir()
    shutil.rmtree(staged.source / "class-1")
    plan = staged.plan()
    assert set(plan.delete_directories) == {"class-1", "class-1/images"}
    assert set(plan.delete) == {"class-1/images/000.bin", "class-1/images/002.bin"}
    left = {"class-1/images/001.bin", "class-1/images/notes", "class-1/images/theirs/"}
    assert set(plan.foreign) == left


def test_what_somebody_put_in_the_place_of_a_file_is_theirs(staged: Staged) -> None:
    copy, source = (root / "class-1/images/001.bin" for root in (staged.copy, staged.source))
    copy.unlink()
    copy.mkdir()
    source.unlink()
    plan = staged.plan()
    assert plan.foreign == ["class-1/images/001.bin/"] and not plan.delete_directories


@pytest.mark.parametrize("inside", [(), ("theirs",)])
def test_nor_does_the_file_take_it_back(inside: tuple[str, ...], staged: Staged) -> None:
    copy = staged.copy / "class-1/images/001.bin"
    copy.unlink()
    copy.mkdir()
    for name in inside:
        (copy / name).write_bytes(b"somebody's")
    with pytest.raises(Refused, match=r"class-1/images/001\.bin.* is not as hostprep staged it"):
        staged.plan()


def test_a_directory_gives_place_to_a_file_also_after_a_run_that_was_killed(
    staged: Staged,
) -> None:
    gone, name = staged.source / "class-1", "class-1"
    shutil.rmtree(gone)
    gone.write_bytes(b"a file by now")
    expected = {"class-1", "class-1/images"}
    for _ in ("the first run", "after one that was killed", "and another"):
        plan = staged.plan()
        assert set(plan.delete_directories) == expected and plan.foreign == []
        assert [path for _, (entry,) in plan.to_copy() for path in [entry.name]] == [name]
        staged.promise("", Recorded(name, "f", 13, gone.stat().st_mtime_ns, 0o644, 0, 0, "00"))


def test_a_file_gives_place_to_a_directory(staged: Staged) -> None:
    file = staged.source / "class-1/images/001.bin"
    file.unlink()
    file.mkdir()
    (file / "inside").write_bytes(b"new")
    plan = staged.plan()
    assert plan.delete == ["class-1/images/001.bin"] and plan.foreign == []
    assert "class-1/images/001.bin" in plan.make_directories


def test_of_an_interrupted_run_what_the_source_has_not_is_discarded(
    staged: Staged, tmp_path: Path
) -> None:
    private = tmp_path / "tree"
    for directory in ("class-1/images", "gone/deep"):
        (private / directory).mkdir(parents=True)
    (private / "gone/deep/file").write_bytes(b"copied before it went")
    (private / "class-2").write_bytes(b"a file, before it was a directory")
    (private / "class-1/images/torn").write_bytes(b"on no record")
    assert set(staged.plan(private).discard) == {"gone", "class-2", "class-1/images/torn"}


def test_of_what_cannot_be_read_now_nothing_is_taken_up(staged: Staged, tmp_path: Path) -> None:
    """Whether it is still as it was copied nobody can tell."""
    private = tmp_path / "tree"
    for path in ("class-1/images/001.bin", "class-1/gone/001.bin"):
        (private / path).parent.mkdir(parents=True)
        (private / path).write_bytes(b"copied before")
    found = staged.plan(private, unreadable="class-1").discard
    assert set(found) == {"class-1/images", "class-1/gone"}


def test_below_what_cannot_be_read_nothing_is_gone_or_forgotten(staged: Staged) -> None:
    images = staged.copy / "class-1/images"
    rewrite(images / "001.bin", b"somebody changed it")
    (images / "002.bin").unlink()
    (images / "notes").write_bytes(b"somebody's")
    whole = staged.plan().kept.files
    plan = staged.plan(unreadable="class-1")
    assert not plan.delete and not plan.delete_directories and not plan.foreign
    assert plan.kept.files == whole  # what stands
    kept = {path for path in plan.kept_paths() if path.startswith("class-1/images/")}
    assert kept == {"class-1/images/000.bin", "class-1/images/001.bin"}  # known, though changed
    assert plan.copied.files == 0


def test_what_somebody_keeps_closed_is_not_opened_to_others(staged: Staged) -> None:
    """A directory of theirs, moved to the place of one of the data set, would get its mode."""
    copy, source = staged.copy / "class-1", staged.source / "class-1"
    theirs, closed = copy / "theirs", r"class-1 on the target is closed .* \(class-1/theirs"
    copy.chmod(0o700)
    assert not staged.plan().foreign, "nothing in it is theirs"
    theirs.write_bytes(b"somebody's")
    with pytest.raises(Refused, match=closed):
        staged.plan()
    copy.chmod(0o755)
    assert staged.plan().foreign == ["class-1/theirs"], "it is as it was staged"
    copy.chmod(0o700)
    source.chmod(0o700)
    assert staged.plan().foreign == ["class-1/theirs"], "it stays closed"
    source.chmod(0o711)
    with pytest.raises(Refused, match=closed):
        staged.plan()
    source.chmod(0o755)
    (source / "theirs").write_bytes(b"new in the source, whose place is taken")
    with pytest.raises(Refused, match=closed):
        staged.plan()
    (source / "theirs").unlink()
    theirs.unlink()
    theirs.mkdir()
    with pytest.raises(Refused, match=closed):
        staged.plan()
    theirs.rmdir()
    source.chmod(0o700)
    hostprep("stage", staged.source, "--to", staged.copy.parent, "--name", "data")
    theirs.mkdir()
    source.chmod(0o755)
    assert staged.plan().foreign == ["class-1/theirs/"], "they put it where it was closed so"
    theirs.rmdir()
    staged.copy.chmod(0o700)
    (staged.copy / "theirs").mkdir()
    with pytest.raises(Refused, match="the data set on the target is closed to others"):
        staged.plan()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_nor_to_the_owner_that_the_source_has_now(staged: Staged) -> None:
    copy, source = staged.copy / "class-1", staged.source / "class-1"
    (copy / "theirs").write_bytes(b"somebody's")
    for root in (copy, source):
        root.chmod(0o700)
    os.chown(source, 54321, 54321)
    with pytest.raises(Refused, match="class-1 on the target is closed"):
        staged.plan()
    os.chown(copy, 54321, 54321)
    assert staged.plan().foreign == ["class-1/theirs"], "it is theirs already"
    os.chown(source, 0, 0)
    assert staged.plan().foreign == ["class-1/theirs"], "root may look into it anyway"
