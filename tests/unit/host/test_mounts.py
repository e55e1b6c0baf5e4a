"""Which of several mounts a path lies on, and which one is hidden: by made-up ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hostprep.errors import HostprepError
from hostprep.host import mounts
from hostprep.host.mounts import (
    Mount,
    mount_at,
    mount_containing,
    mount_over,
    parse_mountinfo,
    read_mounts,
)


def mount(number: int, target: str) -> Mount:
    return Mount(number, 1, f"0:{number}", "/", target, "tmpfs", "x", ("rw",), ("rw",))


ROOT, DATA, INNER, AGAIN = (
    mount(20, "/"),
    mount(21, "/data"),
    mount(22, "/data/inner"),
    mount(23, "/data"),
)


@pytest.mark.parametrize(
    ("path", "lies_on"),
    [
        ("/", ROOT),
        ("/database", ROOT),
        ("/data", AGAIN),  # the later of two covers the earlier
        ("/data/x", AGAIN),
        ("/data/inner/x", INNER),
    ],
)
def test_a_path_lies_on_the_longest_and_the_last(path: str, lies_on: Mount) -> None:
    assert mount_containing(path, (ROOT, DATA, INNER, AGAIN)) is lies_on
    assert mount_containing(path, ()) is None


def test_of_two_on_one_path_the_later_is_seen() -> None:
    assert mount_at("/data", (ROOT, DATA, AGAIN)) is AGAIN
    assert mount_at("/data/x", (ROOT, DATA, AGAIN)) is None


def test_one_that_was_moved_onto_another_is_seen_though_it_is_listed_before() -> None:
    below, moved = replace(DATA, mount_id=30), replace(DATA, mount_id=21, parent_id=30)
    assert mount_at("/data", (ROOT, moved, below)) is moved
    assert mount_containing("/data/x", (ROOT, moved, below)) is moved
    circle = replace(below, parent_id=21)  # as no kernel has it
    assert mount_at("/data", (moved, circle)) in (moved, circle)


def test_a_root_that_is_listed_last_hides_nothing() -> None:
    root = replace(ROOT, mount_id=27, parent_id=1)
    proc = replace(DATA, parent_id=27)
    assert mount_over(proc, (proc, root)) is None


def test_what_came_later_above_hides_it_and_nothing_else_does() -> None:
    assert mount_over(INNER, (ROOT, DATA, INNER, AGAIN)) is AGAIN
    assert mount_over(INNER, (ROOT, DATA, AGAIN, INNER)) is None
    assert mount_over(DATA, (ROOT, DATA, INNER, AGAIN)) is None  # one on the path itself is another


def test_what_is_mounted_upon_the_root_hides_nothing() -> None:
    again = replace(ROOT, mount_id=40, parent_id=ROOT.mount_id)
    mounts = (ROOT, again, DATA)
    assert mount_over(DATA, mounts) is mount_over(DATA, (ROOT, DATA, again)) is None
    assert mount_at("/", mounts) is ROOT


def test_of_two_on_one_path_the_one_is_seen_that_lies_on_what_is_seen() -> None:
    upper = replace(DATA, mount_id=60, parent_id=70)
    seen = replace(DATA, target="/data/vol", mount_id=61, parent_id=60)
    lower = replace(DATA, mount_id=70, parent_id=ROOT.mount_id)
    hidden = replace(seen, mount_id=71, parent_id=70)
    mounts = (ROOT, upper, seen, lower, hidden)
    assert mount_at("/data", mounts) is upper
    assert mount_at("/data/vol", mounts) is mount_containing("/data/vol/x", mounts) is seen


def test_a_comma_in_an_option_is_not_one_between_two() -> None:
    line = (
        rb"22 21 0:40 / /mnt/o rw,relatime - overlay o rw,lowerdir=/a\054multiuser,upperdir=/b\040c"
    )
    (found,) = parse_mountinfo(line)
    assert found.super_options == ("rw", "lowerdir=/a,multiuser", "upperdir=/b c")


def test_an_empty_list_of_mounts_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that was just mounted would be taken for gone, and forgotten."""
    monkeypatch.setattr(mounts, "read_proc", lambda *_: b"")
    with pytest.raises(HostprepError, match="lists no mount at all"):
        read_mounts()
