"""A folder that fscrypt encrypts: its copies, and what becomes of them while it is locked."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.converging.boot_record import BootRecord
from hostprep.converging.restage import check_places
from hostprep.errors import Refused
from hostprep.host.mounts import mount_containing, read_mounts
from tests.kit import loops
from tests.kit.converging import plan, write_spec
from tests.kit.stagecraft import NOBODY, findings, hostprep, only_dataset, run_hostprep

# linux/fscrypt.h; the key is found by its identifier, which adding it returns.
_ADD_KEY, _REMOVE_KEY, _SET_POLICY = 0xC0506617, 0xC0406618, 0x800C6613
_BY_IDENTIFIER = 2
_RAW = bytes(range(64))


class Vault:
    """A folder below ``root``, on ext4, that is encrypted, and open to begin with."""

    def __init__(self, root: Path) -> None:
        self._mount = root
        self.folder = root / "data/vault"
        self.folder.mkdir(parents=True)
        policy = struct.pack("=BBBB4x16s", 2, 1, 4, 3, self.unlock())
        self._ask(self.folder, _SET_POLICY, policy)

    def unlock(self) -> bytes:
        words = struct.pack("=II32xI36x", _BY_IDENTIFIER, 0, len(_RAW)) + _RAW
        return self._ask(self._mount, _ADD_KEY, words)[8:24]

    def lock(self, identifier: bytes) -> None:
        words = struct.pack("=II16s40x", _BY_IDENTIFIER, 0, identifier)
        self._ask(self._mount, _REMOVE_KEY, words)

    def _ask(self, path: Path, request: int, words: bytes) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return fcntl.ioctl(descriptor, request, words)
        finally:
            os.close(descriptor)


@pytest.fixture
def vault(safe_dir: Path) -> Iterator[Vault]:
    if reason := loops.unavailable("ext4"):
        pytest.skip(reason)
    image, point = safe_dir / "encrypted.img", safe_dir / "encrypted"
    loops.make_filesystem(image, "ext4", 32 << 20)
    subprocess.run(["tune2fs", "-O", "encrypt", image], check=True, capture_output=True)
    point.mkdir()
    with loops.loop_mount(image, point, "ext4"):
        try:
            made = Vault(point)
        except OSError as error:
            pytest.skip(f"this kernel encrypts no folder: {error.strerror}")
        yield made


def test_a_locked_folder_is_not_read_and_its_copies_stay(vault: Vault, target: Path) -> None:
    """Its names are none of its files: symlinks and folders would be copied by them."""
    source = vault.folder.parent
    (source / "open").write_bytes(b"for all")
    (vault.folder / "inner").mkdir()
    (vault.folder / "inner/file").write_bytes(b"secret")
    (vault.folder / "link").symlink_to("inner")
    words = ("stage", source, "--to", target)
    hostprep(*words)
    copy = target / "data"
    copies = sorted(copy.rglob("*"))
    vault.lock(vault.unlock())
    assert not (vault.folder / "inner").exists(), "it is not locked"

    found = hostprep(*words, expect=1)
    assert [skipped["path"] for skipped in found["skipped"]] == ["vault"]
    assert "fscrypt unlock" in found["error"]["hint"]
    (source / "more").write_bytes(b"new")
    hostprep(*words, "--partial")
    assert sorted(copy.rglob("*")) == sorted([*copies, copy / "more"])
    assert (copy / "vault/inner/file").read_bytes() == b"secret"

    vault.unlock()
    hostprep(*words)
    assert (copy / "vault/link").readlink() == Path("inner")


def test_what_lies_below_a_locked_folder_is_told_to_be_locked(
    vault: Vault, target: Path, safe_dir: Path
) -> None:
    """It was told not to exist: below a locked folder nothing is found by its name."""
    source = vault.folder / "inner"
    source.mkdir()
    (source / "file").write_bytes(b"secret")
    spec = write_spec(safe_dir / "hostprep.yml", datasets=[{"source": source, "to": target}])
    hostprep("stage", source, "--to", target)
    vault.lock(vault.unlock())
    words = f"{source} lies below {vault.folder}, which is encrypted, and its key is not there"
    cure = f"unlock it (fscrypt unlock {vault.folder})"

    refused = hostprep("stage", source, "--to", target, expect=5)["error"]
    assert words in refused["message"]
    assert refused["hint"] == f"{cure} and run the same command again"
    (warning,) = plan(spec)["warnings"]  # the copy is there, and does without its source
    assert words in warning
    (check,) = findings(spec, "--only", "HP014")
    assert (check["status"], check["remedy"]["hint"]) == ("WARN", cure)
    assert words.removeprefix(f"{source} ") in check["message"]
    link = safe_dir / "link"
    link.symlink_to(source)
    for path in (source, link):
        commands = (("probe", path), ("recommend", "--dataset", path), ("facts", path))
        for command, *options in commands:
            failed = run_hostprep(command, *options)
            assert "which is encrypted" in failed.stderr and cure in failed.stderr
    parent = str(source.parent)
    lies_on = mount_containing(parent, read_mounts())
    assert lies_on is not None
    record = BootRecord(
        "inner", str(source), parent, None, None, lies_on.target, None, remote=False
    )
    with pytest.raises(Refused, match="lies below") as stopped:
        check_places(record, "again")
    assert stopped.value.hint == f"{cure}, then again"


def test_copies_in_a_locked_folder_are_out_of_reach_and_not_missing(
    vault: Vault, source: Path, safe_dir: Path
) -> None:
    """A run would be refused, where ``missing`` says that it stages them again."""
    hostprep("stage", source, "--to", vault.folder)
    key = vault.unlock()
    with next(each for each in (vault.folder / "data").rglob("*") if each.is_file()).open("rb"):
        vault.lock(key)
        half = only_dataset()
    vault.lock(key)
    whole = only_dataset()
    assert {half["state"], whole["state"]} == {"unreachable"}
    assert "half locked: its key was removed while something in it was open" in half["reason"]
    assert "its key is not there" in whole["reason"]
    assert half["hint"] == whole["hint"]
    (check,) = findings("--only", "HP010")
    assert (check["status"], check["remedy"]["hint"]) == ("UNKNOWN", whole["hint"])
    assert f"fscrypt unlock {vault.folder}" in whole["hint"]
    # What no spec wants is away while its user is logged out.
    spec = write_spec(safe_dir / "hostprep.yml")
    assert "data" not in {each["subject"] for each in findings(spec, "--only", "HP010")}
    vault.unlock()
    assert only_dataset()["state"] == "staged"


def test_what_a_folder_hides_that_one_may_enter_and_not_read_may_be_locked(
    vault: Vault, source: Path, target: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another's home, mode 0711: what lies below it was told not to be there."""
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(safe_dir / "state"))
    hostprep("stage", source, "--to", vault.folder)
    vault.folder.chmod(0o711)
    copy = vault.folder / "data"
    assert run_hostprep("facts", copy, prefix=NOBODY).returncode == 0

    def states() -> set[str]:
        done = run_hostprep("status", "--json", prefix=NOBODY)
        return {each["state"] for each in json.loads(done.stdout)["datasets"]}

    assert states() == {"staged"}
    vault.lock(vault.unlock())
    for words in (("facts", copy), ("stage", copy, "--to", target, "--dry-run")):
        done = run_hostprep(*words, prefix=NOBODY)
        assert (
            f"{copy} lies below {vault.folder}, which is encrypted, and may be locked"
            in done.stderr
        )
        assert f"fscrypt unlock {vault.folder}" in done.stderr
    assert states() == {"unreachable"}
    vault.unlock()
    gone = run_hostprep("facts", target / "none", prefix=NOBODY)
    assert "does not exist" in gone.stderr
