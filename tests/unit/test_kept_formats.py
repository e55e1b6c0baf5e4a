"""What the first versions kept is read for ever: whoever upgrades has it on every host.

As text, and not by today's writers: a field that is added and has no default would else be in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.converging.boot_record import load_boot_record, load_note, save_note
from hostprep.host.boot import boot_id
from hostprep.probing import results
from hostprep.staging.record import records
from hostprep.staging.record.manifest import ManifestIndex, manifest_path
from hostprep.staging.target.private import prepare
from hostprep.volumes.records import damaged_records, read_record

KEPT = Path(__file__).parents[1] / "fixtures/kept"
FIRST_PROBE = KEPT / "first-probe.json"
DATASET = """{
  "name": "one", "source": "/srv/one", "target": "/mnt/ram/one", "volume": "/mnt/ram",
  "files": 2, "bytes": 30, "entries": 3, "digest": "xxh3sum:c1405e255d37526beed536c3176dbc24",
  "verify": "readback", "verified_at": 1763621012.25, "staged_at": 1763621012.25,
  "boot_id": "f9342962-99b0-45ec-9059-ea155993d240", "phase": "staged", "partial": false,
  "skipped": [{"path": "fifo", "reason": "a fifo", "failed": false}],
  "format": "hostprep.manifest/1"
}"""
MANIFEST = """["",[[".","d",0,1763616418919505357,493,0,0,""],["a","f",10,5,420,0,0,"0f","b"]]]
["",[["b","f",10,5,420,0,0,"0f","b"],["c","f",20,6,420,7,8,null],["s","l",1,6,511,0,0,"a"]]]
"""
VOLUME = """{
  "schema": "hostprep.volume-record/1", "path": "/mnt/ram", "volume_id": "mnt-ram",
  "boot_id": "f9342962-99b0-45ec-9059-ea155993d240", "device": "0:44", "source": "hostprep",
  "size_bytes": 209715200, "inodes": 65536, "made_dirs": ["/mnt/ram"],
  "requested_by": "uid 0", "created_unix_seconds": 1763621011.5
}"""
BOOT = """{
  "schema": "hostprep.boot-record/1", "name": "one", "source": "/srv/one", "parent": "/mnt/ram",
  "volume": "/mnt/ram", "volume_size_bytes": 209715200, "source_mount": "/", "target_mount": null,
  "remote": false, "digest": "xxh3sum:c1405e255d37526beed536c3176dbc24", "verify": "readback"
}"""
NOTE = """{
  "schema": "hostprep.boot-note/1", "state": "ready", "boot_id": "BOOT", "pid": 1,
  "at": 1763621012.5, "reason": "", "hint": null, "digest": null, "source_changed": null
}"""


@pytest.fixture
def state(own_state: Path) -> Path:
    return own_state / "state"


@pytest.fixture
def parent_fd(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_of_a_data_set(state: Path) -> None:
    home = state / "datasets" / "one-8153f8c2b1"
    write(home / "dataset.json", DATASET)
    write(manifest_path(home), MANIFEST)
    record = records.load_record("one", "/mnt/ram/one")
    assert record is not None and records.all_records() == (record,)
    assert (record.id, record.entries, record.skipped[0].reason) == (home.name, 3, "a fifo")
    manifest = ManifestIndex([manifest_path(home)])
    found = manifest.records("")
    manifest.close()
    assert sorted(found) == [".", "a", "b", "c", "s"]
    assert (found["a"].group, found["c"].content, found["c"].gid) == ("b", None, 8)


def test_of_what_was_left_out_and_had_no_remedy_then(state: Path) -> None:
    """Commit 852b0b73 knew none for what this user may not read, and left the reason out."""
    home = state / "datasets" / "one-8153f8c2b1"
    for name in ("dataset.json", "skipped.json"):
        write(home / name, (KEPT / "partial-852b0b73" / name).read_text())
    record = records.load_record("one", "/mnt/ram/one")
    assert record is not None
    assert [(item.path, item.failed) for item in record.skipped] == [
        ("fifo", False),
        ("b.txt", True),
    ]
    assert record.skipped[1].cure is not None


def test_of_a_volume(state: Path) -> None:
    write(state / "volumes/mnt-ram.json", VOLUME)
    record = read_record("/mnt/ram")
    assert record is not None and not damaged_records()
    assert (record.device, record.made_dirs, record.namespaces) == ("0:44", ("/mnt/ram",), None)


def test_of_what_is_staged_at_boot(own_state: Path) -> None:
    write(own_state / "state/boot/one.json", BOOT)
    record = load_boot_record("one")
    assert record is not None
    assert (record.target, record.reserve_bytes) == ("/mnt/ram/one", None)
    write(own_state / "run/boot/one.json", NOTE.replace("BOOT", boot_id()))
    note = load_note("one")
    assert note is not None and note.state == "ready"
    save_note("one", note)
    assert load_note("one") == note


def test_of_a_probe(state: Path) -> None:
    write(state / "probes/20251120T072744Z-srv-datasets-0f7a.json", FIRST_PROBE.read_text())
    (result,) = results.best_of_each_path()
    assert results.load("/srv/datasets") == result and not results.damaged()
    assert len(results.differences(result, result)) == 4
    results.refuse_unlike(result, result["settings"])


def test_of_a_run_that_was_killed(tmp_path: Path, parent_fd: int) -> None:
    """What was copied and verified by then is taken up."""
    purpose = {"source": "/srv/one", "target": str(tmp_path / "one"), "boot_id": "f934"}
    info = '{"source": "/srv/one", "target": "TARGET", "boot_id": "f934", "format": "FORMAT"}'
    info = info.replace("TARGET", purpose["target"]).replace("FORMAT", "hostprep.manifest/1")
    private = tmp_path / ".hostprep-one"
    (private / "tree").mkdir(parents=True)
    private.chmod(0o700)
    write(private / "info.json", info)
    write(private / "journal.81.0a1b2c3d", MANIFEST)
    opened = prepare(parent_fd, purpose)
    try:
        assert opened.resumable
        journals = ManifestIndex(opened.journals())
        assert sorted(journals.records("")) == [".", "a", "b", "c", "s"]
        journals.close()
    finally:
        opened.close()
