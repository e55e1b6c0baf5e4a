"""The commands as somebody types them, on real mounts."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from hostprep.system.locks import lock
from hostprep.units import MOST_BYTES, MOST_INODES
from tests.kit.stagecraft import CONTAINED, HOSTPREP, NOBODY, hostprep, run_hostprep


def test_of_two_at_once_one_has_mounted_it(safe_dir: Path, own_state: Path) -> None:
    point = str(safe_dir / "v")
    line = [*HOSTPREP, "mount", point, "--size", "64M", "--fstab", "--reserve", "0", "--json"]
    with lock("volumes", purpose="a test"):
        runs = [
            subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for run in runs:  # each has planned by then
            assert run.stderr is not None and "waiting for" in run.stderr.readline()
    found = [json.loads(run.communicate(timeout=60)[0]) for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    idle, busy = sorted(found, key=lambda each: bool(each["changed"]))
    assert (idle["changed"], idle["changes"], busy["changed"]) == (False, [], True)
    assert len(busy["changes"]) == 3  # a directory, the mount, the line
    assert {each["reason"] for each in idle["unchanged"]} == {
        "it is mounted as wanted",
        "its line says the same already",
    }
    assert idle["volume"] == busy["volume"]


def test_a_volume_from_mount_to_unmount(safe_dir: Path, own_state: Path) -> None:
    point = str(safe_dir / "v")
    wanted = (
        "mount",
        point,
        "--size",
        "64M",
        "--fstab",
        "--owner",
        "65534:65534",
        "--reserve",
        "0",
    )
    first = hostprep(*wanted)
    assert first["changed"] is True
    volume = first["volume"]
    assert volume["path"] == point
    assert volume["size_bytes"] == 64 << 20
    assert (volume["uid"], volume["mode"]) == (65534, "0755")
    assert "size=65536k" in volume["options"].split(",")
    assert f"hostprep {point} tmpfs " in (own_state / "fstab").read_text()

    second = hostprep(*wanted)
    assert (second["changed"], second["changes"]) == (False, [])
    assert second["volume"] == volume

    (safe_dir / "v/file").write_bytes(bytes(1 << 20))
    grown = hostprep("mount", point, "--size", "128M", "--reserve", "0")
    assert grown["volume"]["size_bytes"] == 128 << 20
    assert grown["volume"]["used_bytes"] >= 1 << 20
    assert "--fstab brings it up to date" in grown["warnings"][0]

    preview = hostprep("mount", point, "--size", "32M", "--dry-run")
    assert (preview["changed"], preview["volume"]["size_bytes"]) == (False, 128 << 20)
    assert "shrink" in preview["changes"][0]["action"]

    assert hostprep("mount", point, "--size", "512K", expect=5)["error"]["code"] == "refused"
    held = hostprep("unmount", point, expect=5)["error"]
    assert "file" in held["message"] and f"unmount {point} --discard-data" in held["hint"]
    held = hostprep("unmount", point, "--fstab", expect=5)["error"]
    assert f"`hostprep unmount {point} --fstab --discard-data`" in held["hint"]
    planned = hostprep("unmount", point, "--discard-data", "--fstab", "--dry-run")
    assert planned["changed"] is False and os.path.ismount(point)
    gone = hostprep("unmount", point, "--discard-data", "--fstab")
    assert gone["changed"] is True and gone["volume"]["size_bytes"] == 128 << 20
    assert not os.path.exists(point)
    assert (own_state / "fstab").read_text() == ""
    assert hostprep("unmount", point, "--fstab")["changed"] is False


def test_one_that_lost_its_limit_is_refused_before_the_kernel_is_asked(safe_dir: Path) -> None:
    point = str(safe_dir / "v")
    line = ("mount", point, "--size", "64M", "--reserve", "0")
    hostprep(*line)
    subprocess.run(["mount", "-o", "remount,size=0", point], check=True)
    limit = subprocess.run(["mount", "-o", "remount,size=64M", point], capture_output=True)
    assert limit.returncode != 0  # the kernel sets none
    for words in (line, (*line, "--dry-run")):
        refused = hostprep(*words, expect=5)["error"]
        assert "no size limit" in refused["message"] and "unmount" in refused["hint"]
    hostprep("unmount", point)
    assert hostprep(*line)["volume"]["size_bytes"] == 64 << 20


def test_the_most_inodes_that_are_taken_are_taken_by_the_kernel(safe_dir: Path) -> None:
    point = str(safe_dir / "v")
    line = ("mount", point, "--size", "1M", "--force", "--inodes")
    assert hostprep(*line, str(MOST_INODES + 1), expect=2)["error"]["code"] == "usage"
    hostprep(*line, str(MOST_INODES))
    assert os.statvfs(point).f_files == MOST_INODES
    hostprep("unmount", point)
    largest = hostprep("mount", point, "--size", str(MOST_BYTES), "--force")
    assert largest["volume"]["size_bytes"] >= MOST_BYTES
    hostprep("unmount", point)


def test_a_relative_path_is_in_the_current_directory(
    safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(safe_dir)
    words = ("mount", "v", "--size", "1M", "--inodes", "1", "--reserve", "0")
    assert hostprep(*words)["volume"]["path"] == str(safe_dir / "v")
    shown = subprocess.run([*HOSTPREP, *words], capture_output=True, text=True, check=True).stdout
    assert ", 1 inode, mode" in shown
    assert hostprep("unmount", "./v")["changed"] is True
    assert not os.path.exists("v")


def test_a_tmpfs_of_somebody_elses_is_not_unmounted(safe_dir: Path) -> None:
    theirs = safe_dir / "their own; files"
    theirs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "theirs", theirs], check=True)
    refused = hostprep("unmount", str(theirs), "--discard-data", expect=5)["error"]
    assert "was not mounted by hostprep" in refused["message"]
    assert refused["hint"].endswith(f"umount {shlex.quote(str(theirs))}")
    assert os.path.ismount(theirs)


def test_too_large_is_refused_with_the_arithmetic_and_force_overrides_it(safe_dir: Path) -> None:
    point = str(safe_dir / "v")
    refused = hostprep("mount", point, "--size", "100%", expect=5)
    assert "reserved for the machine" in refused["error"]["message"]
    assert not os.path.exists(point)
    forced = hostprep("mount", point, "--size", "100%", "--force")
    assert "--force overrides" in forced["warnings"][0]
    assert forced["budget"]["fits"] is False
    hostprep("unmount", point)


def test_fewer_inodes_than_it_has_are_not_what_was_wanted(safe_dir: Path) -> None:
    mount = ("mount", str(safe_dir / "v"), "--size", "4M", "--reserve", "0", "--inodes")
    hostprep(*mount, "100")
    found = hostprep(*mount, "50")
    (left,) = found["unchanged"]
    assert left["subject"] == f"inodes of {safe_dir}/v" and found["volume"]["inodes"] == 100
    assert left["reason"].startswith("100 are allowed, more than the 50 that must fit at least;")
    (same,) = hostprep(*mount, "100")["unchanged"]
    assert same["reason"] == "it is mounted as wanted"


def test_what_was_changed_by_hand_is_named_before_the_line_follows_it(safe_dir: Path) -> None:
    """Mode, owner and huge are the admin's where nobody asks for them; inodes are hostprep's."""
    volume, fstab = safe_dir / "v", Path(os.environ["HOSTPREP_FSTAB"])
    mount = ("mount", volume, "--size", "4M", "--reserve", "0", "--fstab")
    hostprep(*mount)
    before = fstab.read_text()
    subprocess.run(["mount", "-o", "remount,nr_inodes=500", volume], check=True)
    volume.chmod(0o700)
    remounted, line = hostprep(*mount, "--dry-run")["changes"]
    assert remounted["action"] == "allow 65,536 inodes by a remount"
    assert line["reason"] == "it says mode=0755 instead of mode=0700"
    assert hostprep(*mount)["volume"]["inodes"] == 65536
    assert fstab.read_text() == before.replace("mode=0755", "mode=0700")
    hostprep(*mount, "--mode", "0755")
    assert fstab.read_text() == before


def test_an_ordinary_user_is_told_and_can_look_at_the_plan(safe_dir: Path) -> None:
    point = str(safe_dir / "v")
    state = {"HOSTPREP_STATE_DIR": "/nonexistent", "HOSTPREP_RUN_DIR": "/nonexistent"}
    wanted = ("mount", point, "--size", "64M", "--reserve", "0", "--json")
    done = run_hostprep(*wanted, prefix=NOBODY, env=state)
    assert done.returncode == 1, done.stderr
    assert "needs root" in json.loads(done.stdout)["error"]["message"]
    plan = run_hostprep(*wanted, "--dry-run", prefix=NOBODY, env=state)
    assert plan.returncode == 0, plan.stderr
    assert len(json.loads(plan.stdout)["changes"]) == 2
    assert not os.path.exists(point)


def test_root_that_may_not_mount_as_in_a_container_is_told_what_works_there(
    safe_dir: Path,
) -> None:
    point = str(safe_dir / "v")
    wanted = ("mount", point, "--size", "64M", "--reserve", "0")
    told = hostprep(*wanted, expect=1, prefix=CONTAINED)["error"]
    assert "needs CAP_SYS_ADMIN, which root does not have here" in told["message"]
    assert "nothing was changed" in told["message"]
    assert "--to /dev/shm" in told["hint"] and f"--tmpfs {point}:size=" in told["hint"]
    assert "emptyDir of medium Memory" in told["hint"]
    shown = run_hostprep(*wanted, "--dry-run", prefix=CONTAINED)
    assert shown.returncode == 0, shown.stderr
    assert f"root: mounting on {point} needs CAP_SYS_ADMIN" in shown.stdout
    assert told["hint"] in shown.stdout
    assert not os.path.exists(point)
    # A volume of the host that the container was given is used as it is, and not changed.
    hostprep(*wanted)
    assert hostprep(*wanted, prefix=CONTAINED)["changes"] == []
    grown = ("mount", point, "--size", "65M", "--reserve", "0")
    told = hostprep(*grown, expect=1, prefix=CONTAINED)["error"]
    assert "CAP_SYS_ADMIN" in told["message"]
    told = hostprep("unmount", point, expect=1, prefix=CONTAINED)["error"]
    assert "CAP_SYS_ADMIN" in told["message"] and "on the host itself" in told["hint"]
    shown = run_hostprep("unmount", point, "--dry-run", prefix=CONTAINED)
    assert f"root: unmounting {point} needs CAP_SYS_ADMIN" in shown.stdout
    assert told["hint"] in shown.stdout
    hostprep("unmount", point)


def test_the_place_that_is_proposed_instead_is_not_refused_as_well(safe_dir: Path) -> None:
    mnt = safe_dir.parent  # /mnt, of this mount namespace alone
    mnt.chmod(0o1777)
    try:
        refused = hostprep("mount", str(safe_dir / "v"), "--size", "16M", expect=5)["error"]
        assert "writable by everybody" in refused["message"]
        (place,) = (word for word in refused["hint"].split() if word.endswith("/NAME,"))
        hostprep("mount", place.rstrip(","), "--size", "16M", "--reserve", "0", "--dry-run")
    finally:
        mnt.chmod(0o755)


def test_a_dry_run_refuses_a_variable_that_the_run_would_refuse(
    safe_dir: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_RUN_DIR", "run")
    for words in (("--dry-run",), ()):
        error = hostprep("mount", str(safe_dir / "v"), "--size", "64M", *words, expect=2)["error"]
        assert "HOSTPREP_RUN_DIR is 'run'" in error["message"]
