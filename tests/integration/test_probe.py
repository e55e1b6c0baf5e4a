"""The probe against storage whose truth is known: rigs, loop devices, limits, and broken mounts."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rigs.arm import arm_disk, write_scattered
from benchmarks.rigs.far import far_source
from hostprep.host.block import StorageClass, locate
from hostprep.probing.judge import judge
from hostprep.probing.judgement import Behaviour
from hostprep.probing.model import Measured, Settings
from hostprep.probing.probe import probe, target
from hostprep.probing.readers import read_whole_files
from hostprep.system.own_directory import PROBE_PREFIX
from tests.integration.test_cgroup_limits import cgroup, hierarchy, inside
from tests.kit import failing_fs, loops
from tests.kit.failing_fs import Rule

MIB = 1 << 20
# What others on this machine may be at meanwhile.
MACHINE_BUSY = {"cpu_saturated", "disk_busy", "slowed_down"}
# What storage gives that is a limit of a control group is that, and is told to be.
LIMITED = {"read_limited"}
TRUE_WITHIN = 0.10
EPOCH_WITHIN = 0.15
HAND_WITHIN = 0.05
# What a probe may take beyond its time: the last request, and taking its files away.
LATE_SECONDS = 1.0


class Watch:
    """An observer that reads a truth at the border of all phases, and whenever told something."""

    def __init__(self, truth: Callable[[], Any]) -> None:
        self._truth = truth
        self._borders: list[tuple[str, Any]] = []
        self._told: list[tuple[str, Any]] = []

    @property
    def seen(self) -> list[Any]:
        return [truth for _, truth in self._told]

    def phase(self, name: str, seconds: float) -> None:
        self._borders.append((name, self._truth()))

    def progress(self, text: str) -> None:
        self._told.append((text, self._truth()))

    def during(self, name: str) -> Any:
        """Return what the truth's counters rose by in the phase that begins with ``name``."""
        for (phase, before), (_, after) in zip(
            self._borders, [*self._borders[1:], ("end", self._truth())], strict=True
        ):
            if phase.startswith(name):
                return _risen(before, after)
        raise AssertionError(f"no phase {name}")

    def until_told(self, name: str, words: str) -> Any:
        """Return the same from the phase's begin until it was told something with ``words``."""
        before = next(truth for phase, truth in self._borders if phase.startswith(name))
        return _risen(before, next(truth for text, truth in self._told if words in text))


def _risen(before: Any, after: Any) -> Any:
    rose = {f.name: getattr(after, f.name) - getattr(before, f.name) for f in fields(before)}
    return type(before)(**rose)


def measure(path: Path, seconds: float = 8, size_mib: int = 64, **settings: Any) -> Measured:
    watch = settings.pop("watch", None) or Watch(lambda: None)
    measured = probe(target(str(path)), Settings(seconds, size_mib * MIB, **settings), watch)
    assert not list(path.glob(f"{PROBE_PREFIX}*"))
    return measured


def hostprep(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hostprep", "probe", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def small_set(folder: Path, files: int) -> Path:
    folder.mkdir()
    for number in range(files):
        (folder / f"{number}.jpg").write_bytes(os.urandom(40_000))
    return folder


def fio_by_hand(file: Path) -> float:
    """Read a file of 256 MiB sequentially as one would at a shell; return bytes a second."""
    file.write_bytes(os.urandom(256 * MIB))
    os.sync()
    line = ["fio", "--name=hand", f"--filename={file}", "--rw=read", "--bs=1M", "--iodepth=32"]
    line += ["--ioengine=libaio", "--direct=1", "--runtime=2", "--time_based", "--readonly"]
    line += ["--output-format=json"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"])


def codes(measured: Measured) -> set[str]:
    return {reason.code for reason in judge(measured, None).invalid}


def epoch_seconds(root: Path, readers: int) -> float:
    """Read every file once, shuffled, as a training would; return the seconds."""
    files = [file for file in root.rglob("*") if file.is_file()]
    random.Random(7).shuffle(files)
    with ThreadPoolExecutor(readers) as pool:
        begun = time.monotonic()
        list(pool.map(Path.read_bytes, files))
        return time.monotonic() - begun


@pytest.mark.timed
def test_a_disk_with_an_arm_is_measured_as_its_own_clock_says(safe_dir: Path) -> None:
    with arm_disk(2048 * MIB, safe_dir) as disk:
        _, root = write_scattered(disk, files=600, mean_bytes=100_000, folders=20)
        watch = Watch(disk.stats)
        measured = measure(root, seconds=16, size_mib=256, readers=4, watch=watch)
        judgement = judge(measured, None)
        assert judgement.storage_class is StorageClass.ARM
        assert judgement.behaviour is Behaviour.ARM
        assert codes(measured) <= MACHINE_BUSY

        for run in measured.fio:
            words = "sequential" if run.pattern == "read" else "random"
            size = "1.00 MiB" if run.pattern == "read" else "4.00 KiB"
            truth = watch.during(f"{words} reads of {size}, depth {run.depth}")
            model = truth.bytes / (truth.seek_seconds + truth.transfer_seconds)
            assert run.bytes_per_s == pytest.approx(model, rel=TRUE_WITHIN), run

        assert measured.small is not None
        assert measured.small.cached_share is not None and measured.small.cached_share < 0.05
        # To the end of the second cold pass: what the kernel has taken out of memory since, large
        # pages made of others for instance, is read again before the warm one.
        truth = watch.until_told("reading small files", "4 at a time: ")
        model = truth.bytes / (truth.seek_seconds + truth.transfer_seconds)
        read = sum(run.read_bytes for run in measured.small.cold)
        rate = read / sum(run.seconds for run in measured.small.cold)
        # A machine that is slow to wake who waited takes its time beside the arm's.
        by_hand, arm_seconds = {}, 0.0
        for readers in (1, 4):
            disk.remount()
            before = disk.stats()
            by_hand[readers] = epoch_seconds(root, readers)
            rose = _risen(before, disk.stats())
            arm_seconds += rose.seek_seconds + rose.transfer_seconds
        beside = sum(by_hand.values()) / arm_seconds
        assert 0.95 < beside < 2, beside
        assert rate == pytest.approx(model / beside, rel=TRUE_WITHIN)

        hand = fio_by_hand(disk.mount / "by-hand")
        assert measured.sequential is not None
        assert measured.sequential.bytes_per_s == pytest.approx(hand, rel=HAND_WITHIN)

        assert judgement.epoch is not None
        real = by_hand[judgement.epoch.readers]
        assert judgement.epoch.cold_seconds == pytest.approx(real, rel=EPOCH_WITHIN)


@pytest.mark.timed
def test_far_storage_is_latency_and_is_read_where_it_cannot_be_written(
    safe_dir: Path, tmp_path: Path
) -> None:
    chance = random.Random(2)
    for number in range(1200):
        folder = tmp_path / f"class{number % 10}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(os.urandom(chance.randrange(50_000, 150_000)))
    large = tmp_path / "shard.tar"
    large.write_bytes(os.urandom(32 * MIB))
    before = large.stat().st_mtime_ns
    with far_source(tmp_path, safe_dir) as source:
        watch = Watch(source.stats)
        measured = measure(source.mount, seconds=16, readers=8, watch=watch)
        judgement = judge(measured, None)
        assert judgement.storage_class is StorageClass.FUSE
        assert judgement.behaviour is Behaviour.LATENCY, measured.fio
        # To ask whether files are in memory is to open them: that does not take fio's time.
        assert min(run.seconds for run in measured.fio) > 1
        # Nor is one file after the other opened when fio is done: it would tell nothing here.
        assert watch.during("random reads of 4.00 KiB, depth 32").opens < 10
        assert measured.file_source == "existing"
        assert measured.file_bytes == 32 * MIB
        assert "nothing can be written here" in (measured.file_note or "")
        single, queued = measured.run("randread", 1), measured.run("randread", 32)
        assert single is not None and queued is not None and measured.small is not None
        assert single.iops == pytest.approx(100, rel=TRUE_WITHIN)
        assert queued.iops > 15 * single.iops
        one, many = measured.small.cold
        # Each file is an open and a read; what a request costs, the random reads tell. By the
        # median, as the shard may be among those that one reader had.
        assert 1 / one.latency.p50 == pytest.approx(single.iops / 2, rel=TRUE_WITHIN)
        assert many.files_per_s == pytest.approx(8 / one.latency.p50, rel=EPOCH_WITHIN)
        assert judgement.epoch is not None
        real = epoch_seconds(source.mount, judgement.epoch.readers)
        assert judgement.epoch.cold_seconds == pytest.approx(real, rel=EPOCH_WITHIN)
    assert large.stat().st_mtime_ns == before


@pytest.mark.timed
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_file_systems_on_loop_devices(kind: loops.Kind, tmp_path: Path, safe_dir: Path) -> None:
    below = locate(str(tmp_path)).storage_class
    image, point = tmp_path / "image", safe_dir / "point"
    point.mkdir()
    loops.make_filesystem(image, kind, 512 * MIB)
    with ExitStack() as stack:
        try:
            device = stack.enter_context(loops.loop_mount(image, point, kind, direct_io=True))
        except OSError as error:
            pytest.skip(f"no loop device with direct I/O here: {error.strerror}")
        measured = measure(point, seconds=6)
    storage = measured.storage
    assert storage.fstype == kind
    assert storage.devices[0].name == device.name
    assert storage.devices[0].kind == "loop"
    assert storage.storage_class is below
    assert measured.file_source == "made"
    assert measured.file_bytes == pytest.approx(64 * MIB, rel=0.3)
    for run in (*measured.fio, *(measured.small.cold if measured.small else ())):
        if run.load.device_bytes is not None:
            assert run.load.device_bytes >= 0.9 * run.read_bytes
    assert codes(measured) <= MACHINE_BUSY


def test_a_disk_of_ram_is_not_measured_by_the_page_cache_above_it(safe_dir: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "volume", safe_dir], check=True)
    point = safe_dir / "point"
    point.mkdir()
    loops.make_filesystem(safe_dir / "image", "ext4", 128 * MIB)
    with loops.loop_mount(safe_dir / "image", point, "ext4"):
        small_set(point / "data", 60)
        os.sync()
        measured = measure(point / "data", seconds=5, size_mib=32)
    assert measured.storage.storage_class is StorageClass.RAM
    assert measured.small is not None and measured.small.source == "dataset"
    assert measured.small.cached_share == 0


@pytest.mark.timed
def test_compressed_files_are_not_taken_for_cached_ones(tmp_path: Path, safe_dir: Path) -> None:
    if not locate(str(tmp_path)).disks:
        pytest.skip("the temporary folder is on no disk whose counters could tell")
    image, point = tmp_path / "image", safe_dir / "point"
    point.mkdir()
    loops.make_filesystem(image, "btrfs", 512 * MIB)
    with loops.loop_mount(image, point, "btrfs", ["compress=zstd"]):
        data = point / "data"
        data.mkdir()
        # Text of numbers, which shrinks to a third or less.
        text = " ".join(map(str, range(10_000_000, 10_020_000)))
        for number in range(1000):
            (data / f"{number}.json").write_text(text[number:] + text[:number])
        os.sync()
    with ExitStack() as stack:
        # Without the option: how a file was written counts, not how it is mounted now.
        try:
            stack.enter_context(loops.loop_mount(image, point, "btrfs", direct_io=True))
        except OSError as error:
            pytest.skip(f"no loop device with direct I/O here: {error.strerror}")
        measured = measure(point / "data", seconds=8)
    assert measured.compressed
    assert measured.small is not None and measured.small.source == "dataset"
    delivered = [
        run.load.device_bytes / (run.read_bytes + run.again_bytes) for run in measured.small.cold
    ]
    assert 0.05 < max(delivered) < 0.5  # the test itself: they are compressed, and were read
    assert codes(measured) <= MACHINE_BUSY


def test_a_cache_below_the_device_is_found_out(tmp_path: Path, safe_dir: Path) -> None:
    """A loop device through the page cache: direct reads, and yet no disk gave the bytes."""
    if not locate(str(tmp_path)).disks:
        pytest.skip("the temporary folder is on no disk whose counters could tell")
    with loops.loop_filesystem("ext4", 256 * MIB, tmp_path) as point:
        judgement = judge(measure(point, seconds=6), None)
    assert "not_delivered" in {reason.code for reason in judgement.invalid}
    assert judgement.verdict == "INVALID"


def test_a_cache_below_a_loop_device_whose_file_is_not_seen_is_not_believed(
    safe_dir: Path, tmp_path: Path
) -> None:
    image, point = tmp_path / "image", safe_dir / "point"
    point.mkdir()
    loops.make_filesystem(image, "ext4", 96 * MIB)
    with loops.loop_mount(image, point, "ext4"):
        image.unlink()
        judgement = judge(measure(point, seconds=5, size_mib=32), None)
    assert ("buffered", None) in {(reason.code, reason.of) for reason in judgement.invalid}
    assert judgement.verdict == "INVALID"


@pytest.mark.timed
def test_memory_is_memory_and_the_budget_of_space_holds(safe_dir: Path) -> None:
    options = "size=256m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "volume", safe_dir], check=True)
    (safe_dir / "data").mkdir()

    def used() -> int:
        room = os.statvfs(safe_dir)
        return (room.f_blocks - room.f_bfree) * room.f_frsize

    watch = Watch(used)
    measured = measure(safe_dir / "data", seconds=5, size_mib=48, watch=watch)
    judgement = judge(measured, None)
    assert judgement.storage_class is StorageClass.RAM
    assert judgement.behaviour is Behaviour.MEMORY
    assert codes(measured) <= MACHINE_BUSY
    assert 40 * MIB < max(watch.seen) <= 49 * MIB  # the lock and the folders are pages, too
    assert used() < MIB
    assert measured.seconds < 8


def test_a_file_in_memory_says_nothing_of_the_data_below_an_overlay(
    safe_dir: Path, tmp_path: Path
) -> None:
    """As on a host that was booted from an image or a network: what is written goes to a tmpfs."""
    if locate(str(tmp_path)).storage_class is StorageClass.RAM:
        pytest.skip("the temporary folder is in memory")
    point = safe_dir / "point"
    for name in ("upper", "work", "point"):
        (safe_dir / name).mkdir()
    lower = small_set(tmp_path / "data", 60)
    os.sync()  # an overlay writes nothing out of its lower layers
    layers = f"lowerdir={lower},upperdir={safe_dir}/upper,workdir={safe_dir}/work"
    line = ["mount", "-t", "overlay", "-o", layers, "overlay", point]
    if subprocess.run(line, capture_output=True, check=False).returncode:
        pytest.skip("no overlay can be mounted here")
    judgement = judge(measure(point, seconds=5, size_mib=32), None)
    about = {(reason.code, reason.of) for reason in judgement.invalid}
    assert {("in_memory", "sequential reads"), ("in_memory", "random reads")} <= about
    assert ("in_memory", "small files") not in about
    assert judgement.verdict == "INVALID"


@pytest.mark.parametrize(("inodes", "small"), [(60, True), (30, False)])
def test_a_file_system_short_of_inodes_is_measured_as_far_as_they_go(
    safe_dir: Path, inodes: int, small: bool
) -> None:
    options = f"size=256m,nr_inodes={inodes}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "volume", safe_dir], check=True)
    measured = measure(safe_dir, seconds=5, size_mib=48)
    assert measured.sequential is not None and measured.file_source == "made"
    assert (measured.small is not None) is small


def test_a_file_system_that_does_not_say_how_full_it_is_is_measured(safe_dir: Path) -> None:
    subprocess.run(["mount", "-t", "ramfs", "volume", safe_dir], check=True)
    measured = measure(safe_dir, seconds=5, size_mib=48)
    assert measured.storage.storage_class is StorageClass.RAM
    assert 16 * MIB <= measured.file_bytes <= 48 * MIB
    assert codes(measured) <= MACHINE_BUSY


@pytest.mark.timed
def test_a_cgroups_limit_is_what_is_measured(tmp_path: Path) -> None:
    """Also where 32 requests of 1 MiB need six seconds to arrive; it is not the storage's."""
    limit = 5_000_000
    file = "blkio.throttle.read_bps_device"
    done = limited(tmp_path, file, limit, "--seconds", "12", "--size", "64M")
    fields = json.loads(done.stdout)
    assert done.returncode == 4, done.stderr
    assert fields["sequential"]["bytes_per_s"] == pytest.approx(limit, rel=TRUE_WITHIN)
    assert {reason["code"] for reason in fields["invalid_reasons"]} - MACHINE_BUSY == LIMITED
    assert fields["seconds"] < 12 + LATE_SECONDS


@pytest.mark.timed
@pytest.mark.parametrize(
    ("file", "limit", "read"),
    [
        ("read_iops_device", 300, lambda fields: fields["random_4k"]["depth_1"]["iops"]),
        ("read_bps_device", 10**7, lambda fields: fields["sequential"]["bytes_per_s"]),
    ],
)
def test_few_small_files_behind_a_cgroups_limit(
    tmp_path: Path, file: str, limit: int, read: Callable[[dict[str, Any]], float]
) -> None:
    """A pass over them is over before what the limit lets through at once is no matter."""
    small_set(tmp_path / "data", 120)
    os.sync()
    done = limited(tmp_path, f"blkio.throttle.{file}", limit, "--seconds", "15", "--size", "64M")
    fields = json.loads(done.stdout)
    assert done.returncode == 4, done.stderr
    assert read(fields) == pytest.approx(limit, rel=TRUE_WITHIN)
    expected = limit if file == "read_iops_device" else limit / 40_000
    for run in fields["small_files"]["cold"]:
        # One of a single reader's comes in tenths of a second: there are 15 of them.
        within = TRUE_WITHIN if run["readers"] > 1 else 1.5 * TRUE_WITHIN
        assert run["files_per_s"] == pytest.approx(expected, rel=within), run
    assert {reason["code"] for reason in fields["invalid_reasons"]} - MACHINE_BUSY == LIMITED
    assert fields["seconds"] < 15 + LATE_SECONDS


@pytest.mark.timed
def test_on_storage_that_answers_eight_requests_a_second_the_time_is_kept(tmp_path: Path) -> None:
    """32 requests at a time take four seconds to arrive there, and are not called off."""
    small_set(tmp_path / "data", 60)
    os.sync()
    file = "blkio.throttle.read_iops_device"
    done = limited(tmp_path, file, 8, "--seconds", "6", "--size", "64M")
    fields = json.loads(done.stdout)
    assert done.returncode == 4, done.stderr
    assert fields["seconds"] < 6 + LATE_SECONDS
    # What can be read one at a time was, and the rest is not made up.
    assert 4 < fields["random_4k"]["depth_1"]["iops"] < 16
    assert 0 < fields["sequential"]["depth_1"]["iops"] < 16
    assert "depth_32" not in fields["random_4k"] and "depth_32" not in fields["sequential"]
    told = {reason["message"] for reason in fields["invalid_reasons"]}
    assert any("random reads were only made" in message for message in told)
    assert {fewer["wanted"] for fewer in fields["fewer"]} <= {8, 32}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def limited(path: Path, file: str, limit: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Probe a path in a cgroup whose reads of the disk below are limited; skip where none is."""
    version, parent = hierarchy("blkio" if Path("/sys/fs/cgroup/blkio").exists() else "io")
    disks = locate(str(path)).disks
    if len(disks) != 1:
        pytest.skip("the temporary folder is not on a single disk")
    # Or it comes from the same disk, cold since an earlier probe, at the limit's speed.
    subprocess.run(["fio", "--version"], capture_output=True, check=True)
    with cgroup(parent) as group:
        if version == 1:
            (group / file).write_text(f"{disks[0].number} {limit}")
        else:
            word = "riops" if "iops" in file else "rbps"
            (group / "io.max").write_text(f"{disks[0].number} {word}={limit}")
        script = f'echo $$ > "{group}/cgroup.procs"; exec "$@"'
        line = [sys.executable, "-m", "hostprep", "probe", str(path), "--json"]
        return subprocess.run(
            ["sh", "-c", script, "sh", *line, *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.mark.timed
def test_a_quota_of_processor_time_is_not_taken_for_the_storages_limit(tmp_path: Path) -> None:
    version, parent = hierarchy("cpu")
    with cgroup(parent) as group:
        if version == 2:
            (group / "cpu.max").write_text("25000 100000")
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("25000")
        line = [sys.executable, "-m", "hostprep", "probe", str(tmp_path), "--json"]
        line += ["--seconds", "6", "--size", "64M", "--need", "10000000"]
        done = inside(group, *line)
    fields = json.loads(done.stdout)
    about = {(reason["code"], reason["of"]) for reason in fields["invalid_reasons"]}
    assert ("cpu_throttled", "small files") in about, done.stderr
    assert (done.returncode, fields["verdict"]) == (4, "INVALID")


def test_a_read_that_takes_seconds_is_not_taken_for_a_hang(safe_dir: Path) -> None:
    behind = small_set(safe_dir / "behind", 8)
    with failing_fs.failing_fs(behind, where=safe_dir) as slow:
        slow.tell(Rule("/0.jpg", "read", error=None, times=1, hang_seconds=6.5))
        names = [str(slow.mount / f"{number}.jpg") for number in range(8)]
        done = read_whole_files(names, 8, 0.3)
    assert max(done.seconds) > 6
    assert sorted(done.names) == names


@pytest.fixture
def data(safe_dir: Path) -> Iterator[Path]:
    """A small file system with data in it: a large file, and small ones."""
    image, point = safe_dir / "image", safe_dir / "data"
    point.mkdir()
    loops.make_filesystem(image, "ext4", 96 * MIB)
    with loops.loop_mount(image, point, "ext4"):
        for number in range(60):
            (point / f"{number}.jpg").write_bytes(os.urandom(40_000))
        (point / "shard").write_bytes(os.urandom(24 * MIB))
        os.sync()
        yield point


def test_a_read_only_mount_is_read(data: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", data], check=True)
    measured = measure(data, seconds=5)
    assert measured.file_source == "existing"
    assert "Read-only file system" in (measured.file_note or "")
    assert measured.small is not None and measured.small.source == "dataset"
    assert measured.sequential is not None


def test_a_full_disk_is_read_and_stays_as_it_is(data: Path) -> None:
    with open(data / "filler", "wb") as filler, pytest.raises(OSError):
        while True:
            filler.write(bytes(MIB))
            filler.flush()
    before = {file.name: file.stat().st_mtime_ns for file in data.iterdir()}
    measured = measure(data, seconds=5)
    assert measured.file_source == "existing"
    assert measured.file_note
    assert {file.name: file.stat().st_mtime_ns for file in data.iterdir()} == before


@pytest.mark.parametrize("operation", ["mkdir", "write"])
def test_a_used_up_quota_is_no_obstacle_to_reading(safe_dir: Path, operation: str) -> None:
    behind = small_set(safe_dir / "behind", 40)
    (behind / "shard").write_bytes(os.urandom(16 * MIB))
    with failing_fs.failing_fs(behind, where=safe_dir) as broken:
        broken.tell(Rule("*", operation, error=errno.EDQUOT))
        measured = measure(broken.mount, seconds=5)
    assert measured.file_source == "existing"
    assert "Disk quota exceeded" in (measured.file_note or "")
    assert len(list(behind.iterdir())) == 41


def test_an_empty_read_only_mount_is_invalid_and_says_why(data: Path) -> None:
    for file in data.iterdir():
        if file.is_file():
            file.unlink()
    subprocess.run(["mount", "-o", "remount,ro", data], check=True)
    done = hostprep(str(data), "--seconds", "5", "--need", "100")
    assert done.returncode == 4
    fields = json.loads(done.stdout)
    assert fields["sequential"] is None and fields["small_files"] is None
    words = {reason["code"]: reason["message"] for reason in fields["invalid_reasons"]}
    assert set(words) == {"no_file", "no_small_files", "not_measured"}
    assert "Read-only" in words["no_file"]


@pytest.mark.parametrize(("mode", "inner"), [(0o700, "inner"), (0o744, ".")])
def test_an_unreadable_folder_is_a_sentence(mode: int, inner: str, safe_dir: Path) -> None:
    folder = safe_dir / "closed"
    folder.mkdir(mode=mode)
    (folder / "inner").mkdir()
    script = (
        "import os, sys\n"
        "import typer, hostprep.cli.probe_text, hostprep.probing.probe, hostprep.probing.judge\n"
        "from hostprep.cli.main import run\n"
        "os.setgid(65534); os.setuid(65534)  # who may not even be able to read the library\n"
        f"sys.exit(run(['probe', {str(folder / inner)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "may not be read; nothing was measured" in done.stderr


@pytest.mark.parametrize("operation", ["getattr", "readdir", "statfs"])
def test_a_mount_that_hangs_is_answered_in_five_seconds(safe_dir: Path, operation: str) -> None:
    behind = safe_dir / "behind"
    (behind / "folder").mkdir(parents=True)
    with failing_fs.failing_fs(behind, where=safe_dir) as broken:
        broken.tell(Rule("*", operation, error=None, hang_seconds=60))
        begun = time.monotonic()
        done = hostprep(str(broken.mount / "folder"))
        took = time.monotonic() - begun
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "no_answer"
    assert "does not answer" in error["message"]
    assert took < 40  # the mount hangs for 60


@pytest.mark.parametrize(("operation", "error"), [("read", errno.EIO), ("open", errno.EACCES)])
def test_a_data_set_that_cannot_be_read_does_not_pass_by_files_made_beside_it(
    safe_dir: Path, operation: str, error: int
) -> None:
    behind = small_set(safe_dir / "behind", 60)
    with failing_fs.failing_fs(behind, where=safe_dir) as broken:
        broken.tell(Rule("/*.jpg", operation, error=error))
        done = hostprep(str(broken.mount), "--seconds", "5", "--size", "64M", "--need", "0.001")
    fields = json.loads(done.stdout)
    assert (done.returncode, fields["verdict"]) == (4, "INVALID")
    words = {reason["code"]: reason["message"] for reason in fields["invalid_reasons"]}
    # On a busy machine there may be no time for all 60.
    assert re.search(r"\b(\d+) of \1 files that were tried cannot be read", words["unreadable"])
    assert os.strerror(error) in words["unreadable"]


def test_facts_of_a_mount_that_hangs_are_not_waited_for(safe_dir: Path) -> None:
    (safe_dir / "behind").mkdir()
    line = [sys.executable, "-m", "hostprep", "facts", "--json"]
    with failing_fs.failing_fs(safe_dir / "behind", where=safe_dir) as broken:
        broken.tell(Rule("*", "getattr", error=None, hang_seconds=60))
        done = subprocess.run(
            [*line, str(broken.mount)], capture_output=True, text=True, timeout=40, check=False
        )
    assert done.returncode == 4
    assert json.loads(done.stdout)["error"]["code"] == "no_answer"


@pytest.mark.parametrize("operation", ["open", "read"])
def test_files_that_hang_do_not_keep_the_probe(safe_dir: Path, operation: str) -> None:
    behind = small_set(safe_dir / "behind", 60)
    script = (
        "import sys, hostprep.probing.probe as probe\n"
        "from hostprep.cli.main import run\n"
        "probe._SILENCE_SECONDS = 4\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    with failing_fs.failing_fs(behind, where=safe_dir) as broken:
        broken.tell(Rule("/*.jpg", operation, error=None, hang_seconds=90))
        line = [sys.executable, "-c", script, "probe", str(broken.mount), "--seconds", "5"]
        begun = time.monotonic()
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        took = time.monotonic() - begun
    assert done.returncode in (1, 4)
    assert "hangs" in done.stderr or "stopped answering" in done.stderr
    assert took < 60  # also its end: nobody waits for those that are stuck


def test_a_data_set_of_shards_is_read_sequentially(safe_dir: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900m", "v", safe_dir], check=True)
    block = os.urandom(MIB)
    for number in range(32):
        with open(safe_dir / f"shard-{number}.tar", "wb") as shard:
            for _ in range(17):
                shard.write(block)
    measured = measure(safe_dir, seconds=5)
    assert measured.dataset.large_files
    epoch = judge(measured, None).epoch
    assert epoch is not None and epoch.size_bytes == 32 * 17 * MIB


def test_a_file_system_that_is_unmounted_meanwhile_has_no_figures(safe_dir: Path) -> None:
    point = safe_dir / "point"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "v", point], check=True)
    small_set(point / "data", 60)
    line = [sys.executable, "-m", "hostprep", "probe", str(point), "--seconds", "6"]
    with subprocess.Popen(line, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
        deadline = time.monotonic() + 60
        while not list(point.glob(".hostprep-probe-*/data")) and time.monotonic() < deadline:
            time.sleep(0.02)
        subprocess.run(["umount", "--lazy", point], check=True)
        _, words = probe.communicate(timeout=60)
    assert probe.returncode == 4
    assert "was removed, moved, unmounted or mounted over while it was measured" in words
    assert not list(point.iterdir())
