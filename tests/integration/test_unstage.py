"""``unstage`` takes away what was staged, and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.converging.prune import UnstageTask
from hostprep.errors import HostprepError, Refused
from hostprep.staging.observer import Silent
from hostprep.staging.publishing.publish import check_places
from hostprep.staging.publishing.removing import remove_hidden
from hostprep.staging.record.records import Record, all_records, save_record
from hostprep.staging.unstage import unstage
from hostprep.staging.unstage_plan import find_record, plan_unstage
from hostprep.system.locks import lock
from tests.kit.compare import differences
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.stagecraft import (
    HOSTPREP,
    hostprep,
    make_private,
    mount,
    only_dataset,
    rewrite,
    run_hostprep,
    snapshot,
    unmount,
)

pytestmark = pytest.mark.usefixtures("state")


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


def test_a_name_needs_no_current_directory(
    source: Path, target: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)
    (safe_dir / "gone").mkdir()
    monkeypatch.chdir(safe_dir / "gone")
    (safe_dir / "gone").rmdir()
    assert [each["name"] for each in hostprep("status")["datasets"]] == ["data"]
    assert hostprep("wait", "data")["datasets"][0]["ready"] is True
    for word, words in (("./data", "directory was removed"), ("date", "no data set 'date'")):
        assert words in hostprep("unstage", word, expect=2)["error"]["message"]
    assert hostprep("unstage", "data")["removed_entries"] == 122 + 13


def test_what_root_staged_is_not_a_users_to_remove(
    source: Path, target: Path, state: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)
    before = snapshot(target)
    monkeypatch.setattr("hostprep.system.state.SYSTEM_STATE_DIR", state)
    monkeypatch.delenv("HOSTPREP_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(safe_dir / "home"))
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    for words in (["data"], ["data", "--dry-run"], ["data", "--forget"]):
        found = hostprep("unstage", *words, expect=1)
        assert "was staged by root; nothing was changed" in found["error"]["message"]
        assert "sudo" in found["error"]["hint"]
    assert snapshot(target) == before


@pytest.mark.parametrize("left", [None, 0, 2], ids=["missing", "empty", "cut"])
def test_a_damaged_manifest_is_named_and_nobody_blamed(
    left: int | None, source: Path, target: Path, state: Path
) -> None:
    hostprep("stage", source, "--to", target)
    lose_lines(state, left)
    before = snapshot(target), snapshot(state)
    found_by_words = "missing or holds nothing" if not left else "is damaged: it has"
    for words in (
        ("unstage", "data"),
        ("unstage", "data", "--dry-run"),
        ("stage", source, "--to", target),
        ("stage", source, "--to", target, "--partial"),
        ("stage", source, "--to", target, "--dry-run"),
    ):
        error = hostprep(*words, expect=5)["error"]
        assert found_by_words in error["message"] and "nothing was changed" in error["message"]
        assert f"move {target}/data away" in error["hint"]
        assert (snapshot(target), snapshot(state)) == before
    found = only_dataset()
    assert found_by_words in found["reason"] and "`hostprep stage` it again" in found["hint"]
    assert "taken" not in found["reason"], "the files on the target are not somebody else's"
    (target / "data").rename(target / "away")
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []
    lose_lines(state, left)
    (target / "data").rename(target / "away too")
    hostprep("unstage", "data")
    assert hostprep("status")["datasets"] == []


def test_a_line_that_cannot_be_read_is_no_word_of_others(
    source: Path, target: Path, state: Path
) -> None:
    hostprep("stage", source, "--to", target)
    (manifest,) = state.glob("datasets/*/manifest.jsonl")
    manifest.write_bytes(manifest.read_bytes().replace(b'"f"', b'"f', 1))
    before = snapshot(target), snapshot(state)
    error = hostprep("unstage", "data", expect=5)["error"]
    assert "the manifest of data is damaged: it has" in error["message"]
    assert (snapshot(target), snapshot(state)) == before


def test_what_a_damaged_manifest_lacks_and_the_target_too_is_staged_again(
    source: Path, target: Path, state: Path
) -> None:
    hostprep("stage", source, "--to", target)
    lose_lines(state, 0)
    for entry in (target / "data").iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []


def test_files_of_others_are_theirs_beside_a_whole_manifest(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    (target / "data/class-0/added").write_bytes(b"somebody's")
    (source / "new").write_bytes(b"new")
    hostprep("stage", source, "--to", target)
    found = hostprep("unstage", "data", expect=1)
    assert found["left"] == ["class-0/added"]


def lose_lines(state: Path, left: int | None) -> None:
    """Leave so many lines of the manifest, with None no file."""
    (manifest,) = state.glob("datasets/*/manifest.jsonl")
    if left is None:
        manifest.unlink()
    else:
        lines = manifest.read_bytes().splitlines(keepends=True)
        manifest.write_bytes(b"".join(lines[:left]))


def test_two_of_one_name_need_the_path(source: Path, target: Path, safe_dir: Path) -> None:
    hostprep("stage", source, "--to", target)
    hostprep("stage", source, "--to", safe_dir / "slow")
    found = hostprep("unstage", "data", expect=2)
    assert str(target / "data") in found["error"]["hint"]
    hostprep("unstage", target / "data")
    assert differences(source, safe_dir / "slow/data", owners=True) == []
    hostprep("unstage", "data")
    assert os.listdir(safe_dir / "slow") == []


def test_what_others_added_or_changed_stays_and_is_named(
    source: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hostprep.cli.unstage._MOST_LISTED", 3)
        assert run(["unstage", "data", "--dry-run"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("would stay") for line in told) == 3 and "... and 1 more" in told
    assert told[-1] == "dry run: nothing was changed"
    assert differences(source, staged, owners=True) != [] and (staged / "hard").exists()
    before = len(list(staged.rglob("*")))
    found = hostprep("unstage", "data", expect=1)
    assert set(found["left"]) == kept
    assert (
        found["error"]["message"]
        == "what was added or changed since it was staged was left: 4 entries."
    )
    assert (found["volume"], found["volume_kept_because"]) == (None, None)
    removed = before - len(list(staged.rglob("*")))  # not the directories around what stays
    assert found["removed_entries"] == removed and found["changed"] is True
    # And no more: by its manifest the same command goes on.
    assert [each["action"] for each in planned["changes"]] == [f"remove {removed} entries"]
    again = hostprep("unstage", "data", expect=1)
    assert (again["removed_entries"], again["changed"]) == (0, False)
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


def test_a_dry_run_tells_each_step_and_takes_none(source: Path, volume: Path) -> None:
    hostprep("stage", source, *into(volume))
    (make_private(volume) / "rest").write_bytes(b"of a killed run")
    before = snapshot(volume)

    def steps() -> list[tuple[str, str]]:
        changes = hostprep("unstage", "data", "--dry-run")["changes"]
        return [(change["subject"], change["action"]) for change in changes]

    staged = str(volume / "data")
    copies = (staged, f"remove {122 + 13} entries")
    unfinished, unmount = (staged, "remove unfinished copies"), (str(volume), "unmount")
    forget = ("data", "forget its manifest")
    assert steps() == [copies, unfinished, unmount, forget]
    assert snapshot(volume) == before
    (volume / "somebody's").touch()
    assert steps() == [copies, unfinished, forget]
    shutil.rmtree(volume / ".hostprep-data")
    assert steps() == [copies, forget]
    subprocess.run(["umount", volume], check=True)
    assert steps() == [forget]


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


def test_it_is_told_that_the_spec_names_the_volume(
    source: Path, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "spec.yml"
    monkeypatch.setenv("HOSTPREP_SPEC", str(spec))
    for path, named in ((volume, True), (tmp_path / "another", False)):
        spec.write_text(f"volumes: [{{path: {path}, size: 64M}}]\n")
        hostprep("stage", source, *into(volume))
        for words in (["--dry-run"], []):
            said = run_hostprep("unstage", "data", *words).stderr
            assert (f"names the volume {volume}, which" in said) is named
            assert (f"`hostprep apply {spec}` mounts it again" in said) is named
    spec.write_text("volumes: nonsense")
    hostprep("stage", source, *into(volume))
    assert "spec" not in run_hostprep("unstage", "data").stderr


def test_what_cannot_be_read_afterwards_takes_nothing_back(
    source: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, *into(volume))

    def broken() -> None:
        raise HostprepError("/proc/self/mountinfo cannot be read: Too many open files.")

    monkeypatch.setattr("hostprep.volumes.status.volume_statuses", broken)
    assert hostprep("unstage", "data")["unmounted"] is True


def test_a_volume_with_a_file_of_others_stays(source: Path, volume: Path) -> None:
    hostprep("stage", source, *into(volume))
    (volume / "somebody's").write_bytes(b"precious")
    found = hostprep("unstage", "data")
    assert found["unmounted"] is False and "somebody's" in found["volume_kept_because"]
    assert (volume / "somebody's").read_bytes() == b"precious"
    assert os.listdir(volume) == ["somebody's"]


def test_a_volume_stays_with_what_others_added_to_a_data_set(source: Path, volume: Path) -> None:
    hostprep("stage", source, *into(volume))
    (volume / "data/notes").write_bytes(b"somebody's")
    found = hostprep("unstage", "data", expect=1)
    assert found["unmounted"] is False and "others" in found["volume_kept_because"]
    said = (
        "what was added or changed since it was staged was left, and the volume with it: 1 entry."
    )
    assert found["error"]["message"] == said
    # What to do with them stands right behind those that are named.
    lines = run_hostprep("unstage", "data").stderr.splitlines()
    named, hint, volume_stays = lines
    assert named == "hostprep: left alone, added or changed since it was staged: notes"
    assert hint == "  -> move these away and run the same command again"
    assert volume_stays.startswith(f"hostprep: the volume {volume} stays: ")


def test_a_volume_that_hostprep_did_not_mount_stays(source: Path, safe_dir: Path) -> None:
    point = safe_dir / "theirs"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "x", point], check=True)
    hostprep("stage", source, "--to", point)
    found = hostprep("unstage", "data")
    assert found["unmounted"] is None and os.path.ismount(point)


def test_what_becomes_of_the_line_in_fstab_is_in_the_plan_and_in_the_result(
    source: Path, volume: Path
) -> None:
    fstab = Path(os.environ["HOSTPREP_FSTAB"])
    line = {"subject": "fstab", "action": "remove the volume's line", "reason": "asked for"}
    for unmounted in (False, True):  # as after a reboot, where only its record is left
        hostprep("stage", source, *into(volume, "--fstab"))
        if unmounted:
            subprocess.run(["umount", volume], check=True)
        assert line in hostprep("unstage", "data", "--fstab", "--dry-run")["changes"]
        assert line not in hostprep("unstage", "data", "--dry-run")["changes"]
        assert hostprep("unstage", "data", "--fstab")["fstab_line_removed"] is True
        assert fstab.read_text() == ""


@pytest.mark.parametrize("extra", [(), ("--dry-run",)])
def test_fstab_has_nothing_to_do_with_what_lies_in_no_volume(
    source: Path, target: Path, extra: tuple[str, ...]
) -> None:
    hostprep("stage", source, "--to", target)
    error = hostprep("unstage", "data", "--fstab", *extra, expect=2)["error"]
    assert f"{target}/data lies in a directory" in error["message"] and error["hint"]
    assert (target / "data").exists()


def test_a_line_in_fstab_that_is_somebody_else_s_is_not_said_to_be_gone(
    source: Path, volume: Path
) -> None:
    hostprep("stage", source, *into(volume))
    theirs = f"tmpfs {volume} tmpfs size=1G 0 0\n"
    Path(os.environ["HOSTPREP_FSTAB"]).write_text(theirs)
    gone = run_hostprep("unstage", "data", "--fstab")
    assert gone.returncode == 0 and gone.stdout.endswith(f"{volume}: unmounted\n")
    assert Path(os.environ["HOSTPREP_FSTAB"]).read_text() == theirs


def test_a_volume_in_use_stays_and_the_data_set_goes(source: Path, volume: Path) -> None:
    hostprep("stage", source, *into(volume))
    with subprocess.Popen(["sleep", "60"], cwd=volume) as user:
        try:
            found = hostprep("unstage", "data")
        finally:
            user.kill()
    why = found["volume_kept_because"]
    assert found["unmounted"] is False and "sleep" in why
    assert "othing was changed" not in why and why.endswith(f": hostprep unmount {volume}")
    assert os.path.ismount(volume) and os.listdir(volume) == []


@pytest.mark.parametrize("extra", [(), ("--fstab",)])
def test_a_volume_that_the_kernel_does_not_unmount_is_a_failure(
    extra: tuple[str, ...],
    source: Path,
    volume: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hostprep("stage", source, *into(volume, "--fstab"))
    fstab = Path(os.environ["HOSTPREP_FSTAB"])
    before = fstab.read_text()
    umount = tmp_path / "umount"
    umount.write_text(f"#!/bin/sh\necho 'umount: {volume}: Input/output error.' >&2\nexit 32\n")
    umount.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        found = hostprep("unstage", "data", *extra, expect=1)
        alone = hostprep("unmount", volume, *extra, expect=1)["error"]
    error = found["error"]
    assert error["message"].startswith(f"the copies are gone, but the volume {volume} stays: ")
    for each in (error, alone):
        assert "Input/output error" in each["message"] and "uses" not in each["hint"]
    assert " ".join(["hostprep unmount", str(volume), *extra]) in error["hint"]
    assert (found["unmounted"], found["removed_entries"]) == (False, 122 + 13)
    assert fstab.read_text() == before and os.listdir(volume) == []


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
    (make_private(target) / "rest").write_bytes(b"of a killed run")
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


@pytest.fixture
def copying(source: Path, target: Path) -> Record:
    """The record of a data set that another run is about to publish."""
    hostprep("stage", source, "--to", target)
    (record,) = all_records()
    hostprep("unstage", "data")
    record = dataclasses.replace(record, phase="copying")
    save_record(record, durable=False)
    return record


def while_waiting(monkeypatch: pytest.MonkeyPatch, where: str, *words: str | Path) -> None:
    """Let another run do ``words`` and give the lock up, where the next one waits for it."""

    @contextlib.contextmanager
    def waits(name: str, **more: Any) -> Iterator[None]:
        monkeypatch.setattr(where, lock)
        assert run_hostprep(*words).returncode == 0
        with lock(name, **more):
            yield

    monkeypatch.setattr(where, waits)


def test_what_does_not_answer_is_forgotten_without_being_asked(
    source: Path, safe_dir: Path
) -> None:
    (safe_dir / "beneath").mkdir()
    with failing_fs(safe_dir / "beneath", where=safe_dir) as fs:
        hostprep("stage", source, "--to", fs.mount)
        fs.tell(Rule("*", "getattr", None, hang_seconds=60))
        subprocess.run([*HOSTPREP, "unstage", "data", "--forget"], check=True, timeout=40)
    assert hostprep("status")["datasets"] == []


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("words", [("--dry-run",), ()])
def test_who_forgets_a_copy_that_is_there_is_told_what_comes_of_it(
    words: tuple[str, ...],
    source: Path,
    target: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    there: bool,
) -> None:
    hostprep("stage", source, "--to", target)
    if not there:
        shutil.rmtree(target / "data")
    assert run(["unstage", "data", "--forget", *words]) == 0
    told = f"what lies at {target / 'data'} stays, and is no longer known as hostprep's"
    assert (told in capsys.readouterr().err) is there
    assert (target / "data").exists() is there


def test_who_forgets_unfinished_copies_is_told_of_them_and_not_of_what_is_somebody_else_s(
    copying: Record, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (target / ".hostprep-data").mkdir()
    (target / "data").mkdir()
    assert run(["unstage", "data", "--forget"]) == 0
    said = capsys.readouterr().err
    assert f"what lies at {target / '.hostprep-data'} stays" in said
    assert f"{target / 'data'} stays" not in said


def test_what_was_staged_while_it_waited_is_removed_and_not_forgotten(
    copying: Record, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_waiting(monkeypatch, "hostprep.system.locks.lock", "stage", source, "--to", target)
    assert hostprep("unstage", "data")["removed_entries"] == 122 + 13
    assert os.listdir(target) == []
    assert hostprep("status")["datasets"] == []


@pytest.mark.parametrize("words", [(), ("--forget",)])
def test_what_was_unstaged_while_it_waited_is_unstaged(
    words: tuple[str, ...],
    source: Path,
    target: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostprep("stage", source, "--to", target)
    while_waiting(monkeypatch, "hostprep.system.locks.lock", "unstage", "data")
    found = hostprep("unstage", "data", *words)
    told = {key: found[key] for key in ("dataset", "target", "changed", "removed_entries", "left")}
    assert told == {
        "dataset": "data",
        "target": str(target / "data"),
        "changed": False,
        "removed_entries": 0,
        "left": [],
    }
    hostprep("stage", source, "--to", target)
    while_waiting(monkeypatch, "hostprep.system.locks.lock", "unstage", "data")
    assert run(["unstage", "data", *words]) == 0
    said = capsys.readouterr()
    assert said.out == f"{target / 'data'}: unstaged meanwhile by another run\n"
    assert os.listdir(target) == [] and hostprep("status")["datasets"] == []
    # Before it waited it did not know it either: that is a mistake.
    assert "knows no data set" in hostprep("unstage", "data", expect=2)["error"]["message"]


def test_what_the_other_run_was_not_asked_for_is_done(
    source: Path, safe_dir: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = safe_dir / "v"
    hostprep("stage", source, "--to-tmpfs", "64M", "--at", volume, "--reserve", "0", "--fstab")
    while_waiting(monkeypatch, "hostprep.system.locks.lock", "unstage", "data")
    found = hostprep("unstage", "data", "--fstab")
    assert (found["changed"], found["removed_entries"]) == (True, 0)
    assert str(volume) not in (own_state / "fstab").read_text()
    assert not volume.exists() and hostprep("status")["volumes"] == []


def test_prune_removes_what_was_staged_while_it_waited(
    copying: Record, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_waiting(monkeypatch, "hostprep.converging.prune.lock", "stage", source, "--to", target)
    UnstageTask(copying).carry_out(Silent())
    assert os.listdir(target) == []
    UnstageTask(copying).carry_out(Silent())  # and what is gone by now is gone
    assert all_records() == ()


def test_a_private_directory_that_somebody_else_made_is_not_removed(
    source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    theirs = target / ".hostprep-data"
    theirs.mkdir()
    (theirs / "file").write_bytes(b"somebody's")
    os.chown(theirs, 65534, 65534)
    before = snapshot(target)
    for words in (["data", "--dry-run"], ["data"]):
        found = hostprep("unstage", *words, expect=5)
        assert "not a private directory of this user" in found["error"]["message"]
    assert snapshot(target) == before
    shutil.rmtree(theirs)
    theirs.symlink_to("data")
    assert "nothing was changed" in hostprep("unstage", "data", expect=5)["error"]["message"]
    theirs.unlink()
    hostprep("unstage", "data")
    assert os.listdir(target) == []


@pytest.fixture
def immutable(safe_dir: Path) -> Iterator[Callable[[Path], None]]:
    """Return what makes a file or a directory immutable, until the test is over."""
    made: list[Path] = []

    def make(path: Path) -> None:
        done = subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"chattr +i does not work here: {done.stderr.decode().strip()}")
        made.append(path)

    yield make
    for path in (*made, *safe_dir.rglob("*")):
        if path.is_dir() or (path.is_file() and not path.is_symlink()):
            subprocess.run(["chattr", "-i", str(path)], capture_output=True, check=False)


def test_what_cannot_be_removed_is_told_and_stays_on_record(
    source: Path, target: Path, immutable: Callable[[Path], None]
) -> None:
    hostprep("stage", source, "--to", target)
    held = target / "data/class-3/images/002.bin"
    immutable(held)
    told = hostprep("unstage", "data", expect=1)["error"]
    assert "could not be removed: Operation not permitted" in told["message"]
    shown = re.search("`(lsattr .*?)`", told["hint"])
    assert shown is not None and "(chattr -ia)" in told["hint"]
    listed = subprocess.run(shown[1].split(), capture_output=True, text=True, check=True).stdout
    (line,) = re.findall(r"^[-\w]*i[-\w]* (/.*)$", listed, re.M)
    assert line.endswith("class-3/images/002.bin")
    assert [each["name"] for each in hostprep("status")["datasets"]] == ["data"]
    (left,) = target.rglob("class-3/images/002.bin")
    subprocess.run(["chattr", "-i", str(left)], check=True)
    hostprep("unstage", "data")
    assert os.listdir(target) == [] and hostprep("status")["datasets"] == []


def test_what_cannot_be_replaced_is_told_by_an_update(
    source: Path, target: Path, immutable: Callable[[Path], None]
) -> None:
    hostprep("stage", source, "--to", target)
    held = target / "data/class-3/images/002.bin"
    immutable(held)
    (source / "class-3/images/002.bin").write_bytes(b"new")
    told = hostprep("stage", source, "--to", target, expect=1)["error"]
    assert f"Operation not permitted (002.bin, below {target})" in told["message"]
    assert f"`lsattr -Ra {target}` shows" in told["hint"]
    subprocess.run(["chattr", "-i", str(held)], check=True)
    assert hostprep("stage", source, "--to", target)["verified"]
    assert differences(source, target / "data", owners=True) == []


def test_what_cannot_be_moved_stays_as_open_as_it_was(
    source: Path, target: Path, immutable: Callable[[Path], None]
) -> None:
    source.chmod(0o555)
    hostprep("stage", source, "--to", target)
    make_private(target)  # as an interrupted update leaves it
    before = snapshot(target)
    immutable(target)
    assert "Operation not permitted" in hostprep("unstage", "data", expect=1)["error"]["message"]
    assert snapshot(target) == before


def make_read_only(state: Path) -> None:
    subprocess.run(["mount", "--bind", str(state), str(state)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(state)], check=True)


def test_no_copy_is_removed_where_its_record_cannot_be(
    source: Path, target: Path, state: Path
) -> None:
    hostprep("stage", source, "--to", target)
    make_read_only(state)
    before = snapshot(target)
    for words in ((), ("--dry-run",), ("--forget",)):
        told = hostprep("unstage", "data", *words, expect=5)["error"]["message"]
        assert "could not be removed: Read-only file system; nothing was changed" in told
    assert snapshot(target) == before
    subprocess.run(["umount", str(state)], check=True)
    hostprep("unstage", "data")
    assert hostprep("status")["datasets"] == []


def test_a_record_that_cannot_be_removed_once_the_copies_are_gone_is_told(
    source: Path, target: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_and_spoil(*given: Any) -> tuple[str, ...]:
        left = remove_hidden(*given)
        make_read_only(state)
        return left

    hostprep("stage", source, "--to", target)
    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.unstage.remove_hidden", remove_and_spoil)
        told = hostprep("unstage", "data", expect=1)["error"]["message"]
    assert "Read-only file system; its copies are gone" in told and os.listdir(target) == []
    subprocess.run(["umount", str(state)], check=True)
    hostprep("unstage", "data")
    assert hostprep("status")["datasets"] == []


def test_a_record_s_empty_folder_is_in_nobodys_way(
    source: Path, target: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rmdir", busy)
        hostprep("unstage", "data")
    assert hostprep("status")["datasets"] == []


def test_what_is_put_where_copies_were_is_not_hostpreps(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    theirs = target / "data/class-1/images/notes"
    theirs.write_bytes(b"somebody's")
    hostprep("unstage", "data", expect=1)
    new = target / "data/class-1/images/003.bin"
    new.write_bytes(b"somebody's too")
    found = hostprep("stage", source, "--to", target, expect=1)
    assert "class-1/images/003.bin" in str(found["skipped"])
    assert new.read_bytes() == b"somebody's too"
    assert set(hostprep("unstage", "data", expect=1)["left"]) == {
        "class-1/images/003.bin",
        "class-1/images/notes",
    }
    new.unlink()
    hostprep("stage", source, "--to", target)
    theirs.unlink()
    os.utime(theirs.parent, ns=(0, (source / "class-1/images").stat().st_mtime_ns))
    assert differences(source, target / "data", owners=True) == []


def test_directories_deeper_than_any_path(source: Path, target: Path) -> None:
    descriptor = os.open(source, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    try:
        hostprep("stage", source, "--to", target)
        hostprep("unstage", "data")
        assert os.listdir(target) == []
        hostprep("stage", source, "--to", target)
        (target / "data/d/d/theirs").write_bytes(b"somebody's")
        assert hostprep("unstage", "data", expect=1)["left"] == ["d/d/theirs"]
        assert os.listdir(target / "data/d/d") == ["theirs"]
    finally:
        subprocess.run(["rm", "-r", str(source)], check=True)


@pytest.fixture
def half_updated(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy whose update was stopped when all was on record, and nothing in place."""

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    hostprep("stage", source, "--to", target)
    rewrite(source / "class-1/images/003.bin", b"newer")
    (source / "class-2/images/004.bin").unlink()
    (source / "class-2/images/004.bin").mkdir()
    (source / "link").unlink()
    (source / "link").write_bytes(b"a file now")
    shutil.rmtree(source / "class-5")
    (source / "class-5").write_bytes(b"a file now")
    (source / "class-1/added").write_bytes(b"new")
    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.stage.publish_update", stop)
        hostprep("stage", source, "--to", target, expect=130)
    return target / "data"


def test_what_an_update_had_yet_to_replace_is_removed(half_updated: Path) -> None:
    assert hostprep("unstage", "data")["left"] == []
    assert os.listdir(half_updated.parent) == []


def test_what_an_update_had_yet_to_replace_may_change_again(
    half_updated: Path, source: Path
) -> None:
    for path in (source / "class-1/images/003.bin", source / "link"):
        path.unlink()
        path.mkdir()
    (source / "class-2/images/004.bin").rmdir()
    (source / "class-5").unlink()
    assert hostprep("stage", source, "--to", half_updated.parent)["left"] == []
    assert differences(source, half_updated, owners=True) == []


@pytest.mark.parametrize("copies", ["left", "gone"])
def test_what_somebody_puts_where_an_update_was_to_add_is_theirs(
    copies: str, half_updated: Path, source: Path
) -> None:
    theirs = half_updated / "class-1/added"
    theirs.write_bytes(b"somebody's")
    if copies == "gone":  # as on a disk after a reboot
        shutil.rmtree(half_updated.parent / ".hostprep-data")
    found = hostprep("stage", source, "--to", half_updated.parent, expect=1)
    assert [item["path"] for item in found["skipped"] if item["failed"]] == ["class-1/added"]
    assert theirs.read_bytes() == b"somebody's" and found["published"] is False
    partial = run_hostprep("stage", source, "--to", half_updated.parent, "--partial")
    assert partial.returncode == 0 and theirs.read_bytes() == b"somebody's"
    assert (half_updated / "class-1/images/003.bin").read_bytes() == b"newer"
    assert hostprep("unstage", "data", expect=1)["left"] == ["class-1/added"]


def test_what_somebody_puts_there_while_it_is_copied_is_theirs_too(
    half_updated: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = half_updated / "class-1/added"

    def check(*args: Any) -> None:
        theirs.write_bytes(b"somebody's")
        check_places(*args)

    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.stage.check_places", check)
        told = hostprep("stage", source, "--to", half_updated.parent, expect=1)["error"]
    assert "class-1/added appeared on the target" in told["message"]
    assert theirs.read_bytes() == b"somebody's"
    theirs.unlink()
    hostprep("stage", source, "--to", half_updated.parent)
    assert differences(source, half_updated, owners=True) == []


def test_what_an_update_had_added_by_then_is_ours(half_updated: Path, source: Path) -> None:
    """It was killed right after that rename; then the source changes once more."""
    prepared = half_updated.parent / ".hostprep-data/tree/class-1/added"
    prepared.rename(half_updated / "class-1/added")
    rewrite(source / "class-1/added", b"newer still")
    hostprep("stage", source, "--to", half_updated.parent)
    assert differences(source, half_updated, owners=True) == []


def test_so_is_a_directory_that_it_had_made(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    hostprep("stage", source, "--to", target)
    (source / "new/deep").mkdir(parents=True)
    (source / "new/deep/file").write_bytes(b"new")
    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.stage.finish_directories", stop)
        hostprep("stage", source, "--to", target, expect=130)
    assert (target / "data/new/deep/file").exists()
    shutil.rmtree(source / "new")
    assert hostprep("stage", source, "--to", target)["left"] == []
    assert differences(source, target / "data", owners=True) == []


def test_nothing_is_removed_where_the_line_in_fstab_could_not_be(
    source: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise HostprepError("fstab cannot be replaced and is as it was")

    hostprep("stage", source, *into(volume, "--fstab"))
    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.unstage.check_line_removal", refuse)
        hostprep("unstage", "data", "--fstab", expect=1)
    assert differences(source, volume / "data", owners=True) == []
    assert hostprep("unstage", "data", "--fstab")["unmounted"] is True


def test_a_target_that_is_read_only_is_refused(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    mount("--bind", target, target)
    mount("-o", "remount,bind,ro", target)
    told = hostprep("unstage", "data", expect=5)["error"]["message"]
    assert "is mounted read-only; nothing was changed" in told
    unmount(target)
    assert hostprep("unstage", "data")["left"] == []


def test_nothing_is_hidden_in_a_directory_of_somebody_else(source: Path, target: Path) -> None:
    """Who can write the target makes one of that name once it was found that there is none."""
    hostprep("stage", source, "--to", target)
    plan = plan_unstage(find_record("data"), fstab=False)
    (target / ".hostprep-data").mkdir(mode=0o755)
    os.chown(target / ".hostprep-data", 65534, 65534)
    before = snapshot(target)
    with pytest.raises(Refused, match="not a private directory of this user"):
        unstage(plan, Silent())
    assert snapshot(target) == before


@pytest.fixture
def cut_short(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return what somebody added to a copy right before it was hidden, by a run that then ended."""
    hostprep("stage", source, "--to", target)
    plan = plan_unstage(find_record("data"), fstab=False)
    (target / "data/class-1/theirs").write_bytes(b"hours of work")

    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.unstage.remove_hidden", stop)
        with pytest.raises(KeyboardInterrupt):
            unstage(plan, Silent())
    assert os.listdir(target) == [".hostprep-data"]
    return target / "data/class-1/theirs"


def test_what_was_added_to_what_a_killed_run_hid_is_put_back(cut_short: Path) -> None:
    target = cut_short.parents[2]
    before = snapshot(target)
    planned = hostprep("unstage", "data", "--dry-run")
    assert planned["left"] == ["class-1/theirs"] and snapshot(target) == before
    (target.parent / "none.yml").write_text("{}\n")
    pruned = run_hostprep("apply", target.parent / "none.yml", "--prune", "--yes")
    assert pruned.returncode == 5 and f"`hostprep unstage {target}/data`" in pruned.stderr
    assert snapshot(target) == before
    found = hostprep("unstage", "data", expect=1)
    assert found["left"] == ["class-1/theirs"] and found["removed_entries"] == 122 + 12
    assert [path for path in target.rglob("*") if path.is_file()] == [cut_short]
    assert cut_short.read_bytes() == b"hours of work"
    assert os.listdir(target) == ["data"]
    cut_short.unlink()
    hostprep("unstage", "data")
    assert os.listdir(target) == []


@pytest.mark.parametrize("place", ["free", "taken", "forgotten"])
def test_what_a_killed_run_hid_is_not_gone_over_by_stage(
    place: str, cut_short: Path, source: Path
) -> None:
    target = cut_short.parents[2]
    if place == "taken":
        (target / "data").mkdir()
    if place == "forgotten":
        hostprep("unstage", "data", "--forget")
    before = snapshot(target)
    told = hostprep("stage", source, "--to", target, expect=5)["error"]
    assert "theirs" in told["message"] or place == "forgotten"
    assert ".hostprep-data/removing" in told["message"] and snapshot(target) == before
    if place == "taken":
        hostprep("unstage", "data", expect=5)
        assert snapshot(target) == before
    (target / ".hostprep-data/removing").rename(target / "moved away")
    if place != "taken":
        hostprep("stage", source, "--to", target)
    assert (target / "moved away/class-1/theirs").read_bytes() == b"hours of work"


def test_what_was_hidden_and_is_ours_alone_is_no_hindrance(
    cut_short: Path, source: Path, target: Path
) -> None:
    (target / ".hostprep-data/removing/class-1/theirs").unlink()
    shutil.rmtree(target / ".hostprep-data/removing/class-2")
    hostprep("stage", source, "--to", target)
    assert os.listdir(target) == ["data"]
    assert differences(source, target / "data", owners=True) == []


def test_what_is_mounted_in_it_after_the_plan_is_not_removed(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    plan = plan_unstage(find_record("data"), fstab=False)
    before = snapshot(source)
    point = target / "data/class-1"
    subprocess.run(["mount", "--bind", source / "class-1", point], check=True)
    try:
        with pytest.raises(Refused, match="is mounted on"):
            unstage(plan, Silent())
        assert snapshot(source) == before
    finally:
        subprocess.run(["umount", point], check=True)
    hostprep("unstage", "data")
    assert os.listdir(target) == []
