"""Making prepared files visible: what is replaced, what somebody else's is left, what goes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.staging import observer
from hostprep.staging.model import Recorded
from hostprep.staging.observer import Silent
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.publishing import publish, published
from hostprep.staging.publishing.publish import (
    check_places,
    discard,
    drop_unrecorded,
    publish_new,
    publish_update,
)
from hostprep.staging.publishing.published import has_names, open_published
from hostprep.staging.record.lines import encode_line
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.target.owned import open_own
from hostprep.staging.target.private import PrivateDir, prepare
from hostprep.staging.target.spelling import Spelling
from hostprep.staging.tree import entry_of
from hostprep.system.trees import DIRECTORY_FLAGS, DirCache, names_in

KEEPS = Spelling(sure=True)


def recorded(path: Path) -> Recorded:
    """Return the record of what lies there, as if it had been staged."""
    status = path.lstat()
    kind, size = ("d", 0) if path.is_dir() else ("f", status.st_size)
    return Recorded(path.name, kind, size, status.st_mtime_ns, 0o644, 0, 0, "00")


def fill(root: Path, contents: Mapping[str, str]) -> None:
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


class Target:
    """What is published, what is prepared beside it, and what is on record of the former."""

    def __init__(self, base: Path) -> None:
        self.base, self.data = base, base / "data"
        self.parent_fd = os.open(base, DIRECTORY_FLAGS)
        self.private: PrivateDir = prepare(self.parent_fd, {"target": str(self.data)})
        self.tree = base / self.private.name / "tree"

    def manifest(self, *before: str, promised: Mapping[str, Recorded] | None = None) -> Path:
        """Put on record what lies at ``before``, and what a run that was killed had promised."""
        path = self.base / "manifest.jsonl"
        lines = [
            encode_line(os.path.dirname(name), [recorded(self.data / name)]) for name in before
        ]
        for name, record in (promised or {}).items():
            lines += [b"\n", encode_line(os.path.dirname(name), [record])]
        path.write_bytes(b"".join(lines))
        return path

    def update(
        self,
        manifest: Path,
        plan: CopyPlan,
        *,
        check: bool = False,
        spelling: Spelling = KEEPS,
        told: Silent | None = None,
        changing: tuple[str, ...] = (),
        inodes: dict[str, int] | None = None,
    ) -> list[str]:
        """Publish what is prepared, or only check the places for it."""
        index, published_fd = ManifestIndex([manifest]), os.open(self.data, DIRECTORY_FLAGS)
        try:
            if check:
                check_places(plan, self.private, published_fd, index, spelling, told or Silent())
                return []
            return publish_update(
                plan, self.private, published_fd, index, told or Silent(), changing, inodes
            )
        finally:
            index.close()
            os.close(published_fd)

    def contents(self) -> dict[str, str]:
        files = (path for path in self.data.rglob("*") if path.is_file())
        return {str(path.relative_to(self.data)): path.read_text() for path in files}


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    made = Target(tmp_path)
    yield made
    made.private.close()
    os.close(made.parent_fd)


@pytest.mark.parametrize("mode", [0o755, 0o555])
def test_a_new_data_set_comes_with_the_mode_and_the_time_of_its_source(
    mode: int, target: Target
) -> None:
    fill(target.tree, {"a": "new"})
    target.tree.chmod(mode)
    root = entry_of("", os.stat("/"))._replace(mtime_ns=123_456_789_000)
    publish_new(target.private, target.parent_fd, "data", root)
    status = target.data.stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (mode, 123_456_789_000)
    assert target.contents() == {"a": "new"} and not target.tree.exists()


def test_how_far_an_update_is_is_told(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(Silent):
        def progress(self, files: int, size_bytes: int) -> None:
            told.append(files)

    told: list[int] = []
    monkeypatch.setattr(observer, "_TELL_SECONDS", 0.0)
    fill(target.data, {"a": "1", "gone": "1"})
    fill(target.tree, {"a": "2", "sub/b": "2"})
    manifest = target.manifest("a", "gone")
    target.update(manifest, CopyPlan(), check=True, told=Told())
    assert told == [1, 2]
    target.update(manifest, CopyPlan(delete=["gone"]), told=Told())
    assert told[2:] == [1, 2, 3]


def test_even_an_empty_directory_of_that_name_is_left(target: Target) -> None:
    fill(target.tree, {"a": "new"})
    target.data.mkdir()
    with pytest.raises(HostprepError, match="data appeared on the target while it was staged"):
        publish_new(target.private, target.parent_fd, "data", entry_of("", os.stat("/")))
    assert os.listdir(target.data) == [] and (target.tree / "a").exists()


def test_files_are_replaced_added_and_deleted(target: Target) -> None:
    fill(target.data, {"old": "1", "sub/old": "1", "gone": "1", "away/deep/x": "1"})
    fill(target.data, {"stays": "1", "journalled": "an interrupted run's, in no manifest yet"})
    manifest = target.manifest("old", "sub/old", "gone", "away/deep/x")
    fill(target.data, {"sub/old": "what somebody made of a copy"})  # it is to be replaced
    fill(target.tree, {"old": "2", "sub/old": "2", "sub/new": "2", "fresh/new": "2"})
    plan = CopyPlan(
        delete=["gone", "journalled", "nothing", "never/stays", "away/deep/x"],
        delete_directories=["away", "away/deep", "nor here"],
    )
    target.update(manifest, plan, check=True)
    assert target.update(manifest, plan) == []
    new = {"old": "2", "sub/old": "2", "sub/new": "2", "fresh/new": "2", "stays": "1"}
    assert target.contents() == new and not (target.data / "away").exists()


def test_what_changed_since_the_plan_stays(target: Target) -> None:
    fill(target.data, {"gone": "1", "also gone": "1", "away/x": "1"})
    manifest = target.manifest("gone", "also gone", "away/x")
    fill(target.data, {"gone": "somebody's", "away/new": "somebody's"})
    plan = CopyPlan(delete=["gone", "also gone", "away/x"], delete_directories=["away"])
    assert target.update(manifest, plan) == ["gone", "away"]
    assert target.contents() == {"gone": "somebody's", "away/new": "somebody's"}


def test_what_changes_while_others_of_its_directory_go_stays(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(target.data, {"a": "1", "b": "1"})
    manifest = target.manifest("a", "b")
    unlink = os.unlink

    def meanwhile(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        fill(target.data, {"b": "somebody's"})

    monkeypatch.setattr(os, "unlink", meanwhile)
    assert target.update(manifest, CopyPlan(delete=["a", "b"])) == ["b"]
    assert target.contents() == {"b": "somebody's"}


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EBUSY])
def test_a_directory_that_a_disk_keeps_is_not_taken_for_somebody_elses(
    number: int, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others made stay goes from the record; a later run would never remove it."""
    fill(target.data, {"away/deep/x": "1"})
    manifest = target.manifest("away/deep/x")
    plan = CopyPlan(delete=["away/deep/x"], delete_directories=["away", "away/deep"])

    def fail(name: str, *, dir_fd: int) -> None:
        raise OSError(number, os.strerror(number), name)

    with monkeypatch.context() as patched, pytest.raises(OSError) as caught:
        patched.setattr(os, "rmdir", fail)
        target.update(manifest, plan)
    assert caught.value.errno == number
    assert target.update(manifest, plan) == [] and not (target.data / "away").exists()


@pytest.mark.parametrize("instead", ["file", "link", "link above"])
def test_what_somebody_put_in_a_gone_directorys_place_stays(instead: str, target: Target) -> None:
    fill(target.data, {"away/deep/x": "1"})
    manifest = target.manifest("away/deep/x")
    plan = CopyPlan(delete_directories=["away/deep"])
    place = target.data / ("away" if instead == "link above" else "away/deep")
    place.rename(target.base / "theirs")
    place.write_text("") if instead == "file" else place.symlink_to(target.base / "theirs")
    assert target.update(manifest, plan) == ["away/deep"]
    assert os.path.lexists(place) and (target.base / "theirs").exists()


@pytest.mark.parametrize("name", ["new", "sub/new"])
def test_a_place_that_somebody_took_is_left(name: str, target: Target) -> None:
    fill(target.data, {"sub/old": "1"})
    manifest = target.manifest("sub/old")
    fill(target.tree, {name: "2"})
    target.update(manifest, CopyPlan(), check=True)
    fill(target.data, {name: "somebody's"})
    for check in (True, False):
        with pytest.raises(HostprepError, match=f"{name} appeared on the target"):
            target.update(manifest, CopyPlan(), check=check)
    assert target.contents() == {"sub/old": "1", name: "somebody's"}
    assert (target.tree / name).read_text() == "2"


def test_new_directories_are_ours_from_then_on(target: Target) -> None:
    fill(target.data, {"old/a": "a"})
    fill(target.tree, {"new/deep/b": "new"})
    old = (target.data / "old").stat().st_ino
    inodes = {"": target.data.stat().st_ino, "old": old}
    changing = ("old", "new", "new/deep", "empty")
    plan = CopyPlan(inodes=dict(inodes))
    assert target.update(target.manifest("old/a"), plan, changing=changing, inodes=inodes) == []
    there = {path: (target.data / path).stat().st_ino for path in changing}
    assert inodes == {"": target.data.stat().st_ino, **there} and there["old"] == old
    assert target.contents() == {"old/a": "a", "new/deep/b": "new"}


def test_a_directory_that_came_where_one_is_to_be_made_is_left_if_it_holds_anything(
    target: Target,
) -> None:
    fill(target.tree, {"new/b": "new"})
    fill(target.data, {"new/theirs": "theirs"})
    with pytest.raises(HostprepError, match="new appeared on the target"):
        target.update(target.manifest(), CopyPlan(), changing=("new",), inodes={})
    assert target.contents() == {"new/theirs": "theirs"} and (target.tree / "new/b").exists()
    (target.data / "new/theirs").unlink()
    assert target.update(target.manifest(), CopyPlan(), changing=("new",)) == []
    assert target.contents() == {"new/b": "new"}


def test_nothing_is_put_into_a_directory_that_was_exchanged(target: Target) -> None:
    fill(target.tree, {"a/b": "new"})
    fill(target.data, {"a/b": "old"})
    ours, manifest = (target.data / "a").stat().st_ino, target.manifest("a/b")
    (target.data / "a").rename(target.base / "moved")
    fill(target.data, {"a/b": "theirs"})
    with pytest.raises(HostprepError, match="a on the target was meanwhile replaced") as caught:
        target.update(manifest, CopyPlan(), inodes={"a": ours})
    assert "move it away" in (caught.value.hint or "")
    assert target.contents() == {"a/b": "theirs"} and (target.tree / "a/b").exists()


def test_a_directory_that_is_yet_to_be_made_has_room_for_all(target: Target) -> None:
    fill(target.data, {"old": "1", "other": "somebody's"})
    manifest = target.manifest("old")
    fill(target.tree, {"old": "2", "fresh/other": "2"})
    target.update(manifest, CopyPlan(), check=True)


def test_what_took_a_place_and_is_gone_again_is_told_of(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(old: str, new: str, **_: int) -> None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), old, None, new)

    fill(target.data, {"old": "1"})
    fill(target.tree, {"new": "2"})
    monkeypatch.setattr(publish, "rename_new", taken)
    with pytest.raises(HostprepError, match="new appeared on the target"):
        target.update(target.manifest("old"), CopyPlan())


# The listing tells in which spelling a name is kept; here it is made to say another one than was
# given, as where names fold.


def test_where_names_fold_what_stays_keeps_its_place(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(target.data, {"sub/old": "1", "file": "somebody's"})
    manifest = target.manifest("sub/old")
    monkeypatch.setattr(publish, "names_in", lambda fd: [name.upper() for name in names_in(fd)])

    def check(**going: list[str]) -> None:
        target.update(manifest, CopyPlan(**going), check=True, spelling=Spelling(case=True))

    fill(target.tree, {"sub/new": "2"})
    told = "sub of the source and SUB on the target are the same name"
    with pytest.raises(HostprepError, match=told):
        check()
    check(delete_directories=["SUB"])
    with pytest.raises(HostprepError, match=told):
        check(delete_directories=["SUB"], foreign=["SUB/theirs"])
    with pytest.raises(HostprepError, match=told):
        check(delete_directories=["SUB"], foreign=["SUB/deeper/theirs/"])
    check(delete_directories=["SUB"], foreign=["OTHER/theirs"])
    (target.tree / "sub/new").unlink()
    fill(target.tree, {"file": "2"})
    with pytest.raises(
        HostprepError, match="file of the source and FILE on the target are the same name"
    ):
        check(delete_directories=["SUB"])
    check(delete_directories=["SUB"], delete=["FILE"])


def test_where_names_fold_few_open_directories_do_for_a_deep_one(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for another spelling opens all above it, and closed the one that was asked."""
    monkeypatch.setattr(publish, "DirCache", partial(DirCache, limit=1))
    monkeypatch.setattr(
        publish, "names_in", lambda fd: [name.replace("file", "FILE") for name in names_in(fd)]
    )
    fill(target.data, {"a/b/c/file-1": "1", "a/b/c/file-2": "1", "a/b/c/file-3": "1"})
    fill(target.tree, {"a/b/c/file-1": "2", "a/b/c/file-2": "2", "a/b/c/file-3": "2"})
    plan = CopyPlan(delete=[f"a/b/c/FILE-{number}" for number in (1, 2, 3)])
    target.update(target.manifest(), plan, check=True, spelling=Spelling(case=True))


def test_where_names_fold_their_own_spelling_is_no_other(target: Target) -> None:
    fill(target.data, {"sub/old": "1"})
    fill(target.tree, {"sub/old": "2", "sub/new": "2", "fresh/new": "2"})
    manifest = target.manifest("sub/old")
    target.update(manifest, CopyPlan(), check=True, spelling=Spelling(case=True))
    fill(target.data, {"sub/new": "somebody's"})
    with pytest.raises(HostprepError, match="sub/new appeared on the target"):
        target.update(manifest, CopyPlan(), check=True, spelling=Spelling(case=True))


def test_what_a_killed_run_had_put_there_is_replaced(target: Target) -> None:
    fill(target.data, {"new": "1"})
    manifest = target.manifest(promised={"new": recorded(target.data / "new")})
    fill(target.tree, {"new": "22"})
    target.update(manifest, CopyPlan(), check=True)
    assert target.update(manifest, CopyPlan()) == []
    assert target.contents() == {"new": "22"}


@pytest.mark.parametrize("kind", ["other file", "directory"])
def test_what_it_had_only_promised_may_be_somebodys(kind: str, target: Target) -> None:
    fill(target.data, {"old": "1"})
    fill(target.tree, {"new": "22"})
    if kind == "directory":
        (target.data / "new").mkdir()
        promise = recorded(target.data / "new")._replace(kind="d")
    else:
        fill(target.data, {"new": "somebody's"})
        promise = recorded(target.tree / "new")
    manifest = target.manifest("old", promised={"new": promise})
    with pytest.raises(HostprepError, match="new appeared on the target"):
        target.update(manifest, CopyPlan())
    assert (target.data / "new").exists() and (target.tree / "new").exists()
    if kind == "other file":
        with pytest.raises(HostprepError, match="new appeared on the target"):
            target.update(manifest, CopyPlan(), check=True)


def test_a_file_takes_the_place_of_a_directory_that_goes(target: Target) -> None:
    fill(target.data, {"x/file": "1"})
    (target.base / "manifest.jsonl").write_bytes(
        encode_line("", [recorded(target.data / "x")])
        + encode_line("x", [recorded(target.data / "x/file")])
    )
    fill(target.tree, {"x": "a file"})
    plan = CopyPlan(delete=["x/file"], delete_directories=["x"])
    assert target.update(target.base / "manifest.jsonl", plan) == []
    assert target.contents() == {"x": "a file"}


def test_what_nobody_wants_is_discarded(target: Target) -> None:
    fill(target.tree, {"a": "", "sub/b": "", "gone/deep/c": ""})
    discard(CopyPlan(discard=["a", "gone", "sub/none"]), target.private)
    assert {str(path.relative_to(target.tree)) for path in target.tree.rglob("*")} == {
        "sub",
        "sub/b",
    }


def test_what_is_in_no_journal_is_dropped_but_for_links(target: Target) -> None:
    fill(target.tree, {"whole": "1", "torn": "", "sub/link": "1", "sub/torn": ""})
    journal = target.base / target.private.name / "journal.0"
    journal.write_bytes(encode_line("", [recorded(target.tree / "whole")]))
    drop_unrecorded(target.private, [encode_line("sub", [recorded(target.tree / "sub/link")])])
    left = {str(path.relative_to(target.tree)) for path in target.tree.rglob("*")}
    assert left == {"whole", "sub", "sub/link"}


def test_where_directories_have_no_size_their_names_are_listed(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "_NAME_SIZE", 10**9)  # as in ramfs, whose directories have none
    fill(target.tree, {"a": "", "sub/b": ""})
    for least in (3, 4):
        assert has_names(target.private.tree_fd, ["", "sub", "gone"], least) is (least == 3)


def test_only_a_directory_is_a_published_data_set(target: Target) -> None:
    assert open_published(target.parent_fd, "data") is None
    target.data.mkdir()
    descriptor = open_published(target.parent_fd, "data")
    assert descriptor is not None
    os.close(descriptor)
    (target.base / "link").symlink_to("data")
    with pytest.raises(Refused, match="link on the target is not a directory that can be opened"):
        open_published(target.parent_fd, "link")


def test_of_what_a_failing_disk_does_not_tell_nothing_is_said(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a disk that was unplugged: that something is in the way would have it moved away."""

    def failing(*args: object, **more: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "open", failing)
    for opened in (open_published, open_own):
        with pytest.raises(OSError, match="Input/output error"):
            opened(target.parent_fd, "data")
