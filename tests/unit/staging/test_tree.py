"""What is in a directory, asked by its descriptor: as it is now, and nothing is followed."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.staging import tree
from hostprep.staging.tree import entries_in, list_if_few, look_up, walk
from hostprep.system.trees import names_in
from tests.kit.hostile import tree_that_leads_out


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "root").mkdir()
    descriptor = os.open(tmp_path / "root", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_listings_are_of_now(root: int, tmp_path: Path) -> None:
    assert names_in(root) == [] == [*entries_in(root)]
    for name in ("one", "two"):
        (tmp_path / "root" / name).write_bytes(b"x")
        assert name in names_in(root)
        assert name in [entry[0] for entry in entries_in(root)]
    assert [e[0] for e in entries_in(root)] == names_in(root)


@pytest.mark.parametrize("from_server", [False, True])
@pytest.mark.parametrize("most", [2, 64])
def test_a_source_is_listed_in_the_order_of_inodes(
    root: int, tmp_path: Path, most: int, from_server: bool
) -> None:
    for number in range(64):
        (tmp_path / "root" / f"{number * 7919 % 64:x}").write_bytes(b"x")
    entries, names = list_if_few(root, most, from_server=from_server)
    found = [entry[0] for entry in entries] + names
    assert sorted(found) == sorted(names_in(root))
    assert bool(names) is (most < 64 and not from_server)
    by_inode = sorted(found, key=lambda name: (tmp_path / "root" / name).stat().st_ino)
    assert found == by_inode


@pytest.mark.parametrize("prompt", [True, False])
def test_a_name_that_a_server_tells_twice_is_one_entry(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: bool
) -> None:
    for number in range(8):
        (tmp_path / "root" / f"{number}").write_bytes(b"x")
    scandir = os.scandir

    @contextmanager
    def scanned_twice(descriptor: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(descriptor) as listing:
            items = list(listing)
            yield iter(items[:3] + items)

    monkeypatch.setattr(os, "scandir", scanned_twice)
    monkeypatch.setattr(tree, "is_slow", lambda seconds, entries: not prompt)
    entries, names = list_if_few(root, 1, from_server=True)
    assert sorted([entry[0] for entry in entries] + names) == [f"{n}" for n in range(8)]


def test_a_listing_that_begins_anew_for_ever_is_left(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        (tmp_path / "root" / f"{number}").write_bytes(b"x")
    scandir = os.scandir

    @contextmanager
    def scanned_for_ever(descriptor: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(descriptor) as listing:
            yield itertools.cycle(list(listing))

    monkeypatch.setattr(os, "scandir", scanned_for_ever)
    with pytest.raises(OSError, match="begins anew"):
        list_if_few(root, 1, from_server=True)


@pytest.mark.parametrize("look", ["listed", "looked up"])
@pytest.mark.parametrize("number", [errno.EUCLEAN, errno.EACCES])
def test_an_entry_that_cannot_be_looked_at_is_named(
    number: int, look: str, monkeypatch: Any
) -> None:
    """A folder of a million files is not read for the one inode that is damaged: which is it?

    Or for one on which a user has mounted something, which even root may not look at.
    """
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    damaged = OSError(number, os.strerror(number), "bad\n")

    def fail(*_: object, **__: object) -> None:
        raise damaged

    monkeypatch.setattr(os, "lstat", fail)
    with pytest.raises(OSError, match=r"'bad\\n' in it: ") as caught:
        if look == "listed":
            list(tree._look_at([SimpleNamespace(name="bad\n", stat=fail)]))  # type: ignore[list-item]
        else:
            look_up(-1, ["bad\n"])
    assert caught.value.errno == number


def test_a_walk_follows_nothing(root: int, tmp_path: Path) -> None:
    tree_that_leads_out(tmp_path / "root")
    found = {path: sorted(entry[0] for entry in entries) for path, entries in walk(root)}
    assert found == {
        "": ["top"],
        "top": ["link", "sub"],
        "top/sub": ["deep"],
        "top/sub/deep": ["fifo", "file", "link"],
    }
