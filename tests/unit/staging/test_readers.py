"""Who may read the names on record: who may list all that they are of, and nobody by mistake."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.staging.model import NO_CHOWN, TARGET_CANNOT, Skipped
from hostprep.staging.publishing.listable import who_may_list
from hostprep.staging.record import records
from hostprep.staging.record.manifest import (
    ManifestIndex,
    encode_line,
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
from hostprep.staging.record.skipped import nameless
from hostprep.staging.source.scan import scan_tree
from tests.kit.acls import ACCESS_ACL, access_acl
from tests.unit.staging.test_diff import entry, recorded
from tests.unit.staging.test_manifest import a_record

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root's records are root's to make")
LAB = Readers(0o640, 7)
ONE = encode_line("", [recorded(entry("old"))])


@pytest.mark.parametrize(
    ("bits", "mode", "readers"),
    [
        (LIST, 0o755, ALL),
        (LIST, 0o1777, ALL),
        (LIST, 0o750, LAB),
        (LIST, 0o751, LAB),
        (LIST, 0o705, ROOT),  # its group is kept out
        (LIST, 0o711, ROOT),
        (LIST, 0o744, ROOT),
        (LIST, 0o700, ROOT),
        (PASS, 0o711, ALL),
        (PASS, 0o710, LAB),
        (PASS, 0o744, ROOT),
    ],
)
def test_who_may_is_told_by_the_mode(bits: int, mode: int, readers: Readers) -> None:
    assert who_may(bits, stat.S_IFDIR | mode, 7) == readers


def test_common_are_those_of_both() -> None:
    other = Readers(0o640, 8)
    for some in (ALL, LAB, ROOT):
        assert common(ALL, some) == common(some, ALL) == common(some, some) == some
        assert common(ROOT, some) == common(some, ROOT) == ROOT
    assert common(LAB, other) == ROOT


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
def test_what_was_left_out_is_in_a_folder_too(open_folder: Path) -> None:
    os.mkfifo(open_folder / "source/lost+found/pipe")
    assert _who_may_list(open_folder) == ROOT


@as_root
@pytest.mark.parametrize("place", ["target/a", "."])
def test_an_acl_closes(place: str, open_folder: Path) -> None:
    try:
        os.setxattr(open_folder / place, ACCESS_ACL, access_acl(0o755, user=8, permissions=0))
    except OSError:
        pytest.skip("this file system has no ACLs")
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
    assert found.skipped[1].disowned
    save_record(replace(a_record(), skipped=()), durable=False)
    assert sorted(os.listdir(home)) == ["dataset.json", "manifest.jsonl"]


@pytest.mark.usefixtures("own_state")
def test_names_of_another_run_are_not_taken_for_those_of_the_record() -> None:
    save_record(replace(a_record(), skipped=(Skipped("a", "a fifo"),)), durable=False)
    (folder("data", "/mnt/x/data") / "skipped.json").write_text(json.dumps([]))
    found = load_record("data", "/mnt/x/data")
    assert found is not None and [item.path for item in found.skipped] == ["?"]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            f"{TARGET_CANNOT}hard links: Too many links (to a/b)",
            f"{TARGET_CANNOT}hard links: Too many links",
        ),
        ("the hard link to a/b failed: No such file", ""),
        (NO_CHOWN, NO_CHOWN),
    ],
)
def test_a_reason_that_all_may_read_names_nothing(reason: str, told: str) -> None:
    assert nameless(Skipped("x", reason, failed=True)) == Skipped("?", told, failed=True)


def test_a_manifest_that_is_closed_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(paths: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(records, "ManifestIndex", closed)
    with pytest.raises(ClosedManifest, match="closed to this user") as caught:
        manifest_of(a_record())
    assert isinstance(caught.value, HostprepError) and "sudo" in f"{caught.value.hint}"
