"""Records of volumes: written whole, read back, and never guessed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.volumes.records import (
    VolumeRecord,
    all_records,
    damaged_records,
    delete_record,
    read_record,
    record_name,
    requester,
    write_record,
)

RECORD = VolumeRecord(
    path="/mnt/my data",
    volume_id="mnt-my_20data",
    boot_id="4f1c",
    device="0:42",
    source="hostprep",
    size_bytes=1 << 30,
    inodes=65536,
    made_dirs=("/mnt/my data",),
    requested_by="alice",
    created_unix_seconds=1700000000.25,
)


def test_a_record_comes_back_as_it_was_written(own_state: Path) -> None:
    assert read_record(RECORD.path) is None
    write_record(replace(RECORD, device=None))
    write_record(RECORD)
    assert read_record(RECORD.path) == RECORD
    write_record(other := replace(RECORD, path="/mnt/a", volume_id="mnt-a"))
    assert all_records() == (other, RECORD)
    assert {file.suffix for file in (own_state / "state/volumes").iterdir()} == {".json"}


@pytest.mark.parametrize("name", ["a" * 255, "é" * 120, "/".join(["b" * 200] * 3)])
def test_a_path_with_a_long_name_has_a_record_too(name: str, own_state: Path) -> None:
    path = f"/mnt/{name}"
    assert read_record(path) is None
    write_record(long := replace(RECORD, path=path))
    write_record(other := replace(RECORD, path=f"{path[:-1]}c"))
    assert (read_record(path), read_record(other.path)) == (long, other)
    (own_state / f"state/volumes/{record_name(path)}.json").write_text("{")
    assert set(damaged_records()) == {record_name(path)}
    delete_record(path)
    assert all_records() == (other,)


def test_forgetting_twice_is_no_error() -> None:
    write_record(RECORD)
    delete_record(RECORD.path)
    delete_record(RECORD.path)
    assert read_record(RECORD.path) is None
    assert all_records() == ()


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"null",
        b'{"schema": "hostprep.volume-record/2"}',
        RECORD.to_json().replace(b'"boot_id"', b'"boot"'),
        RECORD.to_json()[:-20],
        RECORD.to_json().replace(b'"size_bytes": ', b'"size_bytes": -'),
        RECORD.to_json().replace(b'"path": "/', b'"path": "'),
        *(
            json.dumps({**json.loads(RECORD.to_json()), name: [None]}).encode()
            for name in ("path", "device", "source", "inodes", "made_dirs", "created_unix_seconds")
        ),
    ],
)
def test_a_record_that_cannot_be_understood_is_named(own_state: Path, content: bytes) -> None:
    write_record(RECORD)
    (file,) = (own_state / "state/volumes").iterdir()
    file.write_bytes(content)
    with pytest.raises(HostprepError, match="cannot be read") as caught:
        read_record(RECORD.path)
    assert str(file) in caught.value.message
    assert all_records() == ()  # the others are not held up by it


def test_a_record_of_a_later_version_is_called_that(own_state: Path) -> None:
    write_record(RECORD)
    (file,) = (own_state / "state/volumes").iterdir()
    file.write_text('{"schema": "hostprep.volume-record/2", "path": "/mnt/my data"}')
    with pytest.raises(HostprepError) as caught:
        read_record(RECORD.path)
    for error in (caught.value, damaged_records()[record_name(RECORD.path)]):
        assert "is of another version of hostprep (hostprep.volume-record/2)" in error.message
        assert error.hint.startswith("unmount it with that version; remove the file if ")


@pytest.mark.parametrize(
    ("dirs", "why"), [(None, "of another kind"), ("/mnt/a", "of another kind"), (..., "missing")]
)
def test_directories_that_are_no_list_are_told_of(dirs: object, why: str, own_state: Path) -> None:
    """A text would be taken for a list of its letters, the first of which is the root."""
    write_record(RECORD)
    (file,) = (own_state / "state/volumes").iterdir()
    fields = {**json.loads(file.read_bytes()), "made_dirs": dirs}
    if dirs is ...:
        del fields["made_dirs"]
    file.write_text(json.dumps(fields))
    with pytest.raises(HostprepError, match=f"cannot be read: its made_dirs is {why}"):
        read_record(RECORD.path)


def test_what_a_power_cut_emptied_is_no_record(own_state: Path) -> None:
    write_record(RECORD)
    (file,) = (own_state / "state/volumes").iterdir()
    file.write_bytes(b"")
    assert read_record(RECORD.path) is None
    assert all_records() == ()
    write_record(RECORD)
    assert read_record(RECORD.path) == RECORD


def test_what_a_killed_run_left_of_a_record_goes_with_the_next(own_state: Path) -> None:
    folder = own_state / "state/volumes"
    folder.mkdir(parents=True)
    (folder / ".mnt-other.json.0123abcd").write_bytes(b"{")
    write_record(RECORD)
    assert len(list(folder.iterdir())) == 1


def test_a_record_is_a_json_document_with_a_schema() -> None:
    assert json.loads(RECORD.to_json())["schema"] == "hostprep.volume-record/1"


def test_the_user_behind_sudo_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    assert requester() == "alice"
    monkeypatch.delenv("SUDO_USER")
    assert requester().startswith("uid ")
