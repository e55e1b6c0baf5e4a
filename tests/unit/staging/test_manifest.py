"""Manifests and journals come back as they were written, whatever the names and the kills."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostprep.errors import HostprepError
from hostprep.staging.model import Recorded
from hostprep.staging.reasons import Skipped
from hostprep.staging.record import manifest
from hostprep.staging.record.damage import has_lost
from hostprep.staging.record.journal import Journal, record
from hostprep.staging.record.lines import decode_line, encode_line, encode_record
from hostprep.staging.record.manifest import (
    ManifestIndex,
    extend_manifest,
    manifest_path,
    write_manifest,
)
from hostprep.staging.record.records import (
    Record,
    all_records,
    damaged_records,
    forget,
    load_record,
    record_id,
    save_record,
)
from tests.unit.staging.test_diff import entry, recorded

# Any bytes that a file system takes as a name, as os.fsdecode gives them.
raw_names = st.binary(min_size=1, max_size=20).filter(lambda raw: not {0, 47} & set(raw))
names = raw_names.map(os.fsdecode)


def records_with(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Recorded]:
    """Return any records in which all texts are some of these."""
    return st.builds(
        Recorded,
        name=texts,
        kind=st.sampled_from("fld"),
        size=st.integers(0, 2**63 - 1),
        mtime_ns=st.integers(-(2**62), 2**62),
        mode=st.integers(0, 0o7777),
        uid=st.integers(0, 2**32 - 2),
        gid=st.integers(0, 2**32 - 2),
        content=st.none() | texts,
        group=st.just("") | texts,
    )


recordeds = records_with(names)
directories = st.dictionaries(
    st.lists(names, max_size=3).map("/".join),
    st.lists(recordeds, max_size=4, unique_by=lambda found: found.name),
    max_size=4,
)


@given(directories)
def test_counted_are_as_many_as_are_read(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, list[Recorded]]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "counted"
    odd = Recorded('x"],["y', "f", 1, 2, 3, 4, 5, '"],["', '],["')
    tree = {**tree, 'odd"],["': [odd, odd._replace(name="plain")]}
    lines = [encode_line(directory, records) for directory, records in tree.items()]
    write_manifest(folder, lines, durable=False)
    manifest = ManifestIndex([manifest_path(folder)])
    assert manifest.count() == sum(len(records) for records in tree.values())
    manifest.close()


def test_what_fails_to_be_read_does_not_count(tmp_path: Path) -> None:
    known = [Recorded(f"{number}", "f", 1, 2, 0o644, 0, 0, "00") for number in range(5)]
    damaged = encode_line("a", known).replace(b'"2"', b'"2\0')
    write_manifest(tmp_path, [damaged, encode_line("b", known)], durable=False)
    manifest = ManifestIndex([manifest_path(tmp_path)])
    for _ in range(2):
        assert manifest.records("a") == {} and len(manifest.records("b")) == 5
        assert manifest.known("a").versions() == {}
        assert manifest.count() == 5
    manifest.close()


@given(names, st.lists(recordeds, max_size=3))
def test_a_line_comes_back(directory: str, records: list[Recorded]) -> None:
    line = encode_line(directory, records)
    assert line.count(b"\n") == 1 and line.endswith(b"]]\n") and line.isascii()
    found, again = decode_line(line)
    assert (os.fsencode(found), again) == (os.fsencode(directory), records)


@given(content=directories)
def test_a_manifest_comes_back_by_directory(
    content: dict[str, list[Recorded]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("record")
    lines = [encode_line(path, found) for path, found in content.items()]
    write_manifest(folder, lines, durable=False)
    index = ManifestIndex([manifest_path(folder), folder / "missing"])
    try:
        wanted = {path for path, found in content.items() if found}
        assert wanted <= set(index.directories()) <= set(content)
        for path, found in content.items():
            assert index.records(path) == {item.name: item for item in found}
        assert index.records("no such directory") == {}
    finally:
        index.close()


def one(name: str, size: int) -> Recorded:
    return Recorded(name, "f", size, 1, 0o644, 0, 0, "c")


@pytest.mark.parametrize("cut", range(1, 59))
def test_a_torn_line_costs_only_itself(cut: int, tmp_path: Path) -> None:
    whole = encode_line("a", [one("x", 1)])
    torn = encode_line("b", [one("y", 2), one("z", 3)])[:cut]
    journal = tmp_path / "journal"
    journal.write_bytes(whole + torn)
    index = ManifestIndex([journal])
    assert index.records("a") == {"x": one("x", 1)}
    assert index.records("b") == {}
    index.close()
    # What is added later is found whole.
    journal.rename(manifest_path(tmp_path))
    extend_manifest(tmp_path, [encode_line("c", [one("w", 4)])], durable=True)
    index = ManifestIndex([manifest_path(tmp_path)])
    assert index.records("a") == {"x": one("x", 1)}
    assert index.records("c") == {"w": one("w", 4)}
    assert index.records("b") == {}
    index.close()


def test_glued_to_a_torn_line_a_line_is_lost_but_not_misread(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_bytes(encode_line("b", [one("y", 2)])[:-9] + encode_line("c", [one("w", 4)]))
    index = ManifestIndex([journal])
    assert (index.records("b"), index.records("c")) == ({}, {})
    index.close()


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b"[]\n", b"[1,[]]\n", b'["a",[[]]]\n', b'["a",[["x"]]]\n', b"\xff\n"]
)
def test_foreign_lines_are_left_out(line: bytes, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_bytes(line + encode_line("a", [one("x", 1)]))
    index = ManifestIndex([journal])
    assert index.records("a") == {"x": one("x", 1)}
    index.close()


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("name", ["x"]),
        ("kind", 5),
        ("kind", "x"),
        ("kind", ["f"]),
        ("size", "1"),
        ("mtime_ns", None),
        ("mtime_ns", float("nan")),
        ("mode", True),
        ("uid", 0.5),
        ("gid", {}),
        ("content", 17),
        ("group", 1),
        ("name", "\ud8ff"),
        ("name", "y\0"),
        ("content", "\ud8ff"),
        ("group", "\ud8ff"),
    ],
)
def test_a_line_of_other_kinds_of_values_is_left_out(
    field: str, other: object, tmp_path: Path
) -> None:
    items = [list(one("x", 1)), list(one("y", 1))]
    items[1][Recorded._fields.index(field)] = other
    line = json.dumps(["b", items], separators=(",", ":")).encode() + b"\n"
    write_manifest(tmp_path, [encode_line("a", [one("x", 1)]), line], durable=False)
    index = ManifestIndex([manifest_path(tmp_path)])
    assert index.records("b") == {} and index.known("b").versions() == {}
    assert (len(index.records("a")), index.count()) == (1, 1), "so the manifest has lost entries"
    index.close()


def test_what_lies_in_the_place_of_a_manifest_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(manifest_path(tmp_path))
    with pytest.raises(OSError) as caught:
        extend_manifest(tmp_path, [encode_line("a", [one("x", 1)])], durable=False)
    assert caught.value.filename == str(manifest_path(tmp_path))
    reader = os.open(manifest_path(tmp_path), os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="Not a regular file"):
        extend_manifest(tmp_path, [encode_line("a", [one("x", 1)])], durable=False)
    os.close(reader)


def test_one_that_a_disk_does_not_give_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies on another disk than the copies, which would be taken for what has failed."""
    path = tmp_path / "manifest.jsonl"
    path.write_bytes(encode_line("a", []))

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    index = ManifestIndex([path])
    for call, read in (("_lines_of", lambda: ManifestIndex([path])), ("_pread", index.count)):
        with monkeypatch.context() as patched, pytest.raises(OSError) as caught:
            patched.setattr(manifest, call, fail)
            read()
        assert caught.value.filename == str(path)
    index.close()


def test_the_later_of_two_records_counts(tmp_path: Path) -> None:
    write_manifest(tmp_path, [encode_line("a", [one("x", 1), one("y", 1)])], durable=True)
    extend_manifest(tmp_path, [encode_line("a", [one("x", 2)])], durable=False)
    extra = tmp_path / "journal"
    extra.write_bytes(encode_line("a", [one("y", 3)]))
    index = ManifestIndex([manifest_path(tmp_path), extra])
    assert index.records("a") == {"x": one("x", 2), "y": one("y", 3)}
    index.close()


def test_of_an_update_that_was_cut_short_no_part_has_what_a_later_one_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "_PART_BYTES", 10)
    write_manifest(tmp_path, [encode_line("a", [one(name, 1)]) for name in "xy"], durable=True)
    for whole in (False, True):
        index = ManifestIndex([manifest_path(tmp_path)])
        found = list(index.parts("a", 0.9))
        index.close()
        assert len(found) == (1 if whole else 2)
        if not whole:
            extend_manifest(tmp_path, [encode_line("a", [one("x", 2)])], durable=False)
    assert found == [{"x": one("x", 2), "y": one("y", 1)}]


def test_what_is_added_is_written_before_it_is_flushed_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    extend_manifest(tmp_path, [encode_line("a", [one("x", 1)])], durable=True)
    assert sizes == [manifest_path(tmp_path).stat().st_size]


def test_what_an_update_that_was_cut_short_was_to_add_is_told_from_what_it_was_to_replace(
    tmp_path: Path,
) -> None:
    write_manifest(tmp_path, [encode_line("a", [one("kept", 1), one("replaced", 1)])], durable=True)
    index = ManifestIndex([manifest_path(tmp_path)])
    assert (index.promises, index.known("a").promised()) == (False, set())
    index.close()
    extend_manifest(
        tmp_path, [encode_line("a", [one("replaced", 2), one("added", 1)])], durable=False
    )
    index = ManifestIndex([manifest_path(tmp_path)])
    assert (index.promises, index.known("a").promised(), index.known("b").promised()) == (
        True,
        {"added"},
        set(),
    )
    index.close()


@pytest.mark.parametrize(
    ("earlier", "later", "there", "speaks"),
    [
        # Size and time tell which of the two lies there; what is neither's is held against the new.
        ({"size": 1}, {"size": 2}, {"size": 1}, "earlier"),
        ({"size": 1}, {"size": 2}, {"size": 2}, "later"),
        ({"size": 1}, {"size": 2}, {"size": 3}, "later"),
        # Mode and owner tell where these are the same.
        ({}, {"mode": 0o600}, {}, "earlier"),
        ({}, {"mode": 0o600}, {"mode": 0o600}, "later"),
        ({}, {"uid": 5}, {}, "earlier"),
        ({}, {"uid": 5}, {"uid": 5}, "later"),
    ],
)
def test_of_an_update_that_was_cut_short_the_record_counts_that_speaks_of_what_is_there(
    earlier: dict[str, int],
    later: dict[str, int],
    there: dict[str, int],
    speaks: str,
    tmp_path: Path,
) -> None:
    records = {
        "earlier": recorded(entry("x", **earlier), "one"),
        "later": recorded(entry("x", **later), "two"),
    }
    write_manifest(tmp_path, [encode_line("", [records["earlier"]])], durable=True)
    extend_manifest(tmp_path, [encode_line("", [records["later"]])], durable=False)
    index = ManifestIndex([manifest_path(tmp_path)])
    assert index.known("").records({"x": entry("x", **there)}) == {"x": records[speaks]}
    index.close()


def test_where_nothing_tells_two_records_apart_the_content_is_unknown(tmp_path: Path) -> None:
    there = entry("x")
    write_manifest(tmp_path, [encode_line("", [recorded(there, "one")])], durable=True)
    extend_manifest(tmp_path, [encode_line("", [recorded(there, "two")])], durable=False)
    index = ManifestIndex([manifest_path(tmp_path)])
    assert index.known("").records({"x": there}) == {"x": recorded(there, None)}
    index.close()


def test_a_manifest_has_lost_entries_only_where_the_record_counts_those_of_the_same_run() -> None:
    staged = a_record()
    assert staged.entries == 3
    assert has_lost(staged, 2) and not has_lost(staged, 3) and not has_lost(staged, 4)
    assert not has_lost(dataclasses.replace(staged, phase="updating"), 2)


@given(raw=raw_names)
def test_a_journal_is_read_as_a_manifest(
    raw: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("private")
    descriptor = os.open(folder, os.O_RDONLY)
    journal = Journal(descriptor)
    name = os.fsdecode(raw)
    of = entry(name, mode=0o4755, nlink=2)
    journal.write([("d", [encode_record(*record(of, "f", "hash", "group"))]), ("empty", [])])
    journal.write([])
    journal.write([("", [encode_record(*record(of, "f", None, ""))])])
    journal.close()
    os.close(descriptor)
    (path,) = folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    index = ManifestIndex([path])
    plain = (name, "f", of.size, of.mtime_ns, 0o4755, 0, 0)
    assert index.records("d") == {name: Recorded(*plain, "hash", "group")}
    assert index.records("") == {name: Recorded(*plain, None, "")}
    index.close()


def a_record(name: str = "data", target: str = "/mnt/x/data") -> Record:
    return Record(
        name=name,
        source="/data/\udcff\n",
        target=target,
        volume=None,
        files=1,
        bytes=2,
        entries=3,
        digest="xxh3sum:0",
        verify="readback",
        verified_at=1.5,
        staged_at=2.5,
        boot_id="b",
        partial=True,
        skipped=(Skipped("\udcfe", "why", failed=True), Skipped("fifo", "a fifo")),
        failure="it said why",
    )


def test_a_record_comes_back_and_goes() -> None:
    record, other = a_record(), a_record(target="/mnt/y/data")
    assert load_record("data", "/mnt/x/data") is None and all_records() == ()
    save_record(other, durable=True)
    save_record(record, durable=True)
    assert load_record("data", "/mnt/x/data") == record
    assert all_records() == (record, other)
    forget(record)
    assert all_records() == (other,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"format": "hostprep.manifest/1"}', "cannot be read"),
        ('{"format": "x"}', "another version"),
    ],
)
def test_a_damaged_record_is_an_error_with_its_path(text: str, words: str, own_state: Path) -> None:
    save_record(a_record(), durable=True)
    (path,) = own_state.glob("state/datasets/*/dataset.json")
    path.write_text(text)
    with pytest.raises(HostprepError, match=words) as caught:
        load_record("data", "/mnt/x/data")
    assert str(path) in caught.value.message
    assert all_records() == ()
    assert [error.message for error in damaged_records().values()] == [caught.value.message]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Record)])
@pytest.mark.parametrize("wrong", [[None], -1, 1e300, 1e18, True])
def test_a_record_of_other_kinds_is_damaged(name: str, wrong: object, own_state: Path) -> None:
    """Whoever reads it would fail in its midst, and with it the list of all data sets."""
    save_record(a_record(), durable=True)
    (path,) = own_state.glob("state/datasets/*/dataset.json")
    fields = json.loads(path.read_text())
    if wrong is fields[name]:
        return
    path.write_text(json.dumps({**fields, name: wrong}))
    assert all_records() == ()
    assert list(damaged_records()) == [path.parent.name]


@pytest.mark.parametrize("name", ["source", "target", "volume", "target_mount"])
@pytest.mark.parametrize("wrong", ["", "data", "mnt/data"])
def test_a_record_of_a_relative_path_is_damaged(name: str, wrong: str, own_state: Path) -> None:
    """Whoever looks for the mount above it would go up without end."""
    save_record(a_record(), durable=True)
    (path,) = own_state.glob("state/datasets/*/dataset.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), name: wrong}))
    assert all_records() == ()
    assert list(damaged_records()) == [path.parent.name]


def test_what_a_power_cut_emptied_was_in_memory(own_state: Path) -> None:
    save_record(a_record(), durable=False)
    (path,) = own_state.glob("state/datasets/*/dataset.json")
    path.write_text("")
    assert load_record("data", "/mnt/x/data") is None


def test_fields_of_later_versions_are_ignored(own_state: Path) -> None:
    save_record(a_record(), durable=True)
    (path,) = own_state.glob("state/datasets/*/dataset.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "new field": 1}))
    assert load_record("data", "/mnt/x/data") == a_record()


def test_the_folder_of_a_record_is_one_name_and_unique_to_the_target() -> None:
    assert record_id("data", "/a/data") != record_id("data", "/b/data")
    for name in ("x" * 200, "\u6570" * 60):
        found = record_id(name, "/a/" + name)
        assert "/" not in found and len(os.fsencode(found)) < 255


def test_a_line_of_which_each_call_gives_a_part_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of 2 GiB and more. Read in part, its entries would count as somebody else's."""
    known = [Recorded(f"{number}", "f", 1, 2, 0o644, 0, 0, "00") for number in range(50)]
    write_manifest(tmp_path, [encode_line("a", known)], durable=False)
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, offset: whole(file, min(size, 100), offset))
    index = ManifestIndex([manifest_path(tmp_path)])
    assert list(index.records("a").values()) == known
    index.close()
