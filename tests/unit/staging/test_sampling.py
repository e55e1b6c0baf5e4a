"""What is made of how a source answered a look."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hostprep.staging.source import sampling
from hostprep.staging.source.sampling import (
    Answer,
    gain_of,
    sum_up,
    take_sample,
    take_sample_apart,
)
from hostprep.staging.source.scan import scan_tree
from hostprep.system.trees import DirCache

HIT, SEEK = Answer(True, 10e-6, 50e-6), Answer(False, 15e-6, 9e-3)
MIB = 1 << 20


def test_files_that_wait_for_each_other_gain_nothing() -> None:
    one_by_one = [0.012 * number for number in range(1, 9)]
    assert gain_of(0.012, one_by_one) == 1.0


def test_one_that_is_late_by_itself_does_not_make_a_far_source_an_arm() -> None:
    gain = gain_of(0.020, [0.021] * 7 + [0.400])
    assert gain is not None and gain > 5
    assert gain_of(0.020, [0.021] * 3) is None


@pytest.mark.parametrize("hits", [0, 1, 12, 20, 23])
def test_what_is_not_cached_says_how_soon_the_device_answers(hits: int) -> None:
    sample = sum_up([HIT] * hits + [SEEK] * (24 - hits))
    assert (sample.files, sample.cached_share) == (24, hits / 24)
    assert (sample.seconds, sample.open_seconds) == (SEEK.seconds, SEEK.open_seconds)
    assert sample.is_warm is (hits == 23) and not sample.is_all_cached


def test_all_in_memory_is_that() -> None:
    sample = sum_up([HIT] * 24)
    assert sample.is_warm and sample.is_all_cached and sample.seconds == HIT.seconds
    assert not sum_up([]).is_warm and not sum_up([]).is_all_cached


def test_where_nobody_tells_what_is_cached_the_late_ones_were_not() -> None:
    quick, late = Answer(None, 100e-6, 300e-6), Answer(None, 150e-6, 12e-3)
    for quicks in (0, 12, 20):
        sample = sum_up([quick] * quicks + [late] * (24 - quicks))
        assert (sample.cached_share, sample.seconds) == (None, late.seconds)
    assert sum_up([quick] * 23 + [late]).seconds == quick.seconds


@pytest.mark.parametrize(("files", "looked_at"), [(16, 8), (40, 20), (400, 24)])
@pytest.mark.parametrize("now", [0.0, 0.25, 0.5, 0.75])
def test_none_is_asked_for_side_by_side_that_was_just_read(
    files: int, looked_at: int, now: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those come from memory, as a server's does not tell, and so all at once."""
    for number in range(files):
        (tmp_path / f"{number:03}").write_bytes(b"x")
    asked: list[tuple[str, str]] = []

    def read(cache: object, directory: str, name: str) -> Answer:
        asked.append((directory, name))
        return Answer(None, 1e-3, 10e-3)

    def together(descriptor: int, files: list[tuple[str, str]], seconds: float) -> float:
        assert seconds == 10e-3 and len(set(files)) == 8
        assert not set(files) & set(asked)
        return 1.0

    descriptor = os.open(tmp_path, os.O_RDONLY)
    scan = scan_tree(descriptor, processes=0)
    monkeypatch.setattr(sampling, "_read", read)
    monkeypatch.setattr(sampling, "_parallel_gain", together)
    monkeypatch.setattr(sampling.time, "monotonic", lambda: now)
    assert take_sample(descriptor, scan, arm=False).parallel_gain == 1.0
    assert len(asked) == looked_at
    os.close(descriptor)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(200):
        (tmp_path / f"{number:03}").write_bytes(bytes(MIB // 4))
    return tmp_path


def sampled(
    tree: Path, monkeypatch: pytest.MonkeyPatch, cold: Callable[[str, int], bool]
) -> sampling.Sample:
    """Take a sample of a disk that claims an arm and has what ``cold`` says not in memory.

    It is told the name and the offset of what is asked for.
    """
    real = os.preadv

    def preadv(descriptor: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        if flags and cold(name, offset):
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        asked.append((name, offset))
        return real(descriptor, buffers, offset)

    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(sampling, "_SECONDS", 60)
    descriptor = os.open(tree, os.O_RDONLY)
    try:
        return take_sample(descriptor, scan_tree(descriptor, processes=0), arm=True)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("part", [range(4096), range(4096, 252 * 1024), range(252 * 1024, MIB)])
def test_a_file_is_cached_from_first_to_last(
    tree: Path, monkeypatch: pytest.MonkeyPatch, part: range
) -> None:
    """Heads alone are what a look at the kinds of files, or a first look of ours, leaves."""
    sample = sampled(tree, monkeypatch, lambda name, offset: offset in part)
    assert sample.cached_share == 0


def test_an_arm_is_asked_for_few_files_that_are_not_cached_and_many_that_are(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sampled(tree, monkeypatch, lambda name, offset: True).files == 5
    assert sampled(tree, monkeypatch, lambda name, offset: False).files == 64
    half = sampled(tree, monkeypatch, lambda name, offset: int(name) % 2 == 0)
    assert half.cached_share is not None and round((1 - half.cached_share) * half.files) == 5
    tail = sampled(tree, monkeypatch, lambda name, offset: int(name) >= 190)
    assert tail.is_warm and not tail.is_all_cached


def test_a_few_files_among_symlinks_are_looked_at(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(b"x")
    (tmp_path / "links").mkdir()
    for number in range(1000):
        (tmp_path / f"links/{number}").symlink_to(f"../{number % 3}")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        scan = scan_tree(descriptor, processes=0)
        for phase in (0, 0.5, 0.99):
            assert {name for _, name in sampling._choose(scan, 24, phase)} & {"0", "1", "2"}
    finally:
        os.close(descriptor)


def test_a_hole_is_nothing_that_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        with (tmp_path / f"{number}").open("wb") as file:
            file.seek(8 * MIB)
            file.write(bytes(4096))
            file.truncate(64 * MIB)
    there = range(8 * MIB, 8 * MIB + 4096)
    if os.stat(tmp_path / "0").st_blocks * 512 > MIB:
        pytest.skip("the file system of temporary files knows no holes")
    assert sampled(tmp_path, monkeypatch, lambda name, offset: offset not in there).is_all_cached
    assert not sampled(tmp_path, monkeypatch, lambda name, offset: True).is_warm


def test_attributes_are_counted_as_a_tmpfs_counts_them(tmp_path: Path) -> None:
    for number in range(16):
        (tmp_path / f"{number}").write_bytes(b"x")
        try:
            os.setxattr(tmp_path / f"{number}", "user.note", bytes(100))
        except OSError:
            pytest.skip("this file system has no user attributes")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        sample = take_sample(descriptor, scan_tree(descriptor, processes=1), arm=False)
    finally:
        os.close(descriptor)
    assert sample.attribute_bytes == 40 + len("user.note") + 100


def test_a_server_is_sampled_by_another_process(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptor = os.open(tree, os.O_RDONLY)
    scan = scan_tree(descriptor, processes=0)

    def read(cache: DirCache, directory: str, name: str) -> Answer:
        assert os.path.exists(tree / name) and os.fstat(cache.fd(directory))
        return Answer(None, os.getpid(), 1e-5)

    monkeypatch.setattr(sampling, "_read", read)
    sample = take_sample_apart(descriptor, scan)
    os.close(descriptor)
    assert sample.files == 24 and sample.open_seconds not in (None, os.getpid())


def test_a_server_that_goes_meanwhile_is_the_copys_to_tell_of(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FUSE and NFS tell of it where a file is closed, too."""
    descriptor, close = os.open(tree, os.O_RDONLY), os.close
    scan = scan_tree(descriptor, processes=0)

    def gone(file: int) -> None:
        close(file)
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    with monkeypatch.context() as patched:
        patched.setattr(sampling.os, "close", gone)
        with DirCache(descriptor) as cache:
            assert sampling._read(cache, "", os.listdir(tree)[0]) is None
    monkeypatch.setattr(sampling, "take_sample", lambda *_, **__: 1 / 0)
    assert take_sample_apart(descriptor, scan) == sum_up([])
    close(descriptor)
