"""Directories that are encrypted, by what the kernel answers: few machines have such a one."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

import pytest

from hostprep.errors import Refused
from hostprep.host import fscrypt
from hostprep.host.fscrypt import is_locked, locked_out
from hostprep.host.mounts import Mount
from hostprep.probing import alive
from hostprep.staging.source.opening import open_source
from hostprep.staging.target.place import locked_refusal

KEY = bytes(range(16))


def answering(version: int, status: int) -> object:
    """Return what stands in for ioctl(2): a policy of that version, its key with that status."""

    def ioctl(descriptor: int, request: int, words: bytes) -> bytes:
        if request == 0xC0096616:
            return struct.pack("=QBBBB4x16s", 24, version, 1, 4, 0, KEY)
        assert request == 0xC080661A
        assert len(words) == 128 and words[:4] == b"\2\0\0\0" and words[8:24] == KEY
        return words[:64] + struct.pack("=I", status) + words[68:]

    return ioctl


@pytest.mark.parametrize(
    ("version", "status", "locked"), [(2, 1, True), (2, 3, True), (2, 2, False), (0, 1, False)]
)
def test_a_directory_is_locked_while_its_key_is_not_there(
    version: int, status: int, locked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absent (1) or half removed (3); of version 1 a process may have the key for itself."""
    monkeypatch.setattr(fcntl, "ioctl", answering(version, status))
    descriptor = os.open(tmp_path, os.O_RDONLY)
    assert is_locked(descriptor) is locked
    os.close(descriptor)


def test_what_is_not_encrypted_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> bytes:
        raise OSError(errno.ENODATA, "No data available")

    monkeypatch.setattr(fcntl, "ioctl", refused)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    assert not is_locked(descriptor)
    os.close(descriptor)


def test_neither_source_nor_target_is_looked_at_while_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert locked_refusal(f"{tmp_path}/a/b") is None
    monkeypatch.setattr(fcntl, "ioctl", answering(2, 1))
    words = "is encrypted, and its key is not there"
    with pytest.raises(Refused, match=words), open_source(str(tmp_path)):
        pass
    refusal = locked_refusal(f"{tmp_path}/a/b")
    assert refusal is not None and f"fscrypt unlock {tmp_path})" in (refusal.hint or "")


def test_what_fails_is_not_looked_at_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at a server that is down takes its time, and so would make it one that hangs."""

    def asked(path: str) -> None:
        raise AssertionError(path)

    def fails(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(alive, "locked_out", asked)
    with pytest.raises(AssertionError):
        alive._see(str(tmp_path))
    monkeypatch.setattr(os, "stat", fails)
    assert alive._see(str(tmp_path)) == {"errno": errno.EIO, "words": "Input/output error"}


def test_what_an_automounter_could_not_mount_is_not_asked_of_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "ioctl", answering(2, 1))
    missing = str(tmp_path / "server/data")
    monkeypatch.chdir(tmp_path)
    for path in (missing, "server/data"):
        said, cure = locked_out(path) or ("", "")
        assert said.startswith(f"lies below {tmp_path}, ") and str(tmp_path) in cure
    mount = Mount(1, 0, "0:1", "/", str(tmp_path), "autofs", "auto.net", (), ())
    monkeypatch.setattr(fscrypt, "read_mounts", lambda: [mount])
    assert locked_out(missing) is None
