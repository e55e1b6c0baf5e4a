"""The wheel that is made of the running hostprep: sound, whole, and the same each time."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import io
import zipfile
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest

from hostprep.fleet.packing import pack_wheel


def test_the_same_files_make_the_same_wheel() -> None:
    assert pack_wheel() == pack_wheel()


def test_the_record_names_each_file_with_its_hash() -> None:
    packed = pack_wheel()
    with zipfile.ZipFile(io.BytesIO(packed.content)) as wheel:
        (record,) = (name for name in wheel.namelist() if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
        assert [row[0] for row in rows] == wheel.namelist()
        for name, digest, size in rows[:-1]:
            content = wheel.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            assert (digest, size) == (f"sha256={expected.decode()}", str(len(content)))
        assert rows[-1] == [record, "", ""]


def test_modules_data_and_the_command_are_in_it_and_nothing_else() -> None:
    with zipfile.ZipFile(io.BytesIO(pack_wheel().content)) as wheel:
        names = set(wheel.namelist())
        (points,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        (installed,) = entry_points(group="console_scripts", name="hostprep")
        assert callable(installed.load())
        assert f"hostprep = {installed.value}" in wheel.read(points).decode()
    assert {
        "hostprep/cli/main.py",
        "hostprep/_data/playbooks/site.yml",
        "hostprep/_data/playbooks/roles/hostprep/tasks/main.yml",
        "hostprep/_data/playbooks/library/hostprep.py",
    } <= names
    assert not [name for name in names if "__pycache__" in name or "direct_url" in name]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"hostprep"}


def test_who_installed_it_and_when_is_no_part_of_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    as_it_is = pack_wheel()
    (tmp_path / "uv_cache.json").write_text('{"timestamp": {"secs_since_epoch": 1795700084}}')
    files = importlib.metadata.Distribution.files.fget  # type: ignore[attr-defined]

    def with_more(self: importlib.metadata.Distribution) -> list[importlib.metadata.PackagePath]:
        found = files(self)
        (folder,) = {file.parts[0] for file in found if file.parts[0].endswith(".dist-info")}
        more = importlib.metadata.PackagePath(folder, "uv_cache.json")
        more.dist = SimpleNamespace(  # type: ignore[assignment]
            locate_file=lambda _: tmp_path / "uv_cache.json"
        )
        return [*found, more]

    monkeypatch.setattr(importlib.metadata.Distribution, "files", property(with_more))
    assert pack_wheel().build == as_it_is.build
