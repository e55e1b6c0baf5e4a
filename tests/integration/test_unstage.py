"""``unstage`` takes away what was staged, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep, make_source, rewrite, run_hostprep, snapshot


@pytest.fixture(autouse=True)
def state(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(safe_dir / "state"))
    return safe_dir / "state"


@pytest.fixture
def source(safe_dir: Path) -> Path:
    return make_source(safe_dir / "data")


@pytest.fixture
def target(safe_dir: Path) -> Path:
    return safe_dir / "fast"


@pytest.fixture
def volume(safe_dir: Path) -> Path:
    return safe_dir / "volume"


def into(volume: Path, *more: str) -> tuple[str, ...]:
    return ("--to-tmpfs", "64M", "--at", str(volume), "--reserve", "0", *more)


@pytest.mark.parametrize("by", ["name", "path", "relative path", "path with a slash"])
def test_by_name_or_by_path(
    by: str, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)
    before = snapshot(source)
    monkeypatch.chdir(target)
    word = {"name": "data", "path": str(target / "data"), "relative path": "./data"}.get(by)
    found = hostprep("unstage", word or f"{target}/data/")
    assert found["dataset"] == "data" and found["target"] == str(target / "data")
    assert found["removed_entries"] == 122 + 13 and found["left"] == []
    assert (found["volume"], found["unmounted"]) == (None, None)
    assert os.listdir(target) == []
    assert snapshot(source) == before
    assert hostprep("status")["datasets"] == []
    hostprep("unstage", "data", expect=2)


def test_what_root_staged_is_not_a_users_to_remove(
    source: Path, target: Path, state: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)
    before = snapshot(target)
    monkeypatch.setattr("hostprep.system.state.SYSTEM_STATE_DIR", state)
    monkeypatch.delenv("HOSTPREP_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(safe_dir / "home"))
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    for words in (["data"], ["data", "--dry-run"]):
        found = hostprep("unstage", *words, expect=1)
        assert "was staged by root; nothing was changed" in found["error"]["message"]
        assert "sudo" in found["error"]["hint"]
    assert snapshot(target) == before


def test_two_of_one_name_need_the_path(source: Path, target: Path, safe_dir: Path) -> None:
    hostprep("stage", source, "--to", target)
    hostprep("stage", source, "--to", safe_dir / "slow")
    found = hostprep("unstage", "data", expect=2)
    assert str(target / "data") in found["error"]["hint"]
    hostprep("unstage", target / "data")
    assert differences(source, safe_dir / "slow/data", owners=True) == []
    hostprep("unstage", "data")
    assert os.listdir(safe_dir / "slow") == []


def test_what_others_added_or_changed_stays_and_is_named(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    staged = target / "data"
    (staged / "class-1/notes").write_bytes(b"somebody's")
    (staged / "class-2/mine").mkdir()
    (staged / "class-2/mine/deep").write_bytes(b"somebody's")
    (staged / "class-3/link").symlink_to("/etc")
    rewrite(staged / "class-4/images/005.bin", b"somebody changed it")
    kept = {"class-1/notes", "class-2/mine", "class-3/link", "class-4/images/005.bin"}
    planned = hostprep("unstage", "data", "--dry-run")
    assert set(planned["left"]) == kept and planned["changed"] is False
    assert differences(source, staged, owners=True) != [] and (staged / "hard").exists()
    found = hostprep("unstage", "data", expect=1)
    assert set(found["left"]) == kept
    left = [os.path.relpath(p, staged) for p in staged.rglob("*") if p.is_symlink() or p.is_file()]
    assert set(left) == (kept - {"class-2/mine"}) | {"class-2/mine/deep"}
    assert not (staged / "class-5").exists() and not (staged / "empty").exists()
    assert (staged / "class-1/notes").read_bytes() == b"somebody's"
    said = run_hostprep("unstage", "data")
    assert said.returncode == 1
    assert "left alone" in said.stderr and "class-1/notes" in said.stderr
    shutil.rmtree(staged)
    assert hostprep("unstage", "data")["left"] == []
    assert hostprep("status")["datasets"] == []


def test_a_volume_goes_with_its_last_data_set(source: Path, volume: Path) -> None:
    hostprep("stage", source, *into(volume, "--fstab"))
    hostprep("stage", source, *into(volume), "--name", "other")
    fstab = Path(os.environ["HOSTPREP_FSTAB"])
    first = hostprep("unstage", "data")
    assert first["unmounted"] is False and "other" in first["volume_kept_because"]
    assert os.path.ismount(volume)
    assert differences(source, volume / "other", owners=True) == []
    second = hostprep("unstage", "other", "--fstab")
    assert second["unmounted"] is True
    assert not os.path.exists(volume) and fstab.read_text() == ""


def test_it_is_told_what_becomes_of_the_line_in_fstab(source: Path, volume: Path) -> None:
    hostprep("stage", source, *into(volume, "--fstab"))
    kept = run_hostprep("unstage", "data")
    assert f"fstab mounts {volume} again at the next boot" in kept.stderr
    assert f"unmount {volume} --fstab" in kept.stderr
    hostprep("stage", source, *into(volume))
    gone = run_hostprep("unstage", "data", "--fstab")
    assert "fstab has no line for it" in gone.stdout and "next boot" not in gone.stderr


def test_a_volume_with_a_file_of_others_stays(source: Path, volume: Path) -> None:
    hostprep("stage", source, *into(volume))
    (volume / "somebody's").write_bytes(b"precious")
    found = hostprep("unstage", "data")
    assert found["unmounted"] is False and "somebody's" in found["volume_kept_because"]
    assert (volume / "somebody's").read_bytes() == b"precious"
    assert os.listdir(volume) == ["somebody's"]


def test_a_volume_that_hostprep_did_not_mount_stays(source: Path, safe_dir: Path) -> None:
    point = safe_dir / "theirs"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "x", point], check=True)
    hostprep("stage", source, "--to", point)
    found = hostprep("unstage", "data")
    assert found["unmounted"] is None and os.path.ismount(point)


def test_a_volume_in_use_stays_and_the_data_set_goes(source: Path, volume: Path) -> None:
    hostprep("stage", source, *into(volume))
    with subprocess.Popen(["sleep", "60"], cwd=volume) as user:
        try:
            found = hostprep("unstage", "data")
        finally:
            user.kill()
    assert found["unmounted"] is False and "sleep" in found["volume_kept_because"]
    assert os.path.ismount(volume) and os.listdir(volume) == []


def test_after_a_reboot_it_is_forgotten_and_the_mount_point_left(
    source: Path, volume: Path
) -> None:
    hostprep("stage", source, *into(volume, "--fstab"))
    subprocess.run(["umount", volume], check=True)
    (volume / "data").mkdir()
    (volume / "data/precious").write_bytes(b"under the mount point")
    (status,) = hostprep("status")["datasets"]
    assert status["state"] == "missing"
    found = hostprep("unstage", "data", "--fstab")
    assert found["removed_entries"] == 0
    assert (volume / "data/precious").read_bytes() == b"under the mount point"
    assert Path(os.environ["HOSTPREP_FSTAB"]).read_text() == ""
    assert hostprep("status")["datasets"] == []


def test_after_a_reboot_it_is_staged_anew(source: Path, volume: Path) -> None:
    first = hostprep("stage", source, *into(volume))
    subprocess.run(["umount", volume], check=True)
    again = hostprep("stage", source, *into(volume))
    assert (again["changed"], again["digest"]) == (True, first["digest"])
    assert again["copied_files"] == first["copied_files"]
    assert differences(source, volume / "data", owners=True) == []


def test_an_unfinished_stage_can_be_taken_away(source: Path, target: Path) -> None:
    (source / "gone").symlink_to("x")
    (source / "class-0").chmod(0o755)
    target.mkdir()
    (target / "data").mkdir()
    (target / "data/somebody's").write_bytes(b"precious")
    hostprep("stage", source, "--to", target, expect=5)
    assert hostprep("status")["datasets"] == []
    shutil.rmtree(target / "data")
    hostprep("stage", source, "--to", target, "--verify", "none")
    rewrite(source / "hard", b"new")
    os.mkdir(target / ".hostprep-data", 0o700)
    (target / ".hostprep-data/rest").write_bytes(b"of a killed run")
    assert hostprep("unstage", "data")["left"] == []
    assert os.listdir(target) == []


def test_two_volumes_do_not_share_a_name_s_record(source: Path, safe_dir: Path) -> None:
    one, two = safe_dir / "one", safe_dir / "two"
    hostprep("stage", source, *into(one))
    rewrite(source / "hard", b"new")
    hostprep("stage", source, *into(two))
    hostprep("unstage", one / "data")
    assert not os.path.exists(one)
    assert differences(source, two / "data", owners=True) == []
    hostprep("unstage", "data")
    assert not os.path.exists(two)


@pytest.mark.parametrize("where", ["", "class-1"])
def test_what_is_mounted_over_a_data_set_is_not_emptied(
    where: str, source: Path, target: Path
) -> None:
    """Through a bind mount it would be the source's own files, which are as they were staged."""
    hostprep("stage", source, "--to", target)
    staged = target / "data"
    subprocess.run(["mount", "--bind", source / where, staged / where], check=True)
    (source / "class-1/added").touch()
    before = snapshot(source)
    for line in (
        ("unstage", "data", "--dry-run"),
        ("unstage", "data"),
        ("stage", source, "--to", target),
    ):
        refused = hostprep(*line, expect=5)
        assert f"is mounted on {staged / where}".rstrip("/") in refused["error"]["message"]
        assert snapshot(source) == before
    subprocess.run(["umount", staged / where], check=True)
    assert hostprep("stage", source, "--to", target)["copied_files"] == 1
    assert hostprep("unstage", "data")["left"] == []
