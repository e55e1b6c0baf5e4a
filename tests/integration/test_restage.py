"""What the boot service does, on real mounts: a reboot is acted by what it does to a tmpfs.

The volume is unmounted and mounted again by its line in fstab, the kernel's boot identity is
another, and the run directory is empty.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.converging import restage as restaging
from hostprep.converging.boot_facts import gather_boot
from hostprep.converging.boot_record import BootNote, load_boot_record, save_boot_record
from hostprep.converging.boot_units import apply_boot, plan_boot
from hostprep.errors import HostprepError
from hostprep.spec.model import DatasetSpec
from hostprep.staging.observer import Silent
from tests.kit.automounter import automounted
from tests.kit.converging import apply, plan, write_spec
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.stagecraft import (
    HOSTPREP,
    NOBODY,
    hostprep,
    make_source,
    mount,
    mounted_by_another,
    only_dataset,
    rewrite,
    run_hostprep,
    unmount,
)

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Host:
    """A machine with a source on a file system of its own, and a data set that comes back."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.state, self.run = root / "state", root / "run"
        monkeypatch.setenv("HOSTPREP_STATE_DIR", str(self.state))
        monkeypatch.setenv("HOSTPREP_RUN_DIR", str(self.run))
        self.disk, self.volume = root / "disk", root / "ram"
        self.disk.mkdir()
        self.volume.mkdir(mode=0o755)
        mount("-t", "tmpfs", "-o", "size=16M", "disk", self.disk)
        self.source = make_source(self.disk / "data", directories=3, files=8)
        self.dataset = DatasetSpec("data", str(self.source), volume=str(self.volume), at_boot=True)

    def prepare(self, size: str = "16M") -> dict[str, Any]:
        """Stage for the first time and have it come back, as apply does; return stage's result."""
        staged = hostprep("stage", self.source, "--to-tmpfs", size, "--at", self.volume, "--fstab")
        apply_boot(plan_boot((self.dataset,), gather_boot((self.dataset,))))
        return staged

    def reboot(self, *, mount_volume: bool = True) -> None:
        unmount(self.volume)
        shutil.rmtree(self.run)
        identity = self.root / f"boot-{uuid.uuid4()}"
        identity.write_text(f"{uuid.uuid4()}\n")
        mount("--bind", identity, BOOT_ID)
        if mount_volume:
            mount("--fstab", os.environ["HOSTPREP_FSTAB"], self.volume)

    def refused(self, words: str, code: int = 5) -> str:
        """Insist that restage ends so, that nothing is staged, and that everybody says why."""
        done = run_hostprep("restage", "data")
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert words in done.stderr
        assert sorted(os.listdir(self.volume)) == []
        found = only_dataset()
        assert found["boot"]["state"] == "failed"
        assert words in found["boot"]["reason"] and words in found["reason"]
        waited = hostprep("wait", "data", expect=1)
        assert words in waited["error"]["message"]
        assert waited["error"]["hint"] == found["boot"]["hint"]
        return done.stderr


@pytest.fixture
def host(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    yield Host(safe_dir, monkeypatch)
    while subprocess.run(["umount", BOOT_ID], capture_output=True).returncode == 0:
        pass


def test_it_comes_back_whole_and_verified(host: Host) -> None:
    digest = host.prepare()["digest"]
    host.reboot()
    before = only_dataset()
    assert (before["state"], before["at_boot"], before["boot"]["state"]) == (
        "missing",
        True,
        "failed",  # nobody starts the service here: systemd does not run
    )
    done = run_hostprep("restage", "data")
    assert done.returncode == 0, done.stderr
    assert "the source is as it was" in done.stdout
    found = only_dataset()
    assert (found["state"], found["freshness"], found["digest"]) == ("staged", "fresh", digest)
    assert found["boot"]["state"] == "ready"
    assert found["volume"] == str(host.volume)
    waited = hostprep("wait", "data")
    assert [each["target"] for each in waited["datasets"]] == [f"{host.volume}/data"]
    again = run_hostprep("restage", "data")
    assert again.returncode == 0 and "was there already" in again.stdout


@pytest.mark.parametrize("leaves", ["nothing", "an empty file", "half a file"])
def test_a_power_cut_may_take_what_was_not_flushed(host: Host, leaves: str) -> None:
    digest = host.prepare()["digest"]
    host.reboot()
    (record,) = host.state.glob("datasets/*/dataset.json")
    if leaves == "nothing":
        shutil.rmtree(host.state / "datasets")
        assert only_dataset()["reason"].startswith("nothing else is on record of it: ")
        assert "data set data: missing" in run_hostprep("status").stdout
    else:
        record.write_bytes(b"" if leaves == "an empty file" else record.read_bytes()[:99])
    done = run_hostprep("restage", "data")
    assert done.returncode == 0, done.stderr
    assert f"digest {digest}: the source is as it was" in done.stdout
    assert only_dataset()["boot"]["state"] == "ready"


def test_without_an_earlier_digest_nobody_says_whether_the_source_changed(host: Host) -> None:
    host.prepare()
    record = load_boot_record("data")
    assert record is not None
    save_boot_record(dataclasses.replace(record, digest=None))
    host.reboot()
    shutil.rmtree(host.state / "datasets")
    done = run_hostprep("restage", "data")
    assert done.returncode == 0, done.stderr
    assert "there was no earlier digest to compare with" in done.stdout


def test_a_source_that_changed_is_staged_as_it_is_now(host: Host) -> None:
    host.prepare()
    rewrite(host.source / "hard", b"changed")
    host.reboot()
    done = run_hostprep("restage", "data")
    assert done.returncode == 0, done.stderr
    assert "the source has changed" in done.stdout
    assert (host.volume / "data/hard").read_bytes() == b"changed"
    assert "the source has changed" in only_dataset()["boot"]["reason"]
    record = load_boot_record("data")
    assert record is not None and record.digest == only_dataset()["digest"]


def test_a_source_that_is_not_mounted(host: Host) -> None:
    host.prepare()
    host.reboot()
    unmount(host.disk)
    said = host.refused(f"the file system of its source, {host.disk}, is not mounted")
    assert "systemctl restart hostprep-stage-data.service" in said
    # What lies under the mount point is another data set of that name, and is not taken for it.
    (host.disk / "data").mkdir()
    (host.disk / "data/other").write_text("other")
    host.refused("is not mounted")


def test_a_source_that_an_automounter_has_mounted_when_one_looks(
    host: Host, safe_dir: Path
) -> None:
    (safe_dir / "home").mkdir()
    with automounted(safe_dir / "home", "alice", host.disk) as home:
        host.source = home / "data"
        host.dataset = dataclasses.replace(host.dataset, source=str(host.source))
        host.prepare()
        record = load_boot_record("data")
        assert record is not None
        assert (record.source_mount, record.remote) == (str(home), True)
        unmount(home)  # as after a reboot, or a time in which nobody was there
        host.reboot()
        done = run_hostprep("restage", "data")
        assert done.returncode == 0, done.stderr
        unmount(home)
        assert only_dataset()["state"] == "staged"


def test_a_source_that_root_is_kept_out_of_is_not_said_to_be_gone(
    host: Host,
) -> None:
    host.prepare()
    host.reboot()
    with mounted_by_another(host.source):
        said = host.refused(f"its source {host.source} cannot be read: Permission denied", code=1)
    assert "allow_other" in said


def test_a_source_on_another_file_system_than_before(host: Host) -> None:
    host.prepare()
    host.reboot()
    mount("-t", "tmpfs", "other", host.source)
    (host.source / "other").write_text("other")
    host.refused(f"lies on {host.source} (tmpfs) now")
    unmount(host.source)
    host.source.rename(host.disk / "moved")
    host.refused(f"its source {host.source} is not there")
    host.source.symlink_to("moved")
    host.refused(f"leads to {host.disk / 'moved'}")
    host.source.unlink()
    host.source.mkdir()
    host.refused(f"its source {host.source} is empty")
    host.source.rmdir()
    (host.disk / "moved").rename(host.source)
    assert run_hostprep("restage", "data").returncode == 0


def test_a_volume_that_is_not_mounted_is_not_filled_below(host: Host) -> None:
    host.prepare()
    host.reboot(mount_volume=False)
    host.refused(f"its volume {host.volume} is not mounted")
    mount("-t", "tmpfs", "-o", "size=16M,nosuid,nodev,noexec", "foreign", host.volume)
    told = host.refused("is not a volume of hostprep's")
    assert "-> unmount it, and run `hostprep apply`, which mounts the volume" in told
    unmount(host.volume)
    mount("--fstab", os.environ["HOSTPREP_FSTAB"], host.volume)
    mount("-o", "remount,size=8M", "tmpfs", host.volume)
    host.refused("has 8.00 MiB instead of 16.0 MiB")


def test_a_volume_that_others_have_changed_is_not_changed_at_boot(host: Host) -> None:
    host.prepare()
    host.reboot()
    mount("-o", "remount,nr_inodes=50", "tmpfs", host.volume)
    host.refused("does not suffice any more: allow")
    assert os.statvfs(host.volume).f_files == 50


def test_a_damaged_record_of_what_is_there_is_kept(host: Host) -> None:
    host.prepare()
    (record,) = host.state.glob("datasets/*/dataset.json")
    record.write_text("{")
    done = run_hostprep("restage", "data")
    assert done.returncode != 0 and str(record.parent) in done.stderr
    assert record.read_text() == "{" and os.listdir(host.volume / "data")


def test_a_volume_that_hostprep_itself_made_smaller_is_filled(host: Host) -> None:
    host.prepare()
    hostprep("mount", host.volume, "--size", "8M", "--fstab")
    host.reboot()
    done = run_hostprep("restage", "data")
    assert done.returncode == 0, done.stderr
    hostprep("wait", "data")


def test_a_place_for_records_that_is_full_is_no_command_to_run_again(host: Host) -> None:
    """As of a disk that is full at boot: who reads it called `status` or `wait`, or the journal."""
    host.prepare()
    mount("--bind", host.state / "volumes", host.state / "volumes")
    mount("-o", "remount,ro,bind", host.state / "volumes")
    host.reboot()
    said = host.refused("cannot be written", 1)
    assert "fix that and `systemctl restart hostprep-stage-data.service`" in said
    assert "same command" not in said + only_dataset()["boot"]["hint"]
    unmount(host.state / "volumes")


def test_a_data_set_that_outgrew_its_volume(host: Host) -> None:
    host.prepare("1M")
    (host.source / "large").write_bytes(os.urandom(2 << 20))
    host.reboot()
    host.refused("the data set does not fit")


def test_a_target_directory_on_another_file_system_than_before(host: Host) -> None:
    fast = host.root / "fast"
    fast.mkdir()
    mount("-t", "tmpfs", "-o", "size=16M", "fast", fast)
    host.dataset = DatasetSpec("data", str(host.source), to=str(fast / "sets"), at_boot=True)
    hostprep("stage", host.source, "--to", fast / "sets")
    apply_boot(plan_boot((host.dataset,), gather_boot((host.dataset,))))
    assert run_hostprep("restage", "data").returncode == 0
    mount("-t", "tmpfs", "-o", "size=16M", "other", fast / "sets")
    done = run_hostprep("restage", "data")
    assert done.returncode == 5 and f"lies on {fast / 'sets'} now" in done.stderr
    unmount(fast / "sets")
    unmount(fast)
    done = run_hostprep("restage", "data")
    assert done.returncode == 5 and f"{fast}, is not mounted" in done.stderr
    assert list(fast.iterdir()) == []


def test_a_target_in_memory_leaves_what_apply_was_told_to_leave(host: Host) -> None:
    shm = host.root / "shm"
    shm.mkdir()
    mount("-t", "tmpfs", "-o", "size=16M", "shm", shm)
    dataset = {"source": host.source, "to": shm, "at_boot": True}
    spec = write_spec(host.root / "hostprep.yml", datasets=[dataset])
    apply(spec)
    assert plan(spec)["changes"] == []
    record = load_boot_record("data")
    assert record is not None and record.reserve_bytes == 0
    shutil.rmtree(shm / "data")
    save_boot_record(dataclasses.replace(record, reserve_bytes=1 << 50))
    done = run_hostprep("restage", "data")
    assert done.returncode == 5 and "1024 TiB reserved for the machine" in done.stderr, done.stderr
    (stored,) = host.state.glob("boot/*.json")  # as one of before has it
    fields = json.loads(stored.read_text())
    del fields["reserve_bytes"]
    stored.write_text(json.dumps(fields))
    done = run_hostprep("restage", "data")
    assert "cannot be read" not in done.stderr
    assert done.returncode == 0 or "does not fit into the memory" in done.stderr


def test_a_source_that_cannot_be_read_in_places_fails_it(host: Host) -> None:
    backing = host.source
    with failing_fs(backing, read_only=True, where=host.root) as fs:
        host.source = fs.mount
        host.dataset = DatasetSpec("data", str(fs.mount), volume=str(host.volume), at_boot=True)
        words = ("--to-tmpfs", "16M", "--at", host.volume, "--fstab", "--name", "data")
        hostprep("stage", fs.mount, *words)
        apply_boot(plan_boot((host.dataset,), gather_boot((host.dataset,))))
        record = load_boot_record("data")
        assert record is not None and (record.source_mount, record.remote) == (str(fs.mount), True)
        host.reboot()
        fs.tell(Rule("/class-1/images/003.bin", "read"))
        done = run_hostprep("restage", "data")
        assert done.returncode == 1
        assert "data: 1 of the source's entries could not be staged" in done.stderr
        assert "class-1/images/003.bin: Input/output error" in done.stderr
        assert not (host.volume / "data").exists()
        assert "class-1/images/003.bin" in only_dataset()["boot"]["reason"]
        (backing / "class-1").chmod(0o700)
        done = run_hostprep("restage", "data")
        assert "class-1/images/003.bin: Input/output error" in done.stderr
        assert "class-1" not in str(only_dataset()), "all may read the note"
        fs.tell()
        assert run_hostprep("restage", "data").returncode == 0


@pytest.mark.parametrize("step", ["plan_stage", "carry_out"])
@pytest.mark.parametrize("kind", [HostprepError, ValueError])
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_what_fails_names_nothing_of_closed_folders_in_the_note(
    step: str, kind: type[Exception], mode: int, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.source.chmod(mode)
    host.prepare()
    host.reboot()

    def fails(*_: object) -> None:
        raise kind("a/b appeared")

    monkeypatch.setattr(restaging, step, fails)
    with pytest.raises(kind) as caught:
        restaging.restage("data", Silent())
    (note,) = (path.read_text() for path in host.run.rglob("data.json"))
    assert ("a/b" in note) == (mode == 0o755)
    assert ("the journal of hostprep-" in note) == (mode == 0o700)
    if isinstance(caught.value, HostprepError):
        assert "a/b appeared" in caught.value.message, "the journal has it"


def test_killed_in_the_middle_it_says_so_and_can_be_run_again(host: Host) -> None:
    host.prepare()
    for index in range(8):
        (host.source / f"large-{index}").write_bytes(os.urandom(1 << 20))
    host.reboot()
    stopped = _stop_while_staging(host.volume / ".hostprep-data/tree")
    assert only_dataset()["boot"]["state"] == "staging"
    late = hostprep("wait", "data", "--timeout", "0.2", expect=1)
    assert late["error"]["code"] == "timeout" and late["datasets"][0]["timed_out"]
    stopped.kill()
    stopped.wait()
    assert only_dataset()["boot"]["reason"] == "the run that staged it was killed"
    waited = hostprep("wait", "data", expect=1)
    assert "systemctl restart" in waited["error"]["hint"]
    assert not (host.volume / "data").exists()
    assert run_hostprep("restage", "data").returncode == 0
    assert hostprep("wait", "data")["datasets"][0]["ready"]


def test_who_waits_is_let_go_when_it_is_ready(host: Host) -> None:
    host.prepare()
    for path in (host.state, host.run):
        assert path.stat().st_mode & 0o055 == 0o055
    host.reboot()
    stopped = _stopped_as_it_stages()
    waiting = [
        subprocess.Popen([*prefix, *HOSTPREP, "wait", "data"], stdout=subprocess.PIPE, text=True)
        for prefix in ((), NOBODY)
    ]
    time.sleep(1.5)
    assert [each.poll() for each in waiting] == [None, None]
    stopped.send_signal(signal.SIGCONT)
    for each in waiting:
        said, _ = each.communicate(timeout=60)
        assert (each.returncode, said) == (0, f"data is ready: {host.volume}/data\n")
    assert stopped.wait(60) == 0


def test_a_run_that_is_stopped_says_so(host: Host) -> None:
    host.prepare()
    host.reboot()
    stopped = _stopped_as_it_stages()
    stopped.terminate()
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait(60) == 130
    assert only_dataset()["boot"]["reason"] == "the run that staged it was stopped"


def test_a_source_that_does_not_answer_is_named_and_waited_for(host: Host, safe_dir: Path) -> None:
    """Asked by the run itself, its service could be neither stopped nor understood."""
    with failing_fs(host.disk, where=safe_dir) as fs:
        host.source = fs.mount / "data"
        host.dataset = dataclasses.replace(host.dataset, source=str(host.source))
        host.prepare()
        host.reboot()
        fs.tell(Rule("*", "statfs", None, hang_seconds=60))
        with subprocess.Popen([*HOSTPREP, "restage", "data"], stderr=-1, text=True) as run:
            assert run.stderr is not None
            assert f"waiting for {host.source}, which has not" in run.stderr.readline()
            run.terminate()
            assert run.wait(40) == 130
        assert only_dataset()["boot"]["reason"] == "the run that staged it was stopped"


def test_a_run_that_is_stopped_as_it_says_that_it_began_says_so(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.prepare()
    host.reboot()
    save = restaging.save_note

    def save_and_stop(name: str, note: BootNote) -> None:
        save(name, note)
        if note.state == "staging":
            raise KeyboardInterrupt

    monkeypatch.setattr(restaging, "save_note", save_and_stop)
    assert run(["restage", "data"]) == 130
    assert only_dataset()["boot"]["reason"] == "the run that staged it was stopped"


def test_what_is_unstaged_after_it_was_ready_is_missing(host: Host) -> None:
    host.prepare()
    host.reboot()
    assert run_hostprep("restage", "data").returncode == 0
    hostprep("unstage", "data")
    assert only_dataset()["boot"]["state"] == "missing"
    assert "is not there now" in hostprep("wait", "data", expect=1)["error"]["message"]


# The copies take some milliseconds, in which a busy machine may not get to stop it.
_STOPPING = """
import os, signal, sys
from hostprep.cli.main import run
from hostprep.converging import restage

save = restage.save_note

def save_and_stop(name, note):
    save(name, note)
    if note.state == "staging":
        os.kill(os.getpid(), signal.SIGSTOP)

restage.save_note = save_and_stop
from hostprep.__main__ import main
main()
"""


def _stopped_as_it_stages() -> subprocess.Popen[bytes]:
    """Start a run that stops itself once it has said that it stages; it goes on with SIGCONT."""
    process = subprocess.Popen(
        [sys.executable, "-c", _STOPPING, "restage", "data"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ended = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert ended is not None and ended.si_status == signal.SIGSTOP
    return process


def _stop_while_staging(moment: Path) -> subprocess.Popen[bytes]:
    """Start the run and stop it by SIGSTOP once ``moment`` exists."""
    process = subprocess.Popen(
        [*HOSTPREP, "restage", "data"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not moment.exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.0005)
    process.send_signal(signal.SIGSTOP)
    return process


def test_a_target_that_a_user_made_a_link_of_is_not_followed(safe_dir: Path) -> None:
    home, victim = safe_dir / "alice", safe_dir / "victim"
    home.mkdir()
    (victim / "tool").mkdir(mode=0o700, parents=True)
    source = make_source(safe_dir / "disk/tool", directories=1, files=2)
    dataset = DatasetSpec("tool", str(source), to=str(home / "data"), at_boot=True)
    hostprep("stage", source, "--to", home / "data")
    apply_boot(plan_boot((dataset,), gather_boot((dataset,))))
    (home / "data").rename(home / "data.old")
    (home / "data").symlink_to(victim)
    (source / "added").write_bytes(b"as root")
    done = run_hostprep("restage", "tool")
    assert done.returncode == 5 and f"leads to {victim}" in done.stderr
    assert os.listdir(victim / "tool") == []
    assert (victim / "tool").stat().st_mode & 0o777 == 0o700
