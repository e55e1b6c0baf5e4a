"""Who else can exchange what is staged, and which other machine may take it for its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import Refused
from hostprep.host.mounts import parse_mountinfo
from hostprep.staging import status, unstage_plan
from hostprep.staging.record.records import Record, save_record
from hostprep.staging.target.strangers import (
    may_be_elsewhere,
    shared_records_warning,
    stranger_warning,
)
from hostprep.staging.unstage_plan import plan_unstage

_MOUNTS = """
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:40 / /home rw - {fstype} {source} rw
23 21 0:41 / /dev/shm rw - tmpfs tmpfs rw
24 21 0:42 / /projects rw - nfs4 server:/projects rw
"""


def test_a_target_directory_of_another_user_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose it is can exchange what was verified; a name in /dev/shm anybody may have taken."""
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    if owner != 0:
        assert f"belongs to uid {owner}" in str(stranger_warning(str(tmp_path)))
    else:
        assert stranger_warning(str(tmp_path)) is None, "root may do everything anyway"
        os.chown(tmp_path, 54322, -1)
        assert "belongs to uid 54322" in str(stranger_warning(str(tmp_path)))
        os.chown(tmp_path, 54321, -1)
        assert stranger_warning(str(tmp_path)) is None
    assert stranger_warning(str(tmp_path / "none")) is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert stranger_warning(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("fstype", "target", "warned"),
    [
        ("nfs4", "/dev/shm/alice", True),
        ("nfs4", "/not/there/yet", True),
        ("lustre", "/dev/shm/alice", True),
        ("nfs4", "/projects/fast", False),
        ("ext4", "/dev/shm/alice", False),
        ("fuse.gocryptfs", "/dev/shm/alice", False),
    ],
)
def test_records_in_a_home_that_other_machines_have_too_are_warned_of(
    fstype: str, target: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = parse_mountinfo(_MOUNTS.format(fstype=fstype, source="server:/home").encode())
    monkeypatch.delenv("HOSTPREP_STATE_DIR", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    told = shared_records_warning(target, mounts)
    assert (told is not None) is warned
    assert (may_be_elsewhere(f"{target}/data", mounts) is not None) is warned
    if told is not None:
        cure = "export HOSTPREP_STATE_DIR=/home/alice/.local/state/hostprep-$(hostname)"
        assert f"are on server:/home ({fstype})" in told
        assert told.endswith(cure)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", "/home/alice/.local/state/hostprep-here")
    assert shared_records_warning(target, mounts) is None, "this was chosen"
    monkeypatch.delenv("HOSTPREP_STATE_DIR")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    booted = parse_mountinfo(_MOUNTS.replace("ext4 /dev/sda1", "nfs4 server:/root").encode())
    assert shared_records_warning(target, booted) is None, "root's are the machine's"


def test_what_is_not_here_is_not_forgotten_for_the_machine_that_may_have_it(
    tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(
        "data", "/src", f"{tmp_path}/data", None, 1, 1, 2, None, "none", None, 0.0, boot_id="b"
    )
    save_record(record, durable=False)
    assert plan_unstage(record, fstab=False).published is False
    monkeypatch.setattr(unstage_plan, "may_be_elsewhere", lambda *_: "another may have it")
    for gone in (record, replace(record, target=f"{tmp_path}/none/data")):
        with pytest.raises(Refused, match="is not on this machine, and another may") as refused:
            plan_unstage(gone, fstab=False)
        assert str(refused.value.hint).endswith(f"unstage {gone.target} --forget")
    monkeypatch.setattr(status, "may_be_elsewhere", lambda *_: "another may have it")
    found = status.dataset_status(record)
    assert (found.state, found.reason) == (
        "missing",
        "it is not on the target; another may have it",
    )
