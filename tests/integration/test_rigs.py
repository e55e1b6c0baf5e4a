"""The slow sources cost what their models say, and go away however their user ends."""

from __future__ import annotations

import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.rigs.arm import ArmDisk, arm_disk, write_scattered
from benchmarks.rigs.far import FarSource, far_source
from tests.kit import loops, serving

MIB = 1 << 20
SIZE_BYTES = 1 << 30
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def disk(safe_dir: Path) -> Iterator[ArmDisk]:
    with arm_disk(SIZE_BYTES, safe_dir) as disk:
        yield disk
    assert not traces(safe_dir)


def traces(where: Path) -> list[str]:
    """Return the mounts, loop devices and processes that still know the directory."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    loops = [str(f) for f in Path("/sys/block").glob("loop*/loop/backing_file") if _has(f, where)]
    servers = [str(f) for f in Path("/proc").glob("[0-9]*/cmdline") if _has(f, where)]
    return [*(line for line in mounts if str(where) in line), *loops, *servers]


def _has(file: Path, where: Path) -> bool:
    try:
        return os.fsencode(where) in file.read_bytes() and f"/{os.getpid()}/" not in str(file)
    except OSError:
        return False  # gone meanwhile


def read_directly(path: Path, requests: list[tuple[int, int]]) -> float:
    """Read (offset, size) one after the other, past the page cache; return the seconds."""
    buffer = mmap.mmap(-1, max(size for _, size in requests))
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        begin = time.monotonic()
        for offset, size in requests:
            assert os.preadv(file, [memoryview(buffer)[:size]], offset) == size
        return time.monotonic() - begin
    finally:
        os.close(file)


@pytest.mark.timed
def test_requests_cost_what_the_model_says(disk: ArmDisk) -> None:
    """The expected sum is computed here from the issue's own figures, not by the rig's code."""
    dice = random.Random(1)
    far_away = [(dice.randrange(SIZE_BYTES // 4096 - 64) * 4096, 65_536) for _ in range(80)]
    onwards = [
        (512 * MIB + n * 200_704, 4096) for n in range(40)
    ]  # gaps of 196,608 bytes: read over
    backwards = [(700 * MIB - n * 8192, 4096) for n in range(20)]
    requests = [(0, 4096), *far_away, *onwards, *backwards]
    read_directly(disk.file, [(SIZE_BYTES - 4096, 4096)])  # the head ends at the end of the disk
    disk.reset()
    head, seeks, seek_seconds, transfer_seconds = SIZE_BYTES, 0, 0.0, 0.0
    for offset, size in requests:
        if 0 <= offset - head < 0.002 * 160e6:
            transfer_seconds += (offset - head) / 160e6
        else:
            seeks += 1
            distance = abs(offset - head) / SIZE_BYTES
            seek_seconds += 0.001 + 0.015 * distance**0.5 + 0.00833 / 2
        transfer_seconds += size / 160e6
        head = offset + size
    seconds = read_directly(disk.file, requests)
    stats = disk.stats()
    assert (stats.requests, stats.seeks) == (len(requests), seeks)
    assert stats.bytes == sum(size for _, size in requests)
    assert stats.seek_seconds == pytest.approx(seek_seconds, rel=1e-9)
    assert stats.transfer_seconds == pytest.approx(transfer_seconds, rel=1e-9)
    assert seconds >= (seek_seconds + transfer_seconds) * 0.95
    assert disk.device is not None
    direct = read_directly(disk.device, requests)
    assert direct >= (seek_seconds + transfer_seconds) * 0.95
    # The machine may be busy; a model that is far off is off in each of some runs.
    slowest = (seek_seconds + transfer_seconds) * 1.20
    again = (read_directly(disk.device, requests) for _ in range(4))
    assert direct < slowest or any(took < slowest for took in again)


@pytest.mark.timed
def test_a_long_file_comes_at_the_rate_of_the_disk(disk: ArmDisk) -> None:
    with disk.unmetered():
        (disk.mount / "long").write_bytes(random.Random(2).randbytes(MIB) * 96)
    rates = []
    for _ in range(3):
        disk.remount()
        disk.reset()
        begin = time.monotonic()
        with (disk.mount / "long").open("rb", buffering=0) as file:
            while file.read(1 << 17):
                pass
        rates.append(96 * MIB / (time.monotonic() - begin))
        assert disk.stats().seeks < 10
        assert disk.stats().bytes >= 96 * MIB, "nothing was cached"
    assert 130e6 < max(rates) < 168e6


def first_extent(path: Path) -> int:
    """Return the file's place on the disk as debugfs would, by filefrag."""
    said = subprocess.run(["filefrag", "-v", path], capture_output=True, text=True, check=True)
    line = next(line for line in said.stdout.splitlines() if line.strip().startswith("0:"))
    return int(line.split(":")[2].split("..")[0])


def test_order_is_what_saves_seeks(disk: ArmDisk) -> None:
    total_bytes, root = write_scattered(disk, files=150, mean_bytes=100_000, folders=10)
    assert disk.stats().requests == 0
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    assert len(paths) == 150
    assert sum(path.stat().st_size for path in paths) == total_bytes
    with disk.unmetered():
        by_place = sorted(paths, key=first_extent)
    assert by_place != paths
    seeks = []
    for order in (paths, by_place):
        disk.remount()
        [path.stat() for path in order]  # names and inodes are not what this is about
        disk.reset()
        for path in order:
            path.read_bytes()
        assert disk.stats().bytes >= total_bytes
        seeks.append(disk.stats().seeks)
    assert seeks[0] > 120
    assert seeks[1] < 20


def test_the_disk_says_that_it_rotates(disk: ArmDisk) -> None:
    assert disk.device is not None
    assert Path("/sys/block", disk.device.name, "queue/rotational").read_text() == "1\n"


@pytest.fixture
def source(safe_dir: Path) -> Iterator[FarSource]:
    files = safe_dir / "files"
    files.mkdir()
    for number in range(300):
        (files / f"{number:03}").write_bytes(random.Random(number).randbytes(100_000))
    with far_source(files, safe_dir) as source:
        yield source
    assert not traces(safe_dir)


def read_all(paths: list[Path], readers: int) -> float:
    begin = time.monotonic()
    with ThreadPoolExecutor(readers) as pool:
        assert sum(pool.map(lambda path: len(path.read_bytes()), paths)) == 100_000 * len(paths)
    return time.monotonic() - begin


@pytest.mark.timed
def test_a_file_far_away_costs_an_open_and_a_read(source: FarSource) -> None:
    paths = sorted(source.mount.iterdir())[:30]
    took = []
    for _ in range(3):  # what was read once is fetched again
        [path.stat() for path in paths]
        source.reset()
        seconds = read_all(paths, 1)
        stats = source.stats()
        assert (stats.opens, stats.reads, stats.bytes) == (30, 30, 3_000_000)
        assert stats.most_at_once == 1
        assert seconds >= 30 * 0.020
        took.append(seconds)
    assert min(took) < 30 * 0.020 * 1.25


@pytest.mark.timed
def test_many_readers_are_served_at_once(source: FarSource) -> None:
    paths = sorted(source.mount.iterdir())
    [path.stat() for path in paths]
    source.reset()
    seconds = read_all(paths, 64)
    stats = source.stats()
    assert (stats.opens, stats.reads) == (300, 300)
    assert 32 < stats.most_at_once <= 64
    assert seconds < 300 * 0.020 / 10


def test_attributes_are_free_unless_asked_for(safe_dir: Path) -> None:
    (safe_dir / "file").touch()
    with far_source(safe_dir, safe_dir, metadata_seconds=0.2) as source:
        begin = time.monotonic()
        (source.mount / "file").stat()
        assert time.monotonic() - begin >= 0.2


def test_the_far_source_cannot_be_written(source: FarSource) -> None:
    with pytest.raises(OSError, match="Read-only"):
        (source.mount / "new").touch()


WITH_A_DISK = """
import sys, time
from pathlib import Path
from benchmarks.rigs.arm import arm_disk
with arm_disk(64 << 20, Path(sys.argv[1])) as disk:
    (disk.mount / "file").write_bytes(b"x")
    print("up", flush=True)
    while True:  # no single long sleep: a signal just before it would be seen at its end
        time.sleep(0.1)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_user_leaves_nothing(how: signal.Signals, safe_dir: Path) -> None:
    if (
        reason := serving.unavailable() or loops.unavailable()
    ):  # in this process: it is another one that serves
        pytest.skip(reason)
    command = [sys.executable, "-c", WITH_A_DISK, str(safe_dir)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "up\n"
        assert len(traces(safe_dir)) >= 4, "two mounts, a loop device and processes"
        user.send_signal(how)
    deadline = time.monotonic() + 15
    while left := traces(safe_dir):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
