"""Hard links that change hands in a source whose files are all of one size and time.

That is all that a scan sees of content, so which names were tied together before, and which are
now, has to tell what may be kept.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.test_stage_at_random import killed
from tests.kit.compare import differences
from tests.kit.stagecraft import KILL_ROUNDS, hostprep

pytestmark = pytest.mark.usefixtures("state")

_NAMES = ("a1", "a2", "b1", "b2", "c1", "c2", "c3", "d", "e")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Groups of two, two and three names, and two files of one name; by halves in two folders."""
    root = tmp_path / "data"
    for name in _NAMES:
        path = place(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if (first := place(root, f"{name[0]}1")).exists():
            os.link(first, path)
        else:
            path.write_text(name[0])
            os.utime(path, ns=(10**18, 10**18))
    return root


def place(root: Path, name: str) -> Path:
    return root / ("x" if name[1:] == "1" else "y") / name


def exchange(root: Path, one: str, other: str) -> None:
    first, second = place(root, one), place(root, other)
    first.rename(root / "between")
    second.rename(first)
    (root / "between").rename(second)


def join(root: Path, one: str, other: str) -> None:
    """Make ``other`` a name of the file that has the name ``one``."""
    if not place(root, one).samefile(place(root, other)):
        os.link(place(root, one), root / "between")
        (root / "between").replace(place(root, other))


def rename(root: Path, one: str, other: str) -> None:
    """Give to ``other``, also where it is there, the place of ``one``."""
    if place(root, other).exists() and place(root, one).samefile(place(root, other)):
        place(root, one).unlink()  # which rename(2) would not do
    else:
        place(root, one).replace(place(root, other))


def split(root: Path, one: str) -> None:
    """Make a file of its own of ``one``, as it is."""
    shutil.copy2(place(root, one), root / "between")
    (root / "between").replace(place(root, one))


def exchanged(root: Path) -> None:
    exchange(root, "a1", "b1")


def three_in_a_circle(root: Path) -> None:
    exchange(root, "a1", "b1")
    exchange(root, "b1", "c1")


def chained(root: Path) -> None:
    join(root, "a2", "b1")
    join(root, "b2", "c1")


def moved_to_another_group(root: Path) -> None:
    join(root, "b1", "a1")


def moved_over_one_of_another(root: Path) -> None:
    rename(root, "b1", "a1")


def split_in_two(root: Path) -> None:
    split(root, "c2")


def split_and_exchanged(root: Path) -> None:
    split(root, "c2")
    exchange(root, "c2", "a1")


def joined(root: Path) -> None:
    join(root, "b1", "a1")
    join(root, "b1", "a2")


def joined_under_a_new_name(root: Path) -> None:
    rename(root, "b1", "z")
    join(root, "b2", "a1")


def exchanged_with_one_of_no_group(root: Path) -> None:
    exchange(root, "a1", "d")


def joined_with_one_of_no_group(root: Path) -> None:
    join(root, "d", "a1")
    join(root, "d", "a2")


CHANGES: list[Callable[[Path], None]] = [
    exchanged, three_in_a_circle, chained, moved_to_another_group, moved_over_one_of_another,
    split_in_two, split_and_exchanged, joined, joined_under_a_new_name,
    exchanged_with_one_of_no_group, joined_with_one_of_no_group,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_links_that_changed_hands_have_the_content_of_their_group(
    change: Callable[[Path], None], source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    change(source)
    assert differences(source, target / "data", owners=True) != [], "the change is none"
    updated = hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []
    fresh = hostprep("stage", source, "--to", target.parent / "other")
    assert fresh["digest"] == updated["digest"] and fresh["files"] == updated["files"]
    again = hostprep("stage", source, "--to", target)
    assert (again["changed"], again["copied_files"]) == (False, 0)


def test_what_has_nothing_to_do_with_links_that_changed_hands_is_kept(
    source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    exchanged(source)
    updated = hostprep("stage", source, "--to", target)
    assert (updated["copied_files"], updated["kept_files"]) == (4, 5)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_becomes_of_links_the_copies_have_their_groups_and_content(
    seed: int, source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    before, dice = groups(source), random.Random(seed)
    for _ in range(dice.randint(1, 6)):
        names = sorted({path.name for path in source.rglob("*") if path.is_file()})
        one, other = dice.sample(names, 2)
        new = dice.choice("uvwz")
        dice.choice(
            (
                lambda one=one, other=other: exchange(source, one, other),
                lambda one=one, other=other: join(source, one, other),
                lambda one=one, other=other: rename(source, one, other),
                lambda one=one, new=new: rename(source, one, new),
                lambda one=one: split(source, one),
            )
        )()
    hostprep("stage", source, "--to", target)
    unseen = looks_as_before(before, groups(source))
    told = differences(source, target / "data", owners=True)
    assert [each for each in told if each.partition(":")[0] not in unseen] == []


def groups(root: Path) -> dict[str, int]:
    """Return which file each path of a tree is a name of."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.stat().st_ino for path in files}


def looks_as_before(before: dict[str, int], now: dict[str, int]) -> set[str]:
    """Return the paths, as told, of files that may be others in the place of such.

    No link tells of it: all names that they have from before are those of one file, and all that
    are left of its.
    """
    was, became = defaultdict(set), defaultdict(set)
    for path in before.keys() & now.keys():
        was[now[path]].add(before[path])
        became[before[path]].add(now[path])
    alike = {inode for inode, old in was.items() if len(old) == 1 == len(became[min(old)])}
    return {repr(path) for path, inode in now.items() if inode in alike}


@pytest.mark.parametrize("seed", range(6 * KILL_ROUNDS))
def test_an_update_of_such_links_that_was_killed_is_brought_to_its_end(
    seed: int, source: Path, safe_dir: Path, target: Path
) -> None:
    dice, stage = random.Random(seed), ("stage", source, "--to", target)
    hostprep(*stage)
    change = dice.choice(CHANGES)
    change(source)
    for _ in range(dice.randint(1, 3)):
        killed(safe_dir / "said", dice, *stage)
        if change is exchanged and dice.random() < 0.5:
            change(source)
    hostprep(*stage)
    assert differences(source, target / "data", owners=True) == []
    assert hostprep(*stage)["changed"] is False
