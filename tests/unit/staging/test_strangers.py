"""Who else can exchange what is staged, and which other machine may take it for its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hostprep.errors import Refused
from hostprep.host.mounts import parse_mountinfo
from hostprep.staging import status, unstage_plan
from hostprep.staging.record import homes
from hostprep.staging.record.records import (
    Record,
    all_records,
    folder,
    forget,
    is_roots,
    load_record,
    lock_name,
    other_hosts,
    save_record,
)
from hostprep.staging.target.strangers import (
    identity_of,
    may_be_elsewhere,
    shared_records_warning,
    stranger_warning,
)
from hostprep.staging.unstage_plan import plan_unstage
from hostprep.system import state

_MOUNTS = """
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:40 / {home} rw - {fstype} server:/home rw
23 21 0:41 / /dev/shm rw - tmpfs tmpfs rw
24 21 0:42 / /projects rw - nfs4 server:/projects rw
"""


def test_only_numbers_that_stay_identify_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, served = parse_mountinfo(_MOUNTS.format(home="/home", fstype="fuse.sshfs").encode())[:2]
    descriptors = [os.open(path, os.O_RDONLY) for path in (tmp_path, tmp_path.parent)]
    monkeypatch.setattr(os, "fstatvfs", lambda fd: SimpleNamespace(f_fsid=2**63))
    try:
        found = [identity_of(each, disk) for each in descriptors]
        assert found == [identity_of(each, disk) for each in descriptors]
        assert None not in found and len(set(found)) == 2
        assert identity_of(descriptors[0], served) is None
        assert identity_of(descriptors[0], None) is None
        monkeypatch.setattr(os, "fstatvfs", lambda fd: SimpleNamespace(f_fsid=0))
        assert identity_of(descriptors[0], disk) is None
    finally:
        for each in descriptors:
            os.close(each)


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


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Be an ordinary user of a machine whose /home is on a file system."""

    def be(fstype: str, host: str = "node1") -> None:
        mounts = parse_mountinfo(_MOUNTS.format(home=tmp_path, fstype=fstype).encode())
        monkeypatch.setattr(homes, "read_mounts", lambda: mounts)
        monkeypatch.setattr(state, "this_host", lambda: host)

    monkeypatch.delenv("HOSTPREP_STATE_DIR")
    monkeypatch.delenv("HOSTPREP_RUN_DIR")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(state, "SYSTEM_STATE_DIR", tmp_path / "system")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    return be


def _record(target: str) -> Record:
    name = os.path.basename(target)
    return Record(name, "/src", target, None, 1, 1, 2, None, "none", None, 0.0, boot_id="b")


@pytest.mark.parametrize(
    ("fstype", "target", "apart"),
    [
        ("nfs4", "/dev/shm/alice/data", True),
        ("nfs4", "/not/there/yet/data", True),
        ("lustre", "/dev/shm/alice/data", True),
        ("fuse.glusterfs", "/dev/shm/alice/data", True),
        ("nfs4", "/projects/fast/data", False),
        ("ext4", "/dev/shm/alice/data", False),
        ("fuse.gocryptfs", "/dev/shm/alice/data", False),
    ],
)
def test_machines_with_one_home_have_each_the_record_of_what_is_its_own(
    fstype: str, target: str, apart: bool, at_home: Callable[..., None], tmp_path: Path
) -> None:
    """Of what lies on a server there is one record, and one lock."""
    record = _record(target)
    at_home(fstype)
    save_record(record, durable=False)
    records = tmp_path / ".local/state/hostprep"
    own = records / "on-node1" if apart else records
    assert folder(record.name, target) == own / "datasets" / record.id
    lock_here = record.lock
    assert all_records() == (record,) and not is_roots(record)
    assert (may_be_elsewhere(record), shared_records_warning("data", target)) == (None, None)
    at_home(fstype, "node2")
    assert load_record(record.name, target) == (None if apart else record)
    assert (record.lock != lock_here) is apart
    save_record(record, durable=False)
    forget(record)
    at_home(fstype)
    assert all_records() == ((record,) if apart else ())


def test_a_record_of_a_version_that_told_no_machines_apart_stays_where_it_is(
    at_home: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = _record("/dev/shm/alice/data")
    at_home("ext4")
    save_record(record, durable=False)
    at_home("nfs4")
    assert all_records() == (record,) and not is_roots(record)
    told = str(shared_records_warning("data", record.target))
    assert "the record of /dev/shm/alice/data is on server:/home (nfs4)" in told
    assert "another machine may have it" in str(may_be_elsewhere(record))
    forget(record)
    assert all_records() == () and shared_records_warning("data", record.target) is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert folder("data", record.target).is_relative_to(tmp_path / "system"), "the machine's own"
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "chosen"))
    assert folder("data", record.target).is_relative_to(tmp_path / "chosen")


def test_the_lock_of_what_root_staged_is_roots_whoever_asks(
    at_home: Callable[..., None], tmp_path: Path
) -> None:
    """Whoever waits for it was told that the run at work on it had been killed."""
    at_home("nfs4")
    roots = _record("/mnt/ram/data")
    place = tmp_path / "system/datasets" / roots.id
    place.mkdir(parents=True)
    (place / "dataset.json").write_text(json.dumps(asdict(roots)))
    assert all_records() == (roots,) and is_roots(roots)
    plain = "stage-" + roots.id
    assert roots.lock == lock_name("data", roots.target, state.SYSTEM_STATE_DIR) == plain
    assert lock_name("data", roots.target) != plain, "one's own would be another"


def test_what_a_machine_of_another_name_staged_is_named(
    at_home: Callable[..., None], tmp_path: Path
) -> None:
    record = _record("/scratch/alice/data")
    at_home("nfs4", "pod-1")
    save_record(record, durable=False)
    assert other_hosts("data", record.target) == ()
    at_home("nfs4", "pod-2")
    there = tmp_path / ".local/state/hostprep/on-pod-1/datasets" / record.id
    assert load_record("data", record.target) is None
    assert other_hosts("data", record.target) == (there,)


def test_what_is_not_here_is_not_forgotten_for_the_machine_that_may_have_it(
    tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = _record(f"{tmp_path}/data")
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
