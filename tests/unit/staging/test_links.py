"""Hard links: to what this run copied or an earlier one, in the place of what one left."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.staging.files.holding import TARGET_CANNOT
from hostprep.staging.model import Entry, Recorded
from hostprep.staging.plans.copy_plan import CopyPlan, HardLink, group_links
from hostprep.staging.plans.links import Links
from hostprep.staging.publishing.structure import make_links
from hostprep.staging.record.lines import decode_line
from hostprep.staging.tasks import Copied

LINKS = [("c", "x"), ("a/b", "z"), ("c", "y"), ("", "w")]


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "tree/a/b").mkdir(parents=True)
    (tmp_path / "published/a/b").mkdir(parents=True)
    descriptor = os.open(tmp_path / "tree", os.O_RDONLY)
    yield SimpleNamespace(tree_fd=descriptor)
    os.close(descriptor)


def entry(name: str, ino: int) -> Entry:
    return Entry(name, 0o100644, 3, 5, 0, 0, 8, 2, ino, 1)


def copied(ino: int) -> Copied:
    """Return what came of copying ``a/b/first``."""
    return Copied(linked={"a/b/first": (entry("first", ino), "hash")})


def test_links_of_a_directory_make_one_line(private: Any, tmp_path: Path) -> None:
    (tmp_path / "tree/a/b/first").write_text("one")
    (tmp_path / "tree/c").mkdir()
    (tmp_path / "tree/c/y").write_text("left by a run that was killed")
    plan, done = CopyPlan(), copied(7)
    plan.links = [HardLink(path, entry(name, 7), "a/b/first", None) for path, name in LINKS]
    lines = make_links(plan, done, private, None)
    assert done.problems == [] and done.files == len(LINKS)
    for path, name in LINKS:
        assert os.path.samefile(tmp_path / "tree" / path / name, tmp_path / "tree/a/b/first")
    known = {path: [each.name for each in records] for path, records in map(decode_line, lines)}
    assert known == {"c": ["x", "y"], "a/b": ["z"], "": ["w"]}
    assert {each.group for line in lines for each in decode_line(line)[1]} == {"a/b/first"}


@pytest.mark.parametrize("left_over", [False, True])
def test_the_first_of_a_group_may_be_published_already(
    left_over: bool, private: Any, tmp_path: Path
) -> None:
    published = tmp_path / "published"
    (published / "a/b/first").write_text("one")
    if left_over:
        (tmp_path / "tree/a/new").write_text("other")
    kept = Recorded("first", "f", 3, 5, 0o644, 0, 0, "hash", "a/b/first")
    plan, done = CopyPlan(), Copied()
    plan.links = [HardLink("a", entry("new", 7), "a/b/first", kept)]
    descriptor = os.open(published, os.O_RDONLY)
    try:
        make_links(plan, done, private, descriptor)
    finally:
        os.close(descriptor)
    assert done.problems == []
    assert os.path.samefile(tmp_path / "tree/a/new", published / "a/b/first")


def one_link_that_fails(number: int, monkeypatch: pytest.MonkeyPatch) -> tuple[CopyPlan, Copied]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)
    plan = CopyPlan()
    plan.links = [HardLink("a", entry("new", 7), "a/b/first", None)]
    return plan, copied(7)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EIO])
def test_who_cannot_hold_links_is_told_from_who_fails(
    number: int, private: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, done = one_link_that_fails(number, monkeypatch)
    assert make_links(plan, done, private, None) == []
    (problem,) = done.problems
    assert problem.failed and problem.path == "a/new"
    assert problem.reason.startswith(TARGET_CANNOT) is (number == errno.EPERM)


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC])
def test_a_target_that_is_full_is_no_fault_of_the_link(
    number: int, private: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, done = one_link_that_fails(number, monkeypatch)
    with pytest.raises(OSError) as caught:
        make_links(plan, done, private, None)
    assert caught.value.errno == number and done.problems == []


def test_what_was_not_copied_is_linked_to_nothing(private: Any, tmp_path: Path) -> None:
    (tmp_path / "tree/a/b/first").write_text("one")
    plan, done = CopyPlan(), copied(8)
    plan.links = [HardLink("a", entry("new", 7), "a/b/first", None)]
    make_links(plan, done, private, None)
    assert "it was not copied" in done.problems[0].reason
    assert not (tmp_path / "tree/a/new").exists()


@pytest.mark.parametrize(
    "other", [{"size": 4}, {"mtime_ns": 6}, {"uid": 1}, {"mode": 0o100600}, {"nlink": 3}]
)
def test_files_of_one_number_that_are_not_alike_are_no_links(other: dict[str, int]) -> None:
    """Pools of disks over FUSE may give one inode number to files of several disks."""
    first, alike, unlike = entry("a", 7), entry("b", 7), entry("c", 7)._replace(**other)
    plan = CopyPlan(linked=[("", first), ("d", alike), ("", unlike)])
    group_links(plan, {})
    assert [(link.directory, link.primary) for link in plan.links] == [("d", "a")]
    assert sorted(each.name for batch in plan.batches for each in batch.entries()) == ["a", "c"]
    # And what was copied so stands.
    links = Links()
    assert links.stand(first, entry("a", 70)) and links.stand(alike, entry("b", 70))
    assert links.stand(unlike, entry("c", 71)._replace(nlink=1))
    assert not links.stand(unlike, entry("c", 70))


def test_files_without_a_count_of_names_have_one() -> None:
    """Many programs behind FUSE count none, and some number all files alike."""
    links, copies = (
        Links(),
        [entry(name, ino)._replace(nlink=1) for name, ino in (("a", 1), ("b", 2))],
    )
    for copy in copies:
        assert links.stand(entry(copy.name, 7)._replace(nlink=0), copy)
        assert links.stand(copy, entry(copy.name, 7)._replace(nlink=0))


def test_where_no_name_shows_the_others_the_record_says_which_were_linked() -> None:
    a, b, other = entry("a", 7), entry("b", 7), entry("c", 8)
    here = [entry(name, ino)._replace(nlink=1) for name, ino in (("a", 1), ("b", 2), ("c", 3))]
    links = Links(numbered=False)
    assert links.stand(a, here[0], "a") and links.stand(b, here[1], "a")
    assert not links.stand(other, here[2], "a"), "it was one file with them, and is another now"
    assert links.torn() == {a.inode, other.inode}
    counted = Links(numbered=False)  # one that was linked elsewhere, where links are counted
    assert counted.stand(a, here[0], "a") and not counted.stand(b, entry("b", 2), "a")
    assert not all(map(Links().stand, (a, b), here)), "these numbers mean something"


@pytest.mark.parametrize(
    ("seen", "torn"),
    [
        ([(1, 10), (1, 10), (2, 20), (2, 20)], set()),
        ([(2, 10), (1, 10), (1, 20), (2, 20)], {1, 2}),  # exchanged
        ([(1, 10), (1, 20), (3, 30), (2, 20)], {1, 2}),  # what is split, and what it joins
        ([(1, 10), (1, 20), (2, 20), (2, 30), (3, 30)], {1, 2, 3}),  # a chain
        ([(1, 10), (2, 10), (3, 30)], {1, 2}),
        ([(1, 10), (1, 20), (3, 30)], {1}),
    ],
)
def test_of_links_that_changed_hands_none_stands(
    seen: list[tuple[int, int]], torn: set[int]
) -> None:
    """Files of the source, and of the target, by the names that they have in common."""
    for order in (seen, seen[::-1]):
        links = Links()
        pairs = [(entry("x", source), entry("x", target)) for source, target in order]
        for source, target in pairs:
            links.stand(source, target)
        assert links.torn() == {source.inode for source, _ in pairs if source.ino in torn}
        again = Links(links.torn())
        assert [again.stand(*pair) for pair in pairs] == [pair[0].ino not in torn for pair in pairs]
        assert not again.torn()
