"""What fails beside the volume: fstab, our record, systemd. What was changed by then is told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.host.mounts import read_mounts
from hostprep.staging.publishing.removing import remove_hidden
from hostprep.volumes import fstab_file
from tests.kit.stagecraft import (
    HOSTPREP,
    NOBODY,
    hostprep,
    is_mounted,
    make_source,
    run_hostprep,
    snapshot,
)

MIB = 1 << 20


@pytest.fixture
def fstab(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an fstab on a file system of its own."""
    folder = safe_dir / "etc"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "etc", folder], check=True)
    (folder / "fstab").write_bytes(b"# theirs\n")
    monkeypatch.setenv("HOSTPREP_FSTAB", str(folder / "fstab"))
    return folder / "fstab"


def read_only(fstab: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", fstab.parent], check=True)


def full(fstab: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        (fstab.parent / "filler").write_bytes(bytes(2 * MIB))


def immutable(fstab: Path) -> None:
    done = subprocess.run(["chattr", "+i", fstab], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"chattr +i does not work here: {done.stderr.strip()}")


def stand_in(program: Path, script: str) -> None:
    """Write a shell script that takes a program's place where its folder leads PATH."""
    program.write_text(script)
    program.chmod(0o755)


def objecting_findmnt(folder: Path, point: Path) -> None:
    """Put a findmnt into ``folder`` that has something against each new fstab."""
    said = f"{point}\\n   [E] odd\\n"
    stand_in(folder / "findmnt", f'#!/bin/sh\ncase "$*" in *.hostprep-*) printf "{said}";; esac\n')


@pytest.mark.parametrize("spoil", [read_only, full, immutable])
def test_an_fstab_that_cannot_be_written_is_found_before_the_volume_is_touched(
    spoil: Callable[[Path], None], fstab: Path, safe_dir: Path
) -> None:
    new, old, spec = safe_dir / "a/v", safe_dir / "old", safe_dir / "lab.yml"
    source = make_source(safe_dir / "data", directories=2)
    spec.write_text(f"volumes: [{{path: {new}, size: 16M}}]\n")
    room = ("--size", "16M", "--reserve", "0")
    hostprep("mount", old, *room, "--fstab")
    kept = fstab.read_bytes()
    # Where fstab need not be touched it is nobody's concern.
    idle = (("mount", old, *room, "--fstab", "--dry-run"), ("unmount", old, "--dry-run"))
    spoil(fstab)
    try:
        for line in (
            ("mount", new, *room, "--fstab"),
            ("mount", old, "--size", "32M", "--reserve", "0", "--fstab"),
            ("unmount", old, "--fstab"),
            ("stage", source, "--to-tmpfs", "16M", "--at", new, "--reserve", "0", "--fstab"),
        ):
            refused = hostprep(*line, expect=5)["error"]
            assert f"{fstab} cannot be replaced and is as it was" in refused["message"]
            planned = run_hostprep(*line, "--dry-run")
            assert planned.returncode == 5 and refused["message"] in planned.stderr
        for words in (("plan",), ("apply", "--yes")):
            (told,) = hostprep(*words, spec, "--reserve", "0", expect=5)["refusals"]
            assert told["message"] == refused["message"]
        for line in idle:
            hostprep(*line)
        env = {"HOSTPREP_STATE_DIR": "/nonexistent", "HOSTPREP_RUN_DIR": "/nonexistent"}
        words = ("mount", new, *room, "--fstab", "--dry-run")
        as_user = run_hostprep(*words, prefix=NOBODY, env=env)
        assert as_user.returncode == 0, as_user.stderr
    finally:
        subprocess.run(["chattr", "-i", fstab], capture_output=True, check=False)
    assert fstab.read_bytes() == kept
    assert set(os.listdir(fstab.parent)) <= {"fstab", "filler"}
    assert not is_mounted(new) and not new.parent.exists()
    assert os.statvfs(old).f_blocks * os.statvfs(old).f_frsize == 16 * MIB


@pytest.fixture
def staged(safe_dir: Path, fstab: Path) -> Path:
    """Stage a data set into a volume with a line in fstab; return the volume."""
    source, volume = make_source(safe_dir / "data", directories=2), safe_dir / "v"
    hostprep("stage", source, "--to-tmpfs", "16M", "--at", volume, "--reserve", "0", "--fstab")
    return volume


def pointed_elsewhere(fstab: Path) -> None:
    fstab.write_text(re.sub("/v tmpfs ", "/w tmpfs ", fstab.read_text()))


@pytest.mark.parametrize("spoil", [read_only, full, immutable, pointed_elsewhere])
def test_no_copy_is_removed_where_the_line_of_its_volume_cannot_be(
    spoil: Callable[[Path], None], staged: Path, fstab: Path
) -> None:
    spoil(fstab)
    try:
        before, line = snapshot(staged), fstab.read_bytes()
        for words in (("--dry-run",), ()):
            refused = hostprep("unstage", "data", "--fstab", *words, expect=5)["error"]
            assert "fstab" in refused["message"]
        assert snapshot(staged) == before and fstab.read_bytes() == line
        planned = hostprep("unstage", "data", "--dry-run")
        assert "unmount" in [each["action"] for each in planned["changes"]]
    finally:
        subprocess.run(["chattr", "-i", fstab], capture_output=True, check=False)


def test_what_the_judges_of_fstab_object_to_is_found_before_a_copy_is_removed(
    staged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whom no plan asks, since they want a file to read."""
    objecting_findmnt(tmp_path, staged)
    before = snapshot(staged)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    refused = hostprep("unstage", "data", "--fstab", expect=5)["error"]
    assert "odd. Nothing was changed." in refused["message"]
    assert snapshot(staged) == before


def test_an_fstab_that_cannot_be_written_once_the_copies_are_gone_is_a_failure(
    staged: Path, fstab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_and_spoil(*given: object) -> tuple[str, ...]:
        remove: Callable[..., tuple[str, ...]] = remove_hidden
        left = remove(*given)
        read_only(fstab)
        return left

    entries = len(list((staged / "data").rglob("*")))
    monkeypatch.setattr("hostprep.staging.unstage.remove_hidden", remove_and_spoil)
    found = hostprep("unstage", "data", "--fstab", expect=1)
    assert (found["removed_entries"], found["left"]) == (entries, [])
    assert (found["unmounted"], found["fstab_line_removed"]) == (False, False)
    assert found["volume_kept_because"].endswith(
        f"as it was: Read-only file system; once that is over: hostprep unmount {staged} --fstab"
    )
    assert found["error"]["message"].startswith(
        f"the copies are gone, but the volume {staged} stays: {fstab} cannot be replaced"
    )
    assert found["error"]["code"] == "failed"
    assert found["error"]["hint"].endswith(f"then: hostprep unmount {staged} --fstab")
    assert is_mounted(staged) and hostprep("status")["datasets"] == []
    subprocess.run(["mount", "-o", "remount,rw", fstab.parent], check=True)
    hostprep("unmount", staged, "--fstab")
    assert fstab.read_bytes() == b"# theirs\n"


def test_an_fstab_that_cannot_be_written_once_the_volume_is_gone_is_a_failure(
    staged: Path, fstab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil = f"mount -o remount,ro {fstab.parent}"
    stand_in(tmp_path / "umount", f'#!/bin/sh\n/bin/umount "$@" && {spoil}\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = run_hostprep("unstage", "data", "--fstab")
    assert done.returncode == 1 and done.stdout.endswith(f"{staged}: unmounted\n")
    said, hint = done.stderr.splitlines()
    assert said.startswith(
        "hostprep: the copies are gone; the volume is unmounted, but fstab could not be edited: "
    )
    assert said.endswith("Read-only file system.") and f"unmount {staged} --fstab" in hint
    assert not is_mounted(staged) and str(staged) in fstab.read_text()


def test_a_volume_in_use_is_no_failure_of_unstaging_with_its_line(staged: Path) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=staged) as user:
        try:
            found = hostprep("unstage", "data", "--fstab")
        finally:
            user.kill()
    assert (found["unmounted"], found["fstab_line_removed"]) == (False, False)
    assert "sleep" in found["volume_kept_because"] and os.listdir(staged) == []


def test_an_umount_that_is_killed_is_told_as_that(
    staged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "umount", "#!/bin/sh\nkill -KILL $$\n")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        failed = hostprep("unmount", staged, "--discard-data", expect=1)["error"]
    assert "was ended by SIGKILL" in failed["message"] and is_mounted(staged)


def test_what_findmnt_objects_to_is_refused_before_the_mount(
    fstab: Path, safe_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = safe_dir / "a/v"
    objecting_findmnt(tmp_path, point)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    refused = hostprep("mount", point, "--size", "16M", "--reserve", "0", "--fstab", expect=5)
    assert "odd. Nothing was changed." in refused["error"]["message"]
    assert not is_mounted(point) and not point.parent.exists()
    assert fstab.read_bytes() == b"# theirs\n"


def test_who_writes_to_fstab_after_the_check_makes_it_a_failure(
    fstab: Path, safe_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused would say that nothing was changed, and the volume is mounted by then."""
    point = safe_dir / "v"
    theirs = f"/dev/sdz1 {point} ext4 defaults 0 2"
    stand_in(tmp_path / "mount", f'#!/bin/sh\necho "{theirs}" >>{fstab}\nexec /bin/mount "$@"\n')
    hostprep("mount", safe_dir / "w", "--size", "16M", "--reserve", "0")  # asks what is supported
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    failed = hostprep("mount", point, "--size", "16M", "--reserve", "0", "--fstab", expect=1)
    assert failed["error"]["message"].startswith(
        "the volume is mounted, but fstab could not be edited: line 2 of fstab already mounts"
    )
    assert "nothing was changed" not in failed["error"]["message"]
    assert is_mounted(point)


def test_a_reload_that_failed_is_told_as_that_and_made_up_for(
    fstab: Path, safe_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fstab_file, "SYSTEM_FSTAB", Path(os.path.realpath(fstab)))
    monkeypatch.setattr(fstab_file, "systemd_runs", lambda: True)
    calls, fails = tmp_path / "calls", tmp_path / "fails"
    fails.touch()
    stand_in(tmp_path / "systemctl", f'#!/bin/sh\necho "$@" >>{calls}\n[ ! -e {fails} ]\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    point = safe_dir / "v"
    line = ("mount", point, "--size", "16M", "--reserve", "0", "--fstab")
    failed = hostprep(*line, expect=1)["error"]
    assert failed["message"].startswith("fstab is written, but systemd did not read that again")
    assert failed["code"] == "not_reloaded" and "daemon-reload" in failed["hint"]
    assert is_mounted(point) and str(point) in fstab.read_text()
    planned = hostprep(*line, "--dry-run")
    assert [each["action"] for each in planned["changes"]] == ["let systemd read it again"]
    assert hostprep(*line, expect=1)["error"]["code"] == "not_reloaded"
    fails.unlink()
    assert hostprep(*line)["changed"] is True
    assert hostprep(*line)["changed"] is False
    assert calls.read_text().splitlines() == ["daemon-reload"] * 3
    fails.touch()
    hostprep("unmount", point, "--fstab", expect=1)
    fails.unlink()
    assert hostprep("unmount", point, "--fstab")["changed"] is True
    assert hostprep("unmount", point, "--fstab")["changed"] is False
    assert calls.read_text().splitlines() == ["daemon-reload"] * 5
    assert not point.exists()


@pytest.fixture
def small_state(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = safe_dir / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0755", "state", state], check=True)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(state))
    return state


def fill(folder: Path) -> None:
    with pytest.raises(OSError, match="No space"), (folder / "filler").open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()


def test_a_full_disk_under_our_records_is_a_sentence(safe_dir: Path, small_state: Path) -> None:
    fill(small_state)
    point = safe_dir / "a/v"
    failed = hostprep("mount", point, "--size", "16M", "--reserve", "0", expect=1)["error"]
    assert "cannot be written: No space left on device; nothing was mounted." in failed["message"]
    assert "HOSTPREP_STATE_DIR" in failed["hint"]
    assert not is_mounted(point) and not point.parent.exists()


def test_a_disk_that_is_full_after_a_change_says_what_was_done(
    safe_dir: Path, small_state: Path
) -> None:
    point = safe_dir / "v"
    hostprep("mount", point, "--size", "16M", "--reserve", "0")
    fill(small_state)
    failed = hostprep("mount", point, "--size", "32M", "--reserve", "0", expect=1)["error"]
    assert "what was to be changed of the volume is changed" in failed["message"]
    assert os.statvfs(point).f_blocks * os.statvfs(point).f_frsize == 32 * MIB
    (small_state / "filler").unlink()
    hostprep("mount", point, "--size", "32M", "--reserve", "0")
    assert hostprep("status")["volumes"][0]["drift"] == []


def test_what_fails_after_a_change_does_not_say_that_nothing_was_changed(
    source: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise HostprepError("a record cannot be read; nothing was changed.")

    line = ("stage", source, "--to-tmpfs", "16M", "--at", volume, "--reserve", "0")
    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.stage.open_target", broken)
        assert hostprep(*line, expect=1)["error"]["message"] == "a record cannot be read."
        assert is_mounted(volume)
    hostprep(*line)
    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.unstage.gather", broken)
        failed = hostprep("unstage", source.name, expect=1)["error"]
        assert failed["message"] == "a record cannot be read."
        assert is_mounted(volume) and os.listdir(volume) == []
    hostprep("unstage", source.name)
    assert not is_mounted(volume)


@pytest.mark.parametrize("then", [("unmount",), ("mount", "--size", "16M", "--reserve", "0")])
def test_a_mount_that_outlives_its_run_is_waited_for(
    then: tuple[str, ...], safe_dir: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``mount`` goes on where kill -9 ends who started it: nobody may look before it is done."""
    volume, begun, goes_on = safe_dir / "v", safe_dir / "begun", safe_dir / "goes-on"
    volume.mkdir()
    real = shutil.which("mount")
    waits = f"touch {begun}\nuntil test -e {goes_on}; do sleep 0.05; done"
    stand_in(safe_dir / "mount", f'#!/bin/sh\n{waits}\nexec {real} "$@"\n')
    with monkeypatch.context() as slowly:
        slowly.setenv("PATH", f"{safe_dir}:{os.environ['PATH']}")
        line = [*HOSTPREP, "mount", volume, "--size", "16M", "--reserve", "0"]
        with subprocess.Popen(line, stderr=subprocess.DEVNULL) as process:
            while not begun.exists() and process.poll() is None:
                time.sleep(0.01)
            process.kill()
    assert not is_mounted(volume)
    command, *options = then
    threading.Timer(1, goes_on.touch).start()
    hostprep(command, volume, *options)
    time.sleep(1.2)  # for a mount that nobody has waited for
    mounts = [mount.target for mount in read_mounts()]
    assert mounts.count(str(volume)) == (command == "mount")
    known = [each["path"] for each in hostprep("status")["volumes"]]
    assert known == ([str(volume)] if command == "mount" else [])


@pytest.mark.parametrize("words", [("mount", "--size", "16M", "--reserve", "0"), ("unmount",)])
def test_who_waits_for_another_run_is_told_for_whom(
    words: tuple[str, ...], safe_dir: Path, own_state: Path
) -> None:
    point = safe_dir / "v"
    hostprep("mount", point, "--size", "8M", "--reserve", "0")
    holder = (
        "import sys\nfrom hostprep.system.locks import lock\n"
        "with lock('volumes', purpose='the other'):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with subprocess.Popen(
            [*HOSTPREP, words[0], point, *words[1:]], stderr=subprocess.PIPE, text=True
        ) as waiting:
            # However long it takes to start: the other ends only once it was waited for.
            assert waiting.stderr is not None and other.stdin is not None
            said = waiting.stderr.readline()
            other.stdin.close()
            said += waiting.stderr.read()
    assert waiting.returncode == 0, said
    assert "hostprep: waiting for `the other` (process" in said


def test_records_on_a_read_only_disk_are_told_apart_from_fstab(
    safe_dir: Path, fstab: Path, small_state: Path
) -> None:
    point = safe_dir / "v"
    hostprep("mount", point, "--size", "16M", "--reserve", "0", "--fstab")
    before = fstab.read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", small_state], check=True)
    failed = hostprep("unmount", point, "--fstab", expect=1)["error"]
    assert "could not be checked: Read-only file system" in failed["message"]
    assert str(small_state) in failed["message"] and "HOSTPREP_STATE_DIR" in failed["hint"]
    assert is_mounted(point) and fstab.read_bytes() == before
    fstab.write_bytes(b"")
    failed = hostprep("unmount", point, expect=1)["error"]
    assert "cannot be removed: Read-only file system; the volume is unmounted" in failed["message"]
    assert not is_mounted(point)
    subprocess.run(["mount", "-o", "remount,rw", small_state], check=True)
    hostprep("unmount", point)
    assert hostprep("status")["volumes"] == []


@pytest.mark.parametrize("update", [False, True])
def test_a_full_disk_under_the_manifests_is_named(
    update: bool, safe_dir: Path, small_state: Path
) -> None:
    source = make_source(safe_dir / "data", directories=2)
    if update:
        hostprep("stage", source, "--to", safe_dir / "fast")
        (source / "new").write_bytes(b"new")
    fill(small_state)
    failed = hostprep("stage", source, "--to", safe_dir / "fast", expect=1)["error"]
    assert f"No space left on device ({small_state}/" in failed["message"]
    assert "HOSTPREP_STATE_DIR" in failed["hint"]
