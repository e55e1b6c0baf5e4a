"""Hard links and directories of a copy: what is linked to what, and what stands in the manifest."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hostprep.staging.files.holding import FOLDER_NAME
from hostprep.staging.model import Entry, Recorded
from hostprep.staging.plans.copy_plan import CopyPlan, HardLink
from hostprep.staging.publishing.structure import (
    close_directories,
    directory_digest,
    directory_lines,
    leave_out_unholdable,
    make_links,
)
from hostprep.staging.reasons import GONE, TARGET_CANNOT, Skipped
from hostprep.staging.record import digest
from hostprep.staging.record.lines import decode_line
from hostprep.staging.target.private import PrivateDir, prepare
from hostprep.staging.tasks import Copied
from hostprep.staging.tree import entry_of
from hostprep.system.trees import DIRECTORY_FLAGS


class Trees:
    """A source with a file of two names, what is prepared of it, and what is published."""

    def __init__(self, base: Path) -> None:
        self.source, self.published = base / "source", base / "data"
        for root in (self.source, self.published):
            (root / "a").mkdir(parents=True)
        (self.source / "a/one").write_bytes(b"content")
        os.link(self.source / "a/one", self.source / "two")
        self.parent_fd = os.open(base, DIRECTORY_FLAGS)
        self.published_fd = os.open(self.published, DIRECTORY_FLAGS)
        self.private: PrivateDir = prepare(self.parent_fd, {"target": str(self.published)})
        self.tree = base / self.private.name / "tree"
        (self.tree / "a").mkdir()
        self.entry: Entry = entry_of("two", os.lstat(self.source / "two"))

    def link(
        self, copied: Copied, *, kept: Recorded | None = None, published: bool = True
    ) -> list[tuple[str, list[Recorded]]]:
        plan = CopyPlan(links=[HardLink("", self.entry, "a/one", kept)])
        found = make_links(plan, copied, self.private, self.published_fd if published else None)
        return [decode_line(line) for line in found]

    def copied(self, content: str | None = "00") -> Copied:
        """Return what came of copying the first of the two names."""
        (self.tree / "a/one").write_bytes(b"content")
        first = self.entry._replace(name="one")
        return Copied(linked={"a/one": (first, content)})


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[Trees]:
    made = Trees(tmp_path)
    yield made
    made.private.close()
    os.close(made.published_fd)
    os.close(made.parent_fd)


@pytest.mark.parametrize("content", ["00", None])
def test_a_link_to_what_was_copied_now_counts_as_a_file_of_its_content(
    content: str | None, trees: Trees
) -> None:
    (trees.tree / "two").write_bytes(b"what a killed run left")
    (trees.published / "a/one").write_bytes(b"older")
    copied = trees.copied(content)
    ((directory, (record,)),) = trees.link(copied)
    assert os.path.samefile(trees.tree / "two", trees.tree / "a/one")
    assert (directory, record.name, record.group) == ("", "two", "a/one")
    assert (record.content, record.size) == (content, 7)
    assert (copied.files, copied.linked_bytes, copied.problems) == (1, 7, [])
    term = 0 if content is None else digest.entry_term("f", "two", content)
    assert copied.digest_sum == term


def test_a_link_to_what_is_in_place_is_made_there(trees: Trees) -> None:
    (trees.published / "a/one").write_bytes(b"content")
    kept = Recorded("one", "f", 7, 0, 0o644, 0, 0, "11", "a/one")
    copied = Copied()
    ((_, (record,)),) = trees.link(copied, kept=kept)
    assert os.path.samefile(trees.tree / "two", trees.published / "a/one")
    assert record.content == "11" and copied.problems == []
    # What an interrupted run had done of it lies beside what is prepared, and comes first.
    (trees.tree / "a/one").write_bytes(b"content")
    trees.link(copied, kept=kept)
    assert os.path.samefile(trees.tree / "two", trees.tree / "a/one")


def test_a_link_is_never_made_to_what_a_symlink_leads_to(trees: Trees, tmp_path: Path) -> None:
    """Whose the published directory is could put one there, and have root link its own files."""
    (tmp_path / "secret").write_bytes(b"content")
    (trees.published / "a/one").symlink_to(tmp_path / "secret")
    kept = Recorded("one", "f", 7, 0, 0o644, 0, 0, "11", "a/one")
    for left in (False, True):
        trees.link(Copied(), kept=kept)
        assert os.lstat(trees.tree / "two").st_nlink == 2, left
        assert os.stat(tmp_path / "secret").st_nlink == 1, left
        os.unlink(trees.tree / "two")
        (trees.tree / "two").write_bytes(b"what a killed run left")


@pytest.mark.parametrize("published", [True, False])
def test_what_was_not_copied_is_linked_to_by_nobody(published: bool, trees: Trees) -> None:
    (trees.published / "a/one").write_bytes(b"of an earlier run, and other content")
    copied = Copied()
    assert trees.link(copied, published=published) == []
    (problem,) = copied.problems
    assert problem.path == "two" and problem.failed
    assert problem.reason.startswith("the hard link to a/one failed: it was not copied")
    assert (copied.files, copied.digest_sum) == (0, 0)
    assert not (trees.tree / "two").exists()


def test_what_could_not_be_copied_cannot_be_linked_to_for_the_same_reason(trees: Trees) -> None:
    copied = Copied(problems=[Skipped("a/one", GONE, failed=True)])
    trees.link(copied)
    first, link = copied.problems
    assert link == Skipped("two", f"{GONE} (its hard link a/one)", failed=True)
    assert link.cure == first.cure is not None


def test_what_an_earlier_run_put_there_is_no_stand_in_for_a_copy(trees: Trees) -> None:
    (trees.published / "a/one").write_bytes(b"older")
    copied = trees.copied()
    (trees.tree / "a/one").unlink()
    assert trees.link(copied) == [] and not (trees.tree / "two").exists()
    assert [problem.path for problem in copied.problems] == ["two"]


def test_where_the_first_is_gone_the_link_fails(trees: Trees) -> None:
    kept = Recorded("one", "f", 7, 0, 0o644, 0, 0, "11", "a/one")
    copied = Copied()
    assert trees.link(copied, kept=kept) == [] and trees.link(trees.copied(), published=False)
    (problem,) = copied.problems
    assert problem.reason == "the hard link to a/one failed: No such file or directory"


def test_a_target_that_is_full_is_no_fault_of_a_link(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = trees.copied()
    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space left"):
        trees.link(copied)
    assert copied.problems == []


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def directory(path: str, mode: int = 0o755) -> Entry:
    return Entry(path.rpartition("/")[2], 0o040000 | mode, 4096, 5, 6, 7, 8, 2, 9, 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
@pytest.mark.parametrize("asks", [None, lambda _: None])
def test_what_a_directory_gives_too_much_is_taken_and_nothing_given(
    asks: Callable[[float], None] | None, trees: Trees
) -> None:
    """Also where the source, which has the ACLs, is read in a child; and who has it is root."""
    places = {name: trees.published / name for name in ("a", "theirs", "groups", "same", "other")}
    for place in places.values():
        place.mkdir(exist_ok=True)
        place.chmod(0o777)
    os.chown(places["theirs"], 1234, 0)
    os.chown(places["groups"], 0, 2345)
    inodes = {name: place.stat().st_ino for name, place in places.items()}
    places["other"].rename(trees.published / "moved")
    places["other"].mkdir(mode=0o777)
    places["other"].chmod(0o777)
    wanted = {name: directory(name, 0o755)._replace(uid=0, gid=0) for name in places}
    wanted["same"] = wanted["same"]._replace(mode=0o040777)
    wanted["none"] = wanted["a"]
    source_fd = os.open(trees.source, DIRECTORY_FLAGS)
    try:
        close_directories(wanted, wanted, source_fd, trees.published_fd, inodes, on_wait=asks)
        there = {name: os.stat(place) for name, place in places.items()}
        assert {name: (st.st_mode & 0o777, st.st_uid, st.st_gid) for name, st in there.items()} == {
            "a": (0o755, 0, 0),
            "theirs": (0o755, 0, 0),
            "groups": (0o705, 0, 0),
            "same": (0o777, 0, 0),
            "other": (0o777, 0, 0),  # it is not the one that was ours
        }
        close_directories(["other"], wanted, source_fd, trees.published_fd, None, on_wait=asks)
        assert places["other"].stat().st_mode & 0o777 == 0o755, "where numbers mean nothing"
    finally:
        os.close(source_fd)


def test_directories_stand_in_the_lines_of_their_parents() -> None:
    paths = ("", "a", "a/b", "c")
    lines = directory_lines({path: directory(path, 0o1750) for path in paths}, {"a/b": 0o700})
    found = dict(map(decode_line, lines))
    assert {parent: [each.name for each in records] for parent, records in found.items()} == {
        "": [".", "a", "c"],
        "a": ["b"],
    }
    assert found["a"][0] == Recorded("b", "d", 0, 5, 0o1750, 6, 7, "700")
    assert found[""][1] == Recorded("a", "d", 0, 5, 0o1750, 6, 7, "")
    assert directory_digest({"a": directory("a"), "c": directory("c")}) == digest.add(
        digest.entry_term("d", "a", ""), digest.entry_term("d", "c", "")
    )


def test_what_the_target_cannot_hold_takes_all_below_with_it(trees: Trees) -> None:
    """A name of 256 bytes stands for those that FAT and its like do not take."""
    long = "ü" + "x" * 254
    directories = {path: directory(path) for path in ("", "a", long, f"{long}/below", "plain")}
    problems = [
        Skipped(f"{long}/below/file", f"{TARGET_CANNOT}this name", failed=True),
        Skipped("plain/file", "Permission denied", failed=True),
    ]
    found = leave_out_unholdable(directories, problems, trees.private.tree_fd, trees.published_fd)
    assert [each.path for each in found] == [long, f"{long}/below"]
    assert all(each.unholdable for each in found)
    assert found[1].reason == f"{TARGET_CANNOT}{FOLDER_NAME}"
    assert list(directories) == ["", "a", "plain"]
    assert not (trees.tree / "plain").exists(), "a plain name is not tried"


@pytest.mark.parametrize(("published", "tried"), [(True, ["odd?", "plain"]), (False, ["a"])])
def test_names_are_tried_that_are_odd_or_have_such_a_problem_below_them(
    published: bool, tried: list[str], trees: Trees
) -> None:
    """But for those that are on the target already."""
    (trees.tree / "a").rmdir()
    directories = {path: directory(path) for path in ("", "a", "fine", "odd?", "plain")}
    problems = [
        Skipped(path, f"{TARGET_CANNOT}this name", failed=True)
        for path in ("a/file", "plain/deep/file")
    ]
    published_fd = trees.published_fd if published else None
    assert leave_out_unholdable(directories, problems, trees.private.tree_fd, published_fd) == []
    assert sorted(os.listdir(trees.tree)) == sorted({*tried, "odd?", "plain"})


def test_a_full_target_is_not_said_to_hold_no_such_name(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = {path: directory(path) for path in ("", "odd?")}
    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(OSError, match="No space left"):
        leave_out_unholdable(directories, [], trees.private.tree_fd, None)
    assert list(directories) == ["", "odd?"]
