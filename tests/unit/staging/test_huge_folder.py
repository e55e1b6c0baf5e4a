"""A huge folder is looked at in parts: what is decided is the same, and little of it is in memory.

As objects, all that is known of a folder at once would take over 1,000 bytes a file.
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostprep.staging import parted
from hostprep.staging.batches import pack_batches
from hostprep.staging.files.standing import stands
from hostprep.staging.model import Entry, Recorded, Totals
from hostprep.staging.parted import part_of, parts_for, split
from hostprep.staging.plans.changed import who_changed
from hostprep.staging.plans.sides import in_order
from hostprep.staging.plans.update import plan_update
from hostprep.staging.publishing.removing import _looked_at
from hostprep.staging.record.lines import encode_line
from hostprep.staging.record.manifest import (
    ManifestIndex,
    extend_manifest,
    manifest_path,
    write_manifest,
)
from hostprep.staging.source.scan import Listing, Scan
from hostprep.staging.tree import entries_in, entry_of
from hostprep.system.trees import DIRECTORY_FLAGS, DirCache
from tests.unit.staging.test_diff import entry
from tests.unit.staging.test_manifest import names, recordeds

_FILES = 1000


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parts as small beside these folders as they are beside huge ones."""
    monkeypatch.setattr(parted, "PART_ENTRIES", _FILES // 20)
    yield


class Folder:
    """A folder of many files that was staged to itself, so to say: source and copy are one."""

    def __init__(self, base: Path) -> None:
        (base / "data").mkdir()
        for number in range(_FILES):
            (base / f"data/image-{number:09}.jpg").touch()
        self.fd = os.open(base / "data", DIRECTORY_FLAGS)
        root = entry_of("", os.fstat(self.fd))
        entries = [Entry._make(item) for item in entries_in(self.fd)]
        batches = tuple(pack_batches("", entries))
        totals = Totals(_FILES, 0, 0, _FILES)
        self.packed = [batch.packed for batch in batches]
        self.scan = Scan({"": root}, [Listing("", batches, ())], totals=totals)
        records = [
            Recorded(
                e.name, "f", e.size, e.mtime_ns, e.mode & 0o7777, e.uid, e.gid, f"{e.ino:032x}"
            )
            for e in entries
        ]
        self.lines = [encode_line("", records[at : at + 128]) for at in range(0, _FILES, 128)]
        write_manifest(base, self.lines, durable=False)
        self.manifest = ManifestIndex([manifest_path(base)])

    def close(self) -> None:
        self.manifest.close()
        os.close(self.fd)

    def change(self) -> None:
        """Give another time to what the source has: all is to be copied again."""
        listing = self.scan.listings[0]
        entries = [each._replace(mtime_ns=7) for each in listing.entries()]
        batches = tuple(pack_batches("", entries))
        self.scan.listings = [Listing("", batches, ())]

    def update(self) -> None:
        nothing = ManifestIndex([])
        plan = plan_update(
            self.scan,
            manifest=self.manifest,
            journal=nothing,
            published_fd=self.fd,
            private_fd=None,
        )
        assert plan.kept.files + plan.copied.files == _FILES and not plan.strangers
        assert who_changed(plan, self.manifest) == (plan.copied.files > 0, False)

    def removal(self) -> None:
        found = _looked_at(self.fd, "", self.manifest)
        assert sum(record is not None for _, record in found) == _FILES

    def look(self) -> None:
        with DirCache(self.fd) as target:
            told = stands("", self.packed, [], self.lines, (0, 1), target, verified=True)
        assert told is not None and told[0] == _FILES


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.close()


def bytes_a_file(work: Callable[[], None]) -> float:
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / _FILES


@pytest.mark.usefixtures("small_parts")
def test_what_is_held_of_a_huge_folder_is_packed(folder: Folder) -> None:
    assert bytes_a_file(folder.update) < 600
    assert bytes_a_file(folder.removal) < 250
    assert bytes_a_file(folder.look) < 450
    folder.change()
    assert bytes_a_file(folder.update) < 600


@given(st.lists(st.tuples(names, st.integers()), max_size=20), st.integers(1, 5))
def test_each_part_has_its_names_in_their_order(items: list[tuple[str, int]], parts: int) -> None:
    found = list(split(iter(items), parts))
    assert len(found) == parts
    for number, part in enumerate(found):
        assert part == [item for item in items if part_of(item[0], parts) == number]


def test_few_entries_are_one_part() -> None:
    most = parted.PART_ENTRIES
    assert [parts_for(count) for count in (0, 1, most, 10 * most)] == [1, 1, 1, 10]


@settings(max_examples=30)  # each writes a manifest
@given(
    before=st.lists(recordeds, max_size=8),
    since=st.none() | st.lists(recordeds, max_size=8),
    others=st.lists(names, unique=True, max_size=4),
)
def test_of_a_part_the_same_is_known_as_of_all(
    before: list[Recorded],
    since: list[Recorded] | None,
    others: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("record")
    write_manifest(home, [encode_line("d", before)], durable=False)
    if since is not None:
        extend_manifest(home, [encode_line("d", since)], durable=False)
    asked = sorted({record.name for record in (*before, *(since or ()))} | {*others})
    index = ManifestIndex([manifest_path(home)])
    whole = index.known("d")
    for most in (4096, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parted, "PART_ENTRIES", most)
            told = []
            for some, known in index.of("d", asked):
                told += some
                versions, promised = known.versions(), known.promised()
                for name in some:
                    assert versions.get(name) == whole.versions().get(name)
                    assert known.records().get(name) == whole.records().get(name)
                    assert (name in promised) == (name in whole.promised())
    assert sorted(told) == asked
    index.close()


@given(st.sets(st.integers(0, 40)), st.integers(1, 4))
def test_what_is_copied_is_copied_in_the_order_of_the_listing(inodes: set[int], parts: int) -> None:
    entries = [entry(f"{ino}")._replace(ino=ino) for ino in sorted(inodes)]
    packed = [
        pack_batches("d", [Entry._make(item) for item in part], 3)
        for part in split([(*each,) for each in entries], parts)
        if part
    ]
    batches = list(in_order(packed))
    assert [each for batch in batches for each in batch.entries()] == entries
    assert all(batch.files and batch.directory == "d" for batch in batches)
