"""What has come in the place of files that hostprep keeps: no reader hangs, none trips over it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from hostprep.converging import boot_record
from hostprep.fleet import last_run
from hostprep.host.block import locate
from hostprep.probing import results
from hostprep.staging import ceiling
from hostprep.staging.record import records as datasets
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.system import last_results
from hostprep.system.kept import as_declared, made_of, open_kept, parse_kept, read_kept, why_unread
from hostprep.volumes import records as volumes

VOLUME = volumes.VolumeRecord(
    "/mnt/x", "mnt-x", "boot", "0:1", "tmpfs", 1 << 30, 1000, ("/mnt/x",), "uid 0", 1.7e9
)
DATASET = datasets.Record(
    "x", "/src", "/mnt/x", None, 1, 2, 3, None, "readback", 1.5, 2.5, "boot", submounts=("a",)
)
BOOT = boot_record.BootRecord("x", "/src", "/mnt", None, None, "/", "/", False)
# The files of a state directory, with who reads them and what is then found.
READERS: dict[str, Callable[[], object]] = {
    "last/verify.json": lambda: last_results.read_last("verify"),
    "volumes/x.json": lambda: (volumes.all_records(), len(volumes.damaged_records())),
    "datasets/x-1/dataset.json": lambda: (datasets.all_records(), len(datasets.damaged_records())),
    "boot/x.json": lambda: (
        boot_record.all_boot_records(),
        len(boot_record.damaged_boot_records()),
        boot_record.recorded_units(),
    ),
    "run/boot/x.json": lambda: boot_record.load_note("x"),
    "probes/x.json": lambda: (list(results.newest_first()), len(results.damaged())),
    "fleet/failed.json": lambda: last_run.failed_hosts("hosts.ini"),
    "datasets/x-1/manifest.jsonl": lambda: len(
        ManifestIndex([Path(os.environ["HOSTPREP_STATE_DIR"]) / "datasets/x-1/manifest.jsonl"])
    ),
}
NOTHING: dict[str, object] = {
    "last/verify.json": None,
    "volumes/x.json": ((), 1),
    "datasets/x-1/dataset.json": ((), 1),
    "boot/x.json": ((), 1, {"hostprep-stage-x.service"}),
    "run/boot/x.json": None,
    "probes/x.json": ([], 1),
    "fleet/failed.json": (),
    "datasets/x-1/manifest.jsonl": 0,
}


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def circle(path: Path) -> None:
    path.symlink_to(path)


def huge(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(300 * 1024 * 1024)


def holding(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(text)

    return write


PLANTED = {
    "a pipe": pipe,
    "a directory": Path.mkdir,
    "a device": device,
    "a link in a circle": circle,
    "of any size": huge,
    "no JSON": holding('{"a": '),
    "nested without end": holding('["' + "[" * 100_000),
    "a list": holding('["schema"]'),
    "a number": holding("7"),
    "an object": holding('{"schema": {}, "format": []}'),
}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(tmp_path / "run"))
    return tmp_path


@pytest.mark.timeout(30)
@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("name", READERS)
def test_whatever_lies_there_counts_for_nothing(state: Path, name: str, planted: str) -> None:
    path = state / name
    path.parent.mkdir(parents=True)
    PLANTED[planted](path)
    assert READERS[name]() == NOTHING[name]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("planted", PLANTED)
def test_nor_does_it_as_the_ceiling_of_a_source(
    state: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceiling, "file_system_id", lambda _: "own")
    (state / "probes").mkdir()
    PLANTED[planted](state / "probes/x.json")
    assert ceiling.ceiling_of(locate(state), 100, 1.0) == (None, None)


@pytest.mark.parametrize("figures", [7, [1], "x", {"bytes_per_s": "fast"}])
def test_nor_do_figures_of_another_kind(
    state: Path, figures: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceiling, "file_system_id", lambda _: "own")
    (state / "probes").mkdir()
    probe = {"id": "a", "settings": {"file_system": "own"}, "valid": True, "time": "2026"}
    file = state / "probes/x.json"
    file.write_text(json.dumps({**probe, "small_files": {"bytes_per_s": 5.0}}))
    assert ceiling.ceiling_of(locate(state), 100, 1.0) == (5.0, "a")
    file.write_text(json.dumps({**probe, "small_files": figures}))
    assert ceiling.ceiling_of(locate(state), 100, 1.0) == (None, None)


@pytest.mark.parametrize("broken", ["path", "size_bytes", "made_dirs"])
def test_a_volume_record_with_a_field_of_another_kind_is_damaged(state: Path, broken: str) -> None:
    fields = json.loads(VOLUME.to_json())
    path = state / "volumes/mnt-x.json"
    path.parent.mkdir()
    path.write_text(json.dumps(fields))
    assert volumes.all_records() == (VOLUME,)
    path.write_text(json.dumps({**fields, broken: [{"x": 1}]}))
    assert volumes.all_records() == ()
    (error,) = volumes.damaged_records().values()
    assert "cannot be read" in error.message


@pytest.mark.parametrize("record", [VOLUME, DATASET, BOOT])
def test_each_field_is_of_the_kind_that_was_declared(
    record: volumes.VolumeRecord | datasets.Record | boot_record.BootRecord,
) -> None:
    assert as_declared(record) is record
    fields = {name: getattr(record, name) for name in asdict(record)}
    for name in fields:
        with pytest.raises(TypeError, match=f"its {name} is of another kind"):
            as_declared(type(record)(**{**fields, name: {}}))


@pytest.mark.parametrize("text", ["/x\0y", "/x\ud800"])
@pytest.mark.parametrize("name", ["name", "source", "target_mount", "submounts"])
def test_text_that_no_path_can_hold_is_damage(name: str, text: str) -> None:
    fields = {each: getattr(DATASET, each) for each in asdict(DATASET)}
    odd = (text,) if name == "submounts" else text
    with pytest.raises(TypeError, match=f"its {name} is of another kind"):
        as_declared(datasets.Record(**{**fields, name: odd}))
    undecodable = datasets.Record(**{**fields, "source": "/x\udcff"})
    assert as_declared(undecodable) is undecodable


@pytest.mark.parametrize(
    ("record", "name", "other"),
    [
        (VOLUME, "path", "/mnt/y"),
        (DATASET, "target", "/mnt/y"),
        (DATASET, "name", "y"),
        (BOOT, "name", "y"),
    ],
)
def test_a_record_that_speaks_of_something_else_than_its_file_is_damaged(
    state: Path, record: object, name: str, other: str
) -> None:
    volumes.write_record(VOLUME)
    datasets.save_record(DATASET, durable=False)
    boot_record.save_boot_record(BOOT)
    module = {VOLUME: volumes, DATASET: datasets}.get(record)
    folder = {VOLUME: "volumes", DATASET: "datasets/*"}.get(record, "boot")
    (file,) = state.glob(f"{folder}/*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), name: other}))
    damaged = module.damaged_records() if module else boot_record.damaged_boot_records()
    assert not (module.all_records() if module else boot_record.all_boot_records())
    (error,) = damaged.values()
    assert "cannot be read: what it says belongs into " in error.message


@pytest.mark.parametrize("record", [VOLUME, DATASET, BOOT])
def test_fields_of_a_later_version_are_passed_by_and_one_that_is_missing_is_named(
    record: volumes.VolumeRecord | datasets.Record | boot_record.BootRecord,
) -> None:
    fields = {name: getattr(record, name) for name in asdict(record)}
    assert made_of(type(record), {**fields, "priority": 7}) == record
    source = "path" if record is VOLUME else "source"
    del fields[source]
    with pytest.raises(TypeError, match=f"its {source} is missing"):
        made_of(type(record), fields)


def test_a_volume_and_its_boot_service_are_known_after_a_later_version(state: Path) -> None:
    volumes.write_record(VOLUME)
    boot_record.save_boot_record(BOOT)
    for file in state.glob("*/*.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "priority": 7}))
    assert volumes.all_records() == (VOLUME,)
    assert boot_record.all_boot_records() == (BOOT,)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.EISDIR, "remove it"),
        (errno.EIO, "fix that (dmesg may say more), and run the same command again"),
        (errno.EMFILE, "a limit on open files is reached: raise `ulimit -n`"),
    ],
)
def test_what_could_not_be_read_is_no_reason_to_throw_it_away(code: int, hint: str) -> None:
    error = OSError(code, os.strerror(code), "/x")
    assert why_unread(error, "remove it") == (os.strerror(code), hint)
    assert why_unread(ValueError("odd"), "remove it") == ("odd", "remove it")


@pytest.mark.parametrize("times", [1, 2])
def test_a_file_that_another_machine_replaces_meanwhile_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    (tmp_path / "kept").write_bytes(b"new")
    real, left = os.fstat, [None] * times

    def stale(descriptor: int) -> os.stat_result:
        if left:
            left.pop()
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(descriptor)

    monkeypatch.setattr("os.fstat", stale)
    if times == 1:
        assert read_kept(tmp_path / "kept") == b"new"
    else:
        with pytest.raises(OSError, match="Stale"):
            read_kept(tmp_path / "kept")


def test_what_is_there_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"[1]")
    assert read_kept(path) == b"[1]"
    assert parse_kept(read_kept(path)) == [1]
    with open_kept(path) as file:
        assert file.readline() == b"[1]"
    with pytest.raises(OSError, match="too large"):
        read_kept(path, most_bytes=2)
