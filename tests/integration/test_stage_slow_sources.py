"""Slow sources are read as they want to be read: the rigs count what reached them."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.rigs import arm, far
from hostprep.host.answering import WHICH_MOUNT
from hostprep.host.block import StorageClass
from hostprep.staging.batches import LARGE_DIRECTORY
from hostprep.staging.model import StageRequest
from hostprep.staging.observer import Silent
from hostprep.staging.planning import plan_stage, scan_source
from hostprep.staging.publishing.finishing import finish_directories
from hostprep.staging.source.opening import open_source
from hostprep.staging.stage import carry_out
from hostprep.staging.status import dataset_statuses
from tests.kit import loops
from tests.kit.compare import differences
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.hostile import make_hostile
from tests.kit.stagecraft import make_source

FILES = 400


@pytest.fixture
def slow_disk(safe_dir: Path) -> Iterator[tuple[arm.ArmDisk, Path, int]]:
    """A disk with an arm and files on it, in an order that is not the directories'."""
    with arm.arm_disk(1 << 30, safe_dir) as disk:
        size_bytes, root = arm.write_scattered(disk, FILES, 50_000, 10)
        yield disk, root, size_bytes


def stage(source: Path, target: Path, *options: str) -> tuple[dict[str, object], str]:
    """Run the command; return its document and the words beside it."""
    args = [sys.executable, "-m", "hostprep", "stage", str(source), "--to", str(target)]
    done = subprocess.run([*args, *options, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_an_arm_sweeps_once(slow_disk: tuple[arm.ArmDisk, Path, int], safe_dir: Path) -> None:
    """Fewer seeks than folders, where the listed order costs about one a file."""
    disk, root, size_bytes = slow_disk
    plan, _ = stage(root, safe_dir / "plan", "--dry-run")
    assert (plan["readers"], plan["order"]) == (1, "physical")
    assert "hard disk" in str(plan["reason"])

    disk.remount()
    disk.reset()
    stage(root, safe_dir / "listed", "--order", "listed", "--readers", "1")
    listed = disk.stats()
    disk.remount()
    disk.reset()
    stage(root, safe_dir / "chosen")
    chosen = disk.stats()

    assert listed.seeks > FILES // 2
    assert chosen.seeks < FILES // 8
    assert chosen.bytes < size_bytes * 1.1
    assert chosen.seek_seconds + chosen.transfer_seconds < (size_bytes / 160e6) * 2
    assert not differences(root, safe_dir / "chosen" / root.name, owners=True)


@pytest.mark.parametrize("cached", ["the heads of all files", "every other file"])
def test_an_arm_that_is_cached_in_part_sweeps_once_over_the_rest(
    cached: str, slow_disk: tuple[arm.ArmDisk, Path, int], safe_dir: Path
) -> None:
    disk, root, _ = slow_disk
    heads = "heads" in cached
    with disk.unmetered():
        for path in sorted(root.rglob("*.jpg"))[:: 1 if heads else 2]:
            with path.open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no more than is asked
                file.read(1 if heads else path.stat().st_size)
    disk.reset()
    stage(root, safe_dir / "target")
    assert disk.stats().seeks < FILES // 8


def test_an_arm_reads_files_larger_than_its_readahead_in_one_go(safe_dir: Path) -> None:
    """A hint brings no more than that of a file: it takes several to bring the file."""
    with arm.arm_disk(1 << 30, safe_dir) as disk:
        root = disk.mount / "data"
        root.mkdir()
        with disk.unmetered():
            for number in range(40):
                (root / f"{number:02}").write_bytes(bytes([number + 1]) * 3_000_000)
        disk.remount()
        disk.reset()
        stage(root, safe_dir / "target")
        assert disk.stats().seeks < 40


@pytest.mark.timed
def test_an_arm_behind_a_server_sweeps_once(safe_dir: Path) -> None:
    """The data lie in the order of inodes, as they were written; ext4 lists them in another."""
    with arm.arm_disk(1 << 30, safe_dir) as disk:
        root = disk.mount / "data"
        with disk.unmetered():
            for number in range(FILES):
                folder = root / f"{number * 8 // FILES}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{number:04}.jpg").write_bytes(bytes([number % 251]) * 200_000)
        seeks = []
        for options in ((), ("--order", "listed", "--readers", "1"), ("--readers", "16")):
            disk.remount()
            with far.far_source(root, safe_dir, request_seconds=0, readahead_bytes=1 << 17) as slow:
                if not options:
                    plan, _ = stage(slow.mount, safe_dir / "plan", "--dry-run")
                    assert (plan["readers"], plan["order"]) == (1, "inode")
                disk.reset()
                stage(slow.mount, safe_dir / f"target{len(seeks)}", "--name", "data", *options)
                seeks.append(disk.stats().seeks)
        chosen, listed, many = seeks
        assert chosen < FILES // 8
        assert listed < FILES // 8  # in the order of inodes too, in each folder
        assert many > FILES // 2
        with disk.unmetered():
            assert not differences(root, safe_dir / "target0/data", owners=True, holes=False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", ["disk", "tmpfs"])
def test_a_cold_local_disk_is_asked_for_its_files_ahead(
    target: str, safe_dir: Path, tmp_path: Path
) -> None:
    """The hostile set: small files, many in a directory, large ones in ranges, holes, links."""
    image, disk = tmp_path / "image", safe_dir / "disk"
    disk.mkdir()
    loops.make_filesystem(image, "ext4", 2 << 30)
    with loops.loop_mount(image, disk, "ext4"):
        make_hostile(disk / "set")
    with loops.loop_mount(image, disk, "ext4"):  # nothing of it is cached now
        where = safe_dir / "target" if target == "disk" else Path("/dev/shm") / safe_dir.name
        plan, _ = stage(disk / "set", where, "--dry-run")
        if "in RAM" in str(plan["reason"]):
            pytest.skip("the tests' own directory is in RAM, and so a disk made in it")
        assert "requested ahead" in str(plan["reason"])
        try:
            document, _ = stage(disk / "set", where)
            assert document["verified"]
            assert not differences(disk / "set", where / "set", owners=True)
        finally:
            shutil.rmtree(where, ignore_errors=True)
    image.unlink()


def make_files(source: Path, count: int, size_bytes: int) -> Path:
    """Make files of about that size in one directory, each of its own size."""
    source.mkdir()
    for number in range(count):
        (source / f"{number}.bin").write_bytes(bytes(size_bytes + number))
    return source


@pytest.mark.timed
def test_a_far_source_is_asked_for_many_files_at_once(safe_dir: Path) -> None:
    source = safe_dir / "files"
    for number in range(300):
        folder = source / f"class-{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(bytes([number % 251]) * (30_000 + number))
    with far.far_source(source, safe_dir) as slow:
        document, _ = stage(slow.mount, safe_dir / "target", "--name", "files")
        stats = slow.stats()
    assert document["copied_files"] == 300
    assert document["planned_readers"] == 64
    assert stats.most_at_once >= 16
    # Each file is opened and read once, beside the sample's few.
    assert 300 <= stats.opens <= 300 + 40
    # Passthrough file systems have directories of other sizes and holes that they do not tell of.
    assert not differences(source, safe_dir / "target" / "files", owners=True, holes=False)


class Watching(Silent):
    """An observer that keeps what it is told of the copying."""

    def __init__(self) -> None:
        self.now = ""
        self.whole: tuple[int | None, int | None] = (None, None)
        self.told: list[tuple[int, int]] = []

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        self.now = name
        if name == "copy":
            self.whole = files, size_bytes

    def progress(self, files: int, size_bytes: int) -> None:
        if self.now == "copy":
            self.told.append((files, size_bytes))


def test_progress_does_not_wait_for_a_task_to_end(safe_dir: Path) -> None:
    """One reader has hundreds of files in hand at once, which may take minutes."""
    source = make_source(safe_dir / "source", directories=2, files=40)
    watching = Watching()
    with far.far_source(source, safe_dir, request_seconds=0.02) as slow:
        request = StageRequest(str(slow.mount), "data", str(safe_dir), None, readers=1)
        with plan_stage(request, watching) as plan:
            result = carry_out(plan, watching)
    meanwhile = {size_bytes for files, size_bytes in watching.told if files == 0}
    assert len(meanwhile - {0}) > 2
    assert watching.told == sorted(watching.told)
    assert watching.told[-1][1] <= result.copied_bytes


def test_a_few_files_that_are_far_away_are_asked_for_at_once_too(safe_dir: Path) -> None:
    """So few are copied without a worker process where they are in memory, and nowhere else."""
    source = make_files(safe_dir / "files", 64, 30_000)
    with far.far_source(source, safe_dir, request_seconds=0.05) as slow:
        document, _ = stage(slow.mount, safe_dir / "target", "--name", "files")
        stats = slow.stats()
    assert document["copied_files"] == 64
    assert stats.most_at_once >= 16  # the sample asks for 8


def test_what_a_listing_brings_is_not_asked_for_again(safe_dir: Path) -> None:
    """The kernel lets a server send it (READDIRPLUS) only while somebody looks at what came."""
    if not ctypes.util.find_library("fuse3"):
        pytest.skip("libfuse 2 knows no READDIRPLUS")
    source = safe_dir / "flat"
    source.mkdir()
    for number in range(3 * LARGE_DIRECTORY):
        (source / f"{number:05d}.jpg").write_bytes(b"x")
    with (
        far.far_source(source, safe_dir, metadata_seconds=0.003, plus=True) as slow,
        open_source(str(slow.mount)) as source_fd,
    ):
        scan = scan_source(source_fd, StorageClass.FUSE)
        asked = slow.stats().metadata
    assert scan.totals.files == 3 * LARGE_DIRECTORY
    assert asked < LARGE_DIRECTORY


@pytest.fixture
def slow_directories(safe_dir: Path, user_attributes: None) -> Iterator[far.FarSource]:
    """A far source that takes a while to tell of each of its many directories.

    FUSE looks up one name of a directory at a time, so that few parents would be few at once.
    """
    source = safe_dir / "directories"
    for number in range(400):
        folder = source / f"part-{number % 50}" / f"{number}"
        folder.mkdir(parents=True)
        os.setxattr(folder, "user.number", b"%d" % number)
        folder.chmod(0o700 + number % 0o100)
        os.utime(folder, ns=(number, number * 1_000_000_007))
    with far.far_source(source, safe_dir, metadata_seconds=0.03) as slow:
        yield slow


def test_slow_directories_are_finished_many_at_once(
    slow_directories: far.FarSource, safe_dir: Path
) -> None:
    target = safe_dir / "target"
    target.mkdir()
    # Scanned where it is near: what was just asked for far away would be remembered here.
    with open_source(str(safe_dir / "directories")) as near_fd:
        scan = scan_source(near_fd, StorageClass.UNKNOWN)
    with open_source(str(slow_directories.mount)) as source_fd:
        target_fd = os.open(target, os.O_RDONLY)
        lost, other_modes = finish_directories(
            scan.directories, source_fd, target_fd, processes=2, threads=32, observer=Silent()
        )
        os.close(target_fd)
    # Not more, because the ways to them lead through one parent, one after the other.
    assert slow_directories.stats().most_at_once >= 5
    assert (lost, other_modes) == (0, {})
    assert not differences(safe_dir / "directories", target, owners=True, xattrs=False)


def test_status_asks_a_slow_source_for_many_directories_at_once(
    slow_directories: far.FarSource, safe_dir: Path
) -> None:
    """One after the other they would not all be told in the time that status gives a source."""
    stage(slow_directories.mount, safe_dir / "target", "--name", "set")
    slow_directories.reset()
    args = [sys.executable, "-m", "hostprep", "status", "--json"]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    assert [each["freshness"] for each in json.loads(done.stdout)["datasets"]] == ["fresh"]
    assert slow_directories.stats().most_at_once >= 32


def test_one_reader_on_request(safe_dir: Path) -> None:
    source = make_files(safe_dir / "files", 20, 5000)
    with far.far_source(source, safe_dir) as slow:
        stage(slow.mount, safe_dir / "target", "--gentle", "--name", "files")
        assert slow.stats().most_at_once <= 8  # the sample's look, before the one reader
    assert not differences(source, safe_dir / "target" / "files", owners=True, holes=False)


def test_all_of_a_gentle_command_steps_behind(safe_dir: Path) -> None:
    """Not its workers alone: it scans, orders, and finishes directories itself."""
    source = safe_dir / "files"
    source.mkdir()
    (source / "file").write_text("one")
    program = (
        "import os, sys; from hostprep.cli.main import run; code = run(sys.argv[1:]);"
        "import psutil; print(code, os.nice(0), int(psutil.Process().ionice().ioclass))"
    )
    args = ["stage", str(source), "--to", str(safe_dir / "target")]
    for more, said in (([], "0 0 0"), (["--gentle"], "0 19 3")):
        done = subprocess.run(
            [sys.executable, "-c", program, *args, *more], stdout=-1, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_gentle_run_that_is_interrupted_leaves_no_worker(number: int, safe_dir: Path) -> None:
    """Its workers are in a session of their own, where the signal of a terminal does not come."""
    source = make_files(safe_dir / "files", 300, 5000)
    with far.far_source(source, safe_dir, request_seconds=0.05) as slow:
        args = [sys.executable, "-m", "hostprep", "stage", str(slow.mount), "--gentle"]
        args += ["--to", str(safe_dir / "target"), "--name", "files"]
        # Below nohup a hang-up is ignored, by these tests and so by what they start.
        with subprocess.Popen(
            args,
            stdout=-1,
            stderr=-1,
            process_group=0,
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        ) as run:
            while slow.stats().opens < 40:
                assert run.poll() is None
                time.sleep(0.05)
            workers = psutil.Process(run.pid).children()
            os.killpg(run.pid, number)  # as a terminal does
            run.communicate(timeout=60)
        assert run.returncode == 130
        assert workers
        assert not [worker for worker in workers if worker.is_running()]


@pytest.mark.parametrize("silent", ["source", "target"])
def test_who_does_not_answer_is_named_and_ctrl_c_ends_the_waiting(
    silent: str, safe_dir: Path
) -> None:
    """The kernel lets such a call end by a signal that kills, and by no other."""
    (safe_dir / "data").mkdir()
    (safe_dir / "data/file").write_text("one")
    with failing_fs(safe_dir / "data", where=safe_dir) as fs:
        other = safe_dir / "other"
        other.mkdir()
        source, target = (fs.mount, other) if silent == "source" else (other, fs.mount)
        fs.tell(Rule("*", "statfs", None, hang_seconds=60))
        args = [sys.executable, "-m", "hostprep", "stage", str(source), "--to", str(target)]
        with subprocess.Popen([*args, "--json"], stdout=-1, stderr=-1, text=True) as run:
            assert run.stderr is not None
            assert f"waiting for {fs.mount}, which has not" in run.stderr.readline()
            run.send_signal(signal.SIGINT)
            asked = time.monotonic()
            assert run.wait(40) == 130
            assert time.monotonic() - asked < 40
            assert run.stdout is not None
            assert json.loads(run.stdout.read())["error"]["code"] == "interrupted"
        assert os.listdir(safe_dir / "data") == ["file"]


@pytest.mark.parametrize(
    ("operation", "pattern", "inside"),
    [
        ("readdir", "*", False),
        ("readdir", "*", True),  # mounted inside of what lies on a disk
        ("read", "*", False),
        ("listxattr", "/", False),
    ],
)
def test_a_source_that_ceases_to_answer_leaves_ctrl_c_its_effect(
    operation: str, pattern: str, inside: bool, safe_dir: Path
) -> None:
    """Nothing ends a wait for what a server has taken in hand: others do it than who is asked."""
    for name in ("data", "around"):
        (safe_dir / name).mkdir()
    (safe_dir / "data/file").write_text("one")
    with failing_fs(safe_dir / "data", where=safe_dir / "around") as fs:
        fs.tell(Rule(pattern, operation, None, hang_seconds=60))
        source = safe_dir / "around" if inside else fs.mount
        target = safe_dir / "target"
        args = [sys.executable, "-m", "hostprep", "stage", str(source), "--to", str(target)]
        with subprocess.Popen(args, stdout=-1, stderr=-1) as run:
            while not fs.injected():
                assert run.poll() is None
                time.sleep(0.01)
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=40)  # whoever is stuck has not kept what it was to print to
        assert run.returncode == 130


def test_an_update_from_what_ceases_to_answer_leaves_ctrl_c_its_effect(safe_dir: Path) -> None:
    """Before anything new is placed, the ACLs of folders that have changed are asked for."""
    (safe_dir / "data").mkdir()
    (safe_dir / "data/file").write_text("one")
    with failing_fs(safe_dir / "data", where=safe_dir) as fs:
        stage(fs.mount, safe_dir / "target", "--name", "set")
        (safe_dir / "data/new").write_text("two")
        fs.tell(Rule("/", "getxattr", None, hang_seconds=60))
        args = [sys.executable, "-m", "hostprep", "stage", str(fs.mount), "--name", "set"]
        with subprocess.Popen([*args, "--to", safe_dir / "target"], stdout=-1, stderr=-1) as run:
            while not fs.injected():
                assert run.poll() is None
                time.sleep(0.01)
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=40)
        assert run.returncode == 130


@pytest.mark.parametrize(("pattern", "operation"), [("/file", "open"), ("*", "readdir")])
def test_a_source_that_ceases_to_answer_while_it_is_looked_at_is_named(
    pattern: str, operation: str, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would be said for as long as it takes."""
    monkeypatch.setattr("hostprep.host.answering._FIRST_SECONDS", 0.1)
    (safe_dir / "data").mkdir()
    (safe_dir / "data/file").write_text("one")
    hangs = Rule(pattern, operation, None, hang_seconds=60)

    class Listening(Silent):
        def progress(self, files: int, size_bytes: int) -> None:
            if fs.injected():  # from then on the server answers nothing at all
                fs.tell(hangs, Rule("*", "statfs", None, hang_seconds=60))

        def note(self, message: str) -> None:
            raise KeyboardInterrupt(message)

    with failing_fs(safe_dir / "data", where=safe_dir) as fs:
        fs.tell(hangs)
        request = StageRequest(str(fs.mount), "set", str(safe_dir / "target"), None)
        with (
            pytest.raises(KeyboardInterrupt, match=f"waiting for {fs.mount}, which has not"),
            plan_stage(request, Listening()),
        ):
            pass


def test_sources_that_do_not_answer_are_named_and_waited_for_once(
    safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is gone takes ten seconds of status, however many data sets came from it."""
    monkeypatch.setattr("hostprep.staging.freshness._SOURCE_SECONDS", 2.5)
    (safe_dir / "data").mkdir()
    (safe_dir / "data/file").write_text("one")
    told: list[tuple[str, int]] = []

    class Listening(Silent):
        def phase(self, name: str, *, files: int | None = None, **_: int | None) -> None:
            self.name = name

        def progress(self, files: int, size_bytes: int) -> None:
            told.append((self.name, files))

    with failing_fs(safe_dir / "data", where=safe_dir) as fs:
        for name in ("one", "two"):
            stage(fs.mount, safe_dir / "target", "--name", name)
        fs.tell(Rule("*", "statfs", None, hang_seconds=60))
        for found in dataset_statuses(check_source=True, observer=Listening()):
            assert (found.state, found.freshness) == ("staged", "unknown")
            assert found.reason.startswith("its source has not answered for 2.5 s")
            assert str(found.hint).startswith(WHICH_MOUNT)
        assert told[0] == ("comparing data sets with their sources", 1)
        assert len([each for each in fs.injected() if each.operation == "statfs"]) == 1
        # With nothing there to compare with it, as after a reboot, it is not asked at all.
        shutil.rmtree(safe_dir / "target")
        assert {each.state for each in dataset_statuses(check_source=True)} == {"missing"}
        assert len([each for each in fs.injected() if each.operation == "statfs"]) == 1


def test_a_target_that_does_not_answer_holds_neither_status_nor_check(safe_dir: Path) -> None:
    """Nor, deaf to Ctrl-C, what removes the data set."""
    (safe_dir / "beneath").mkdir()
    (safe_dir / "data").mkdir()
    (safe_dir / "data/file").write_text("one")
    command = [sys.executable, "-m", "hostprep"]
    with failing_fs(safe_dir / "beneath", where=safe_dir) as fs:
        stage(safe_dir / "data", fs.mount)
        stage(safe_dir / "data", safe_dir / "near")
        fs.tell(Rule("*", "statfs", None, hang_seconds=60))
        began = time.monotonic()
        done = subprocess.run([*command, "status", "--json"], capture_output=True, check=False)
        found = {each["target"]: each for each in json.loads(done.stdout)["datasets"]}
        far_one, near_one = found[f"{fs.mount}/data"], found[str(safe_dir / "near/data")]
        assert (far_one["state"], far_one["freshness"]) == ("unreachable", "unknown")
        assert "has not answered for 5 s" in far_one["reason"]
        assert (near_one["state"], near_one["freshness"]) == ("staged", "fresh")
        done = subprocess.run(
            [*command, "check", "--only", "HP010", "--json"], capture_output=True, check=False
        )
        said = {each["subject"]: each for each in json.loads(done.stdout)["checks"]}
        assert sorted(each["status"] for each in said.values()) == ["PASS", "UNKNOWN"]
        assert time.monotonic() - began < 40

        unstage = [*command, "unstage", f"{fs.mount}/data"]
        with subprocess.Popen([*unstage, "--json"], stdout=-1, stderr=-1, text=True) as run:
            assert run.stderr is not None
            assert f"waiting for {fs.mount}/data, which has not" in run.stderr.readline()
            run.send_signal(signal.SIGINT)
            assert run.wait(40) == 130
        forgotten = subprocess.run([*unstage, "--forget"], capture_output=True, check=False)
        assert forgotten.returncode == 0, forgotten.stderr
    assert (safe_dir / "beneath/data/file").read_text() == "one"
