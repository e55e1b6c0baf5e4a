"""By what a file system is known to be the one of an earlier look."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hostprep.host import file_system_id as module
from hostprep.host.block import PathStorage, locate
from hostprep.host.file_system_id import file_system_id, surely_another


def on(fstype: str, source: str, device: str, path: str = "/nowhere") -> PathStorage:
    mount = SimpleNamespace(fstype=fstype, source=source, device=device)
    return cast(PathStorage, SimpleNamespace(path=path, mount=mount))


def booted(root: Path, boot: str) -> Path:
    file = root / "proc/sys/kernel/random/boot_id"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{boot}\n")
    return root


def test_it_is_the_same_at_each_look(tmp_path: Path) -> None:
    assert file_system_id(locate(tmp_path)) == file_system_id(locate(tmp_path))


def test_a_uuid_outlives_a_boot_and_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = bytes([16]) + bytes(range(16))
    monkeypatch.setattr(module.fcntl, "ioctl", lambda *_: answer)
    found = {
        file_system_id(on("ext4", "/dev/sdb1", device, "/"), booted(tmp_path, boot))
        for device, boot in (("8:17", "one"), ("8:33", "two"))
    }
    assert found == {"uuid 000102030405060708090a0b0c0d0e0f"}


def test_without_a_uuid_it_is_the_disk_in_this_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.fcntl, "ioctl", lambda *_: bytes([16]) + bytes(16))  # of zeros
    disk = on("ext4", "/dev/sdb1", "8:17", "/")
    first = file_system_id(disk, booted(tmp_path, "one"))
    assert first is not None
    assert first == file_system_id(disk, tmp_path)
    assert first != file_system_id(on("ext4", "/dev/sdb1", "8:33", "/"), tmp_path)
    assert first != file_system_id(disk, booted(tmp_path, "two"))
    real = module.os.statvfs("/")
    other = SimpleNamespace(f_fsid=real.f_fsid + 1)
    monkeypatch.setattr(module.os, "statvfs", lambda _: other)  # a stick for another one
    assert first != file_system_id(disk, booted(tmp_path, "one"))


@pytest.mark.parametrize("device", ["0:52", "8:17"])
def test_what_cannot_be_told_apart_has_none(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_uuid(*_: Any) -> bytes:
        raise OSError

    monkeypatch.setattr(module.fcntl, "ioctl", no_uuid)
    root = booted(tmp_path, "one") if device == "0:52" else tmp_path
    assert file_system_id(on("overlay", "overlay", device, "/"), root) is None


def test_a_server_has_its_name_and_a_program_none(tmp_path: Path) -> None:
    root = booted(tmp_path, "one")
    assert file_system_id(on("nfs4", "nas:/data", "0:52"), root) == "nfs4 nas:/data"
    assert file_system_id(on("fuse.sshfs", "nas:/data", "0:52"), root) is None


@pytest.mark.parametrize(
    ("one", "other", "another"),
    [
        ("uuid 01", "uuid 02", True),
        ("uuid 01", "uuid 01", False),
        ("nfs4 nas:/a", "nfs4 nas:/b", True),
        ("nfs4 nas:/a", "uuid 01", False),
        ("boot a device 8:17 f", "boot a device 8:33 f", True),
        ("boot a device 8:17 f", "boot b device 8:33 f", False),
        (None, "uuid 01", False),
        ("uuid 01", None, False),
    ],
)
def test_what_is_surely_another(one: str | None, other: str | None, another: bool) -> None:
    assert surely_another(one, other) is another
