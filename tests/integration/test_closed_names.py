"""What a closed folder holds is not told by root's records either, and they go on telling the rest.

A spy reads all that hostprep keeps, as nobody: the names in folders that the source closes.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hostprep.staging.record.readers import ROOT, let_read
from tests.integration.test_stage_cut_short import killed
from tests.kit.acls import ACCESS_ACL, access_acl, try_acl
from tests.kit.converging import QUIET, apply, plan, write_spec
from tests.kit.stagecraft import NOBODY, hostprep, run_hostprep

_READ_ALL = ("sh", "-c", 'find "$0" -type f -exec cat {} + 2>/dev/null || true')


@pytest.fixture(autouse=True)
def _open_places(state: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(safe_dir / "run"))
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(safe_dir / "units"))


@pytest.fixture
def closed(source: Path) -> Path:
    """Return a folder of the source that is its owner's alone."""
    folder = source / "class-1"
    (folder / "patient-0815").write_bytes(b"x")
    folder.chmod(0o700)
    return folder


def _seen(state: Path, *prefix: str) -> str:
    """Return all that somebody can read of what is in the records."""
    line = [*(prefix or NOBODY), *_READ_ALL, str(state)]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def _modes(state: Path, name: str = "manifest.jsonl") -> int:
    (file,) = state.glob(f"datasets/*/{name}")
    return file.stat().st_mode & 0o777


def _status(target: Path, *prefix: str) -> dict[str, Any]:
    """Return what is said of the data set; this machine's own records have others for nobody."""
    found: list[dict[str, Any]] = hostprep("status", prefix=prefix)["datasets"]
    return next(each for each in found if each["target"] == f"{target}/data")


def _check(*prefix: str) -> dict[str, Any]:
    done = run_hostprep("check", "--only", "HP011", "--json", prefix=prefix)
    found: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    return next(each for each in found if each["subject"].endswith("/data"))


def test_others_are_told_all_but_the_names(
    source: Path, closed: Path, target: Path, state: Path
) -> None:
    os.mkfifo(closed / "pipe-of-4711")
    hostprep("stage", source, "--to", target)
    assert "patient-0815" in _seen(state, "env") and "pipe-of-4711" in _seen(state, "env")
    seen = _seen(state)
    assert "xxh3sum:" in seen and "patient" not in seen and "of-4711" not in seen
    found = _status(target, *NOBODY)
    assert (found["state"], found["freshness"]) == ("staged", "unknown")
    assert found["reason"].startswith("data has folders that not everybody may read")
    assert found["hint"].startswith("run it with sudo")
    assert hostprep("wait", "data", prefix=NOBODY)["datasets"][0]["ready"]
    check = _check(*NOBODY)
    assert check["status"] == "SKIP"
    assert check["message"].startswith("data has folders that not everybody may read")
    assert "check as root" in check["message"]
    error = hostprep("stage", source, "--to", target, "--dry-run", prefix=NOBODY, expect=1)
    assert "this user may not read the list" in error["error"]["message"]
    assert _check()["status"] == "PASS"
    mine = _status(target)
    assert (mine["freshness"], mine["hint"]) == ("fresh", None)


def test_a_plan_of_who_may_not_read_them_leaves_that_to_root(
    source: Path, closed: Path, target: Path, safe_dir: Path
) -> None:
    target.mkdir()
    spec = write_spec(safe_dir / "spec.yml", datasets=[{"source": source, "to": target}])
    apply(spec)
    for line in (("plan", spec), ("apply", spec, "--yes")):
        found = hostprep(*line, *QUIET, prefix=NOBODY)
        (kept,) = found["unchanged"]
        assert "only root can tell" in kept["reason"] and found["changes"] == []
    done = run_hostprep("plan", spec, *QUIET, prefix=NOBODY)
    assert "this user may not read the list" in done.stdout + done.stderr


def test_so_does_one_that_is_staged_from_such_copies(
    source: Path, closed: Path, target: Path, safe_dir: Path
) -> None:
    """Its source is not there, and what is to be done until it is, may not be for this user."""
    second = safe_dir / "second"
    for folder in (target, second):
        folder.mkdir()
    first = {"source": source, "to": target}
    spec = safe_dir / "spec.yml"
    write_spec(spec, datasets=[first, {"source": target / "data", "to": second}])
    apply(spec)
    (source / "new").mkdir()
    (source / "new/file").write_bytes(b"new")
    write_spec(
        spec, datasets=[first, {"name": "data", "source": target / "data/new", "to": second}]
    )
    found = hostprep("plan", spec, *QUIET, prefix=NOBODY)
    told = {each["subject"]: each["reason"] for each in found["unchanged"]}
    assert "only root can tell" in told[f"{target}/data"]
    assert "only root can tell what to do" in told[f"{second}/data"]
    assert found["changes"] == found["refusals"] == []
    write_spec(spec, datasets=[first, {"source": target / "data", "to": second}])
    (second / "data/class-0/theirs").write_bytes(b"kept")
    hostprep("unstage", second / "data", expect=1)
    closed.chmod(0o755)
    shutil.rmtree(target / "data")
    found = hostprep("plan", spec, *QUIET, prefix=NOBODY)
    actions = {each["subject"]: each["action"] for each in found["changes"]}
    assert actions.keys() == {f"{target}/data", f"{second}/data"} and found["refusals"] == []
    assert actions[f"{second}/data"].startswith(f"bring {second}/data up to date")
    (second / "data/class-0/theirs").unlink()
    apply(spec)
    assert plan(spec)["changes"] == []


def test_what_is_open_and_an_empty_closed_folder_are_for_all(
    source: Path, target: Path, state: Path
) -> None:
    (source / "lost+found").mkdir(mode=0o700)
    os.mkfifo(source / "pipe")
    hostprep("stage", source, "--to", target)
    assert (_modes(state), _modes(state, "skipped.json")) == (0o644, 0o644)
    assert '"pipe"' in _seen(state)
    assert _check(*NOBODY)["status"] == "PASS"


def test_what_is_a_groups_is_for_the_group(source: Path, target: Path, state: Path) -> None:
    for folder in (source, source / "class-1"):
        folder.chmod(0o750)
        os.chown(folder, 0, 4321)
    hostprep("stage", source, "--to", target)
    assert "000.bin" not in _seen(state)
    member = ("setpriv", "--reuid=65534", "--regid=65534", "--groups=4321", "--")
    assert "000.bin" in _seen(state, *member)
    assert _check(*member)["status"] == "PASS"


def test_what_is_closed_is_open_to_its_owner(
    source: Path, closed: Path, target: Path, state: Path, safe_dir: Path
) -> None:
    subprocess.run(["chown", "-R", "1234:1234", source], check=True)
    os.mkfifo(source / "class-1/pipe-of-4711")
    target.mkdir()
    spec = write_spec(safe_dir / "spec.yml", datasets=[{"source": source, "to": target}])
    apply(spec)
    assert "patient" not in _seen(state) and "of-4711" not in _seen(state)
    owner = ("setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "--")
    if "patient-0815" not in _seen(state, *owner):
        (manifest,) = state.glob("datasets/*/manifest.jsonl")
        with pytest.raises(OSError, match="not supported"):
            os.setxattr(manifest, ACCESS_ACL, access_acl(0o600, user=1234, permissions=0o4))
        pytest.skip("this file system has no ACLs")
    assert "of-4711" in _seen(state, *owner)
    assert all(path.stat().st_uid == 0 for path in state.rglob("*"))
    looked = hostprep("stage", source, "--to", target, "--dry-run", prefix=owner)
    assert looked["would_change"] is False
    assert _check(*owner)["status"] == "PASS"
    assert _status(target, *owner)["freshness"] == "fresh"
    assert hostprep("plan", spec, *QUIET, prefix=owner)["changes"] == []
    before = {path: path.stat().st_ctime_ns for path in state.glob("datasets/*/*")}
    assert plan(spec)["changes"] == []
    assert hostprep("stage", source, "--to", target)["changed"] is False
    after = {path: path.stat().st_ctime_ns for path in state.glob("datasets/*/*")}
    assert after == before, "it is as it is to be"
    (closed / "patient-0816").write_bytes(b"new")
    os.chown(closed / "patient-0816", 1234, 1234)
    hostprep("stage", source, "--to", target)
    assert "patient-0816" in _seen(state, *owner) and "patient" not in _seen(state)


def test_an_acl_counts_as_closed(source: Path, target: Path, state: Path) -> None:
    try_acl(source / "class-1", access_acl(0o755, user=65534, permissions=0))
    assert (source / "class-1").stat().st_mode & 0o055 == 0o055
    hostprep("stage", source, "--to", target)
    assert _modes(state) == 0o600
    (manifest,) = state.glob("datasets/*/manifest.jsonl")
    manifest.chmod(0o644)  # as of an earlier version
    hostprep("stage", source, "--to", target)
    assert _modes(state) == 0o600


def test_readers_that_cannot_be_given_are_tried_without_a_new_record(
    source: Path, closed: Path, target: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (source, closed):
        folder.chmod(0o750)
        os.chown(folder, 0, 4321)

    def not_here(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    stage = ("stage", source, "--to", target)
    hostprep(*stage)
    (record,) = state.glob("datasets/*/dataset.json")
    before = record.stat().st_ino
    let_read(record.with_name("manifest.jsonl"), ROOT)
    monkeypatch.setattr(os, "fchown", not_here)
    assert hostprep(*stage)["changed"] is False
    assert (_modes(state), record.stat().st_ino) == (0o600, before)


def test_a_folder_above_the_copies_closes_them_too(source: Path, target: Path, state: Path) -> None:
    target.mkdir(mode=0o700)
    hostprep("stage", source, "--to", target / "deep")
    assert _modes(state) == 0o600
    target.chmod(0o755)
    assert hostprep("stage", source, "--to", target / "deep")["changed"] is False
    assert _modes(state) == 0o644


def test_an_update_closes_and_opens(source: Path, target: Path, state: Path) -> None:
    stage = ("stage", source, "--to", target)
    hostprep(*stage)
    folder = source / "class-1"
    folder.chmod(0o700)
    (folder / "patient-0815").write_bytes(b"x")
    hostprep(*stage)
    assert "000.bin" not in _seen(state)
    folder.chmod(0o755)
    hostprep(*stage)
    assert "patient-0815" in _seen(state)


@pytest.mark.parametrize("step", ["publish_update", "write_manifest", "save_record"])
def test_an_update_that_is_killed_tells_nothing(
    step: str, source: Path, target: Path, state: Path, tmp_path: Path
) -> None:
    stage = ("stage", source, "--to", target)
    hostprep(*stage)
    (manifest,) = state.glob("datasets/*/manifest.jsonl")
    (source / "class-1").chmod(0o700)
    (source / "class-1/patient-0815").write_bytes(b"x")
    out = tmp_path / "out"
    with open(manifest, "rb") as held:  # since before: what comes later is not to be in it
        killed(out, f"hostprep.staging.stage.{step}", *stage, earlier=step == "save_record")
        assert "patient" not in held.read().decode()
    assert "patient" not in _seen(state)
    assert _status(target, *NOBODY)["state"] in ("interrupted", "staged")
    hostprep(*stage)
    assert "patient" not in _seen(state) and "patient" in _seen(state, "env")
    assert _check()["status"] == "PASS"


def test_what_earlier_versions_left_open_is_closed_by_the_next_run(
    source: Path, closed: Path, target: Path, state: Path
) -> None:
    os.mkfifo(closed / "pipe-of-4711")
    stage = ("stage", source, "--to", target)
    hostprep(*stage)
    (home,) = (state / "datasets").iterdir()
    record, skipped = home / "dataset.json", home / "skipped.json"
    fields = {**json.loads(record.read_text()), "skipped": json.loads(skipped.read_text())}
    record.write_text(json.dumps(fields))
    skipped.unlink()
    (home / "manifest.jsonl").chmod(0o644)
    assert "patient" in _seen(state) and "of-4711" in _seen(state)
    assert hostprep(*stage)["changed"] is False
    assert "patient" not in _seen(state) and "of-4711" not in _seen(state)
    assert "of-4711" in skipped.read_text()


@pytest.mark.parametrize("way", ["mode", "acl"])
def test_apply_closes_them_as_well(
    way: str, source: Path, closed: Path, target: Path, state: Path, safe_dir: Path
) -> None:
    target.mkdir()
    if way == "acl":
        closed.chmod(0o755)
        try_acl(closed, access_acl(0o755, user=65534, permissions=0))
    spec = write_spec(safe_dir / "spec.yml", datasets=[{"source": source, "to": target}])
    apply(spec)
    assert plan(spec)["changes"] == []
    (manifest,) = state.glob("datasets/*/manifest.jsonl")
    manifest.chmod(0o644)
    (change,) = plan(spec)["changes"]
    assert change["action"] == "restrict who may read the recorded list of its files"
    assert _modes(state) == 0o644, "a plan changes nothing"
    apply(spec)
    assert _modes(state) == 0o600 and plan(spec)["changes"] == []


def test_apply_opens_them_to_all_where_all_may_list_again(
    source: Path, target: Path, state: Path, safe_dir: Path
) -> None:
    target.mkdir(mode=0o700)
    spec = write_spec(safe_dir / "spec.yml", datasets=[{"source": source, "to": target}])
    apply(spec)
    assert _modes(state) == 0o600 and plan(spec)["changes"] == []
    target.chmod(0o755)
    (change,) = plan(spec)["changes"]
    assert change["action"] == "let everybody read the recorded list of its files"
    assert _modes(state) == 0o600, "a plan changes nothing"
    apply(spec)
    assert _modes(state) == 0o644 and plan(spec)["changes"] == []


def test_apply_closes_and_opens_them_with_their_volume(
    source: Path, state: Path, safe_dir: Path
) -> None:
    volume = safe_dir / "volume"

    def asked(mode: str) -> Path:
        volumes = [{"path": volume, "size": "64M", "mode": mode}]
        datasets = [{"source": source, "volume": volume}]
        return write_spec(safe_dir / "spec.yml", volumes=volumes, datasets=datasets)

    apply(asked("0755"))
    assert _modes(state) == 0o644
    for mode, verb, kept in (("0700", "restrict who may", 0o600), ("0755", "let everybody", 0o644)):
        changes = apply(asked(mode))["changes"]
        assert f"{verb} read the recorded list of its files" in [each["action"] for each in changes]
        assert _modes(state) == kept and plan(asked(mode))["changes"] == []
    apply(asked("0700"))
    try_acl(volume, access_acl(0o700, user=4711))
    kinds = {each["kind"] for each in apply(asked("0755"))["changes"]}
    assert kinds == {"volume", "fstab"}, "it shuts out whom it does not name"
    assert _modes(state) == 0o600


def test_a_users_own_records_are_as_ever(
    source: Path, closed: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = safe_dir / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(home / "state"))
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(home / "run"))
    subprocess.run(["chown", "-R", "65534:65534", source], check=True)
    stage = ("stage", source, "--to", home)
    hostprep(*stage, prefix=NOBODY)
    assert _modes(home / "state") == 0o644
    (source / "new").write_bytes(b"new")
    by_sudo = {"SUDO_UID": "65534", "HOSTPREP_RUN_DIR": str(safe_dir / "run")}
    done = run_hostprep(*stage, env=by_sudo)
    assert done.returncode == 0, done.stderr
    assert _modes(home / "state") == 0o644
