"""Who may read the names on record: who may list all that they are of, and nobody by mistake."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import repeat
from pathlib import Path
from types import FrameType

import pytest

from hostprep.errors import HostprepError
from hostprep.staging.publishing.listable import who_may_list
from hostprep.staging.reasons import GONE, LET_CHOWN, NO_CHOWN, TARGET_CANNOT, Skipped
from hostprep.staging.record import records
from hostprep.staging.record.lines import encode_line
from hostprep.staging.record.manifest import (
    ManifestIndex,
    extend_manifest,
    manifest_path,
    write_manifest,
)
from hostprep.staging.record.readers import (
    ALL,
    LIST,
    PASS,
    ROOT,
    Readers,
    common,
    let_read,
    readers_of,
    who_may,
)
from hostprep.staging.record.records import (
    ClosedManifest,
    folder,
    load_record,
    manifest_of,
    save_record,
)
from hostprep.staging.record.skipped import nameless, with_names
from hostprep.staging.source.scan import scan_tree
from tests.kit.acls import ACCESS_ACL, access_acl, try_acl
from tests.unit.staging.test_diff import entry, recorded
from tests.unit.staging.test_manifest import a_record

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root's records are root's to make")
LAB = Readers(0o640, 7)
HERS = Readers(0o600, None, 1234)
LAB_AND_HERS = Readers(0o640, 7, 1234)
ONE = encode_line("", [recorded(entry("old"))])


@pytest.mark.parametrize(
    ("bits", "mode", "readers"),
    [
        (LIST, 0o755, ALL),
        (LIST, 0o1777, ALL),
        (LIST, 0o750, LAB_AND_HERS),
        (LIST, 0o751, LAB_AND_HERS),
        (LIST, 0o705, HERS),  # its group is kept out
        (LIST, 0o711, HERS),
        (LIST, 0o744, HERS),
        (LIST, 0o700, HERS),
        (LIST, 0o300, ROOT),
        (LIST, 0o350, LAB),
        (PASS, 0o711, ALL),
        (PASS, 0o710, LAB_AND_HERS),
        (PASS, 0o744, HERS),
        (PASS, 0o600, ROOT),
    ],
)
def test_who_may_is_told_by_the_mode(bits: int, mode: int, readers: Readers) -> None:
    assert who_may(bits, stat.S_IFDIR | mode, 1234, 7) == readers


@pytest.mark.parametrize("uid", [0, 65534])
def test_root_and_who_is_not_known_are_no_owners(uid: int) -> None:
    assert who_may(LIST, 0o700, uid, 7) == ROOT


def test_common_are_those_of_both() -> None:
    other = Readers(0o640, 8)
    for some in (ALL, LAB, HERS, LAB_AND_HERS, ROOT):
        assert common(ALL, some) == common(some, ALL) == common(some, some) == some
        assert common(ROOT, some) == common(some, ROOT) == ROOT
    assert common(LAB, other) == common(LAB, HERS) == ROOT
    assert common(HERS, Readers(0o600, None, 1235)) == ROOT
    assert common(LAB_AND_HERS, HERS) == HERS and common(LAB, LAB_AND_HERS) == LAB


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that everybody can come to, with two in it."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    for name in ("source/a/b", "target/a/b", "source/lost+found"):
        (place / name).mkdir(parents=True)
    (place / "source/a/b/x").touch()
    (place / "source/lost+found").chmod(0o700)
    yield place
    shutil.rmtree(place)


def _who_may_list(place: Path) -> Readers:
    source_fd, target_fd = (os.open(place / each, os.O_RDONLY) for each in ("source", "target"))
    try:
        scan = scan_tree(source_fd, processes=1)
        return who_may_list(scan, target_fd, f"{place}")
    finally:
        os.close(source_fd)
        os.close(target_fd)


@as_root
@pytest.mark.parametrize(
    ("closed", "mode", "readers"),
    [
        (None, 0, ALL),  # not even lost+found, where there is nothing
        ("source", 0o700, ROOT),
        ("source/a", 0o750, LAB),
        ("source/a/b", 0o700, ROOT),
        ("target/a/b", 0o700, ROOT),
        ("target/a/b", 0o750, LAB),
        (".", 0o710, LAB),
        (".", 0o700, ROOT),
    ],
)
def test_each_folder_with_something_in_it_counts(
    closed: str | None, mode: int, readers: Readers, open_folder: Path
) -> None:
    if closed is not None:
        (open_folder / closed).chmod(mode)
        os.chown(open_folder / closed, 0, 7)
    assert _who_may_list(open_folder) == readers


@as_root
@pytest.mark.parametrize("acl", [False, True])
def test_the_one_who_owns_all_closed_folders_counts(acl: bool, open_folder: Path) -> None:
    for closed in ("source/a", "target/a", "."):
        os.chown(open_folder / closed, 1234, 1234)
        (open_folder / closed).chmod(0o700)
    if acl:
        try_acl(open_folder / "target/a", access_acl(0o700, user=8, permissions=0))
    assert _who_may_list(open_folder) == HERS
    (open_folder / "target/a").chmod(0o300)
    assert _who_may_list(open_folder) == ROOT
    (open_folder / "target/a").chmod(0o700)
    os.chown(open_folder / "target/a/b", 1235, 1235)
    (open_folder / "target/a/b").chmod(0o700)
    assert _who_may_list(open_folder) == ROOT


@as_root
def test_what_was_left_out_is_in_a_folder_too(open_folder: Path) -> None:
    os.mkfifo(open_folder / "source/lost+found/pipe")
    assert _who_may_list(open_folder) == ROOT


@as_root
@pytest.mark.parametrize("place", ["target/a", "."])
def test_an_acl_closes(place: str, open_folder: Path) -> None:
    try_acl(open_folder / place, access_acl(0o755, user=8, permissions=0))
    assert _who_may_list(open_folder) == ROOT


def _read(home: Path) -> Readers:
    return readers_of(manifest_path(home))


@as_root
def test_a_manifest_is_for_its_readers_and_closed_while_it_grows(tmp_path: Path) -> None:
    home = tmp_path / "state/datasets/x"
    write_manifest(home, [ONE], durable=False, readers=LAB)
    assert _read(home) == LAB
    write_manifest(home, [ONE], durable=False, readers=ALL)
    assert _read(home) == ALL
    with open(manifest_path(home), "rb") as held:
        extend_manifest(home, [encode_line("", [recorded(entry("new"))])], durable=False)
        assert held.read() == ONE, "whoever has it open is told nothing new"
    assert _read(home) == ROOT
    index = ManifestIndex([manifest_path(home)])
    assert set(index.records("")) == {"old", "new"}
    index.close()
    write_manifest(home, [ONE], durable=False)
    assert _read(home) == ROOT, "nobody is let in by default"
    let_read(manifest_path(home), LAB)
    assert _read(home) == LAB
    manifest_path(home).unlink()
    extend_manifest(home, [ONE], durable=False)
    assert _read(home) == ROOT


@as_root
def test_a_user_may_read_and_has_nothing_to_change(tmp_path: Path) -> None:
    home = tmp_path / "state/datasets/x"
    write_manifest(home, [ONE], durable=False)
    path = manifest_path(home)
    try_acl(path, access_acl(0o600, user=8, permissions=0o4))
    for readers in (HERS, LAB_AND_HERS, LAB, HERS, ALL, ROOT, HERS):
        let_read(path, readers)
        assert _read(home) == readers
        has_acl = ACCESS_ACL in os.listxattr(path)
        assert has_acl == (readers.uid is not None)
    write_manifest(home, [ONE], durable=False, readers=LAB_AND_HERS)
    assert _read(home) == LAB_AND_HERS and path.stat().st_uid == 0
    extend_manifest(home, [ONE], durable=False)
    assert _read(home) == ROOT and ACCESS_ACL not in os.listxattr(path)
    let_read(path, HERS)
    path.chmod(0o600)  # closes it, by the mask of the ACL
    assert _read(home) == ROOT


@as_root
def test_without_acls_a_user_gets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", unknown)
    home = tmp_path / "state/datasets/x"
    write_manifest(home, [ONE], durable=False, readers=HERS)
    assert _read(home) == ROOT
    write_manifest(home, [ONE], durable=False, readers=LAB_AND_HERS)
    assert _read(home) == LAB


@as_root
def test_a_users_own_records_stay_readable_to_the_user(tmp_path: Path) -> None:
    home = tmp_path / "state/datasets/x"
    home.mkdir(parents=True)
    os.chown(home.parents[1], 65534, 65534)
    write_manifest(home, [ONE], durable=False)
    extend_manifest(home, [ONE], durable=False)
    assert stat.S_IMODE(manifest_path(home).stat().st_mode) & 0o444 == 0o444


@as_root
@pytest.mark.usefixtures("own_state")
def test_what_was_left_out_has_the_readers_of_the_manifest() -> None:
    left_out = (Skipped("closed/name", "a fifo"), Skipped("b", NO_CHOWN, failed=True))
    home = folder("data", "/mnt/x/data")
    write_manifest(home, [ONE], durable=False, readers=LAB)
    for phase, readers in (("copying", ROOT), ("staged", LAB)):
        record = replace(a_record(), phase=phase, skipped=left_out)
        save_record(record, durable=False)
        assert readers_of(home / "skipped.json") == readers
        assert "closed/name" not in (home / "dataset.json").read_text()
        assert load_record("data", "/mnt/x/data") == record
    (home / "skipped.json").unlink()  # as for who may not read it
    found = load_record("data", "/mnt/x/data")
    assert found is not None
    assert [(item.path, item.failed) for item in found.skipped] == [("?", False), ("?", True)]
    assert found.skipped[1].cure == LET_CHOWN
    save_record(replace(a_record(), skipped=()), durable=False)
    assert sorted(os.listdir(home)) == ["dataset.json", "manifest.jsonl"]


@pytest.mark.usefixtures("own_state")
@pytest.mark.parametrize(
    "others", [[], [Skipped("b", NO_CHOWN)], [Skipped("b", "read back", failed=True)]]
)
def test_names_of_another_run_are_not_taken_for_those_of_the_record(others: list[Skipped]) -> None:
    save_record(replace(a_record(), skipped=(Skipped("a", NO_CHOWN, failed=True),)), durable=False)
    names = json.dumps([*map(asdict, others)])
    (folder("data", "/mnt/x/data") / "skipped.json").write_text(names)
    found = load_record("data", "/mnt/x/data")
    assert found is not None and [item.path for item in found.skipped] == ["?"]


@pytest.mark.usefixtures("own_state")
def test_a_record_of_very_many_that_were_left_out_stays_one_that_can_be_read() -> None:
    left_out = (
        *(Skipped(f"{number}.sock", "a socket") for number in range(20_000)),
        *(Skipped(f"{number}.jpg", "Permission denied", failed=True) for number in range(20_000)),
        *(Skipped(f"{number}.bin", NO_CHOWN, failed=True) for number in range(7)),
    )
    record = replace(a_record(), partial=True, skipped=tuple(sorted(left_out, key=str)))
    save_record(record, durable=False)
    home = folder("data", "/mnt/x/data")
    assert (home / "dataset.json").stat().st_size < 2000
    assert load_record("data", "/mnt/x/data") == record  # with all the names, in their order
    (home / "skipped.json").write_text("too large to be read, or closed to this user")
    found = load_record("data", "/mnt/x/data")
    assert found is not None and Counter(found.skipped) == Counter(map(nameless, left_out))


class Millions(tuple[Skipped, ...]):
    """As many as a damaged record may tell of; whoever takes each in turn would take minutes."""

    __slots__ = ()

    def __len__(self) -> int:
        return 100_000_000

    def __iter__(self) -> Iterator[Skipped]:
        yield from repeat(self[0], 1000)
        raise AssertionError("each of them was asked for")


def test_so_many_more_than_there_are_names_are_not_counted_one_by_one(tmp_path: Path) -> None:
    names = [asdict(Skipped("a.sock", "a socket"))]
    (tmp_path / "skipped.json").write_text(json.dumps(names))
    millions = Millions([nameless(Skipped("a.sock", "a socket"))])
    assert with_names(tmp_path, millions) is millions


@pytest.mark.usefixtures("own_state")
def test_of_many_that_were_left_out_each_kind_is_looked_at_once() -> None:
    skipped = tuple(Skipped(f"{number}.sock", "a socket") for number in range(20_000))
    save_record(replace(a_record(), skipped=skipped), durable=False)
    (folder("data", "/mnt/x/data") / "skipped.json").unlink()
    looked: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "as_declared":
            looked.append(event)

    sys.setprofile(note)
    try:
        found = load_record("data", "/mnt/x/data")
    finally:
        sys.setprofile(None)
    assert found is not None and len(found.skipped) == 20_000 and 0 < len(looked) < 10


@pytest.mark.usefixtures("own_state")
@pytest.mark.parametrize("times", ["3", -1, 1.5, None, True, 10**30, 10**9])
def test_a_count_of_what_was_left_out_that_is_damaged_is_told_as_damage(times: object) -> None:
    save_record(replace(a_record(), skipped=(Skipped("a", "a fifo"),)), durable=False)
    file = folder("data", "/mnt/x/data") / "dataset.json"
    fields = json.loads(file.read_text())
    assert "times" not in fields["skipped"][0]  # earlier versions read the few one by one
    fields["skipped"][0]["times"] = times
    file.write_text(json.dumps(fields))
    with pytest.raises(HostprepError, match="cannot be read: its count"):
        load_record("data", "/mnt/x/data")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            f"{TARGET_CANNOT}hard links: Too many links (to a/b)",
            f"{TARGET_CANNOT}hard links: Too many links",
        ),
        ("the hard link to a/b failed: No such file", ""),
        (f"{GONE} (its hard link a/b)", GONE),
        ("Invalid argument (its hard link a/b)", ""),
        ("Permission denied (its hard link a/b)", "Permission denied"),
        (NO_CHOWN, NO_CHOWN),
    ],
)
def test_a_reason_that_all_may_read_names_nothing(reason: str, told: str) -> None:
    assert nameless(Skipped("x", reason, failed=True)) == Skipped("?", told, failed=True)


def test_a_manifest_that_is_closed_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(paths: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(records, "ManifestIndex", closed)
    with pytest.raises(ClosedManifest, match="this user may not read the list") as caught:
        manifest_of(a_record())
    assert isinstance(caught.value, HostprepError) and "sudo" in f"{caught.value.hint}"
