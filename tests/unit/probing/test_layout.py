"""The file that fio reads: whole, without holes, and ended in time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hostprep.probing.layout import (
    SMALLEST_BYTES,
    has_holes,
    open_existing,
    reads_directly,
    write_file,
)
from hostprep.units import MIB


def test_the_test_file_is_whole_and_no_block_is_twice(tmp_path: Path) -> None:
    told: list[int] = []
    file = write_file(tmp_path / "data", 20 * MIB + 5000, 60, told.append)
    assert file.size_bytes == 20 * MIB + 4096
    content = (tmp_path / "data").read_bytes()
    assert len(content) == file.size_bytes
    blocks = {content[start : start + 4096] for start in range(0, len(content), 4096)}
    assert len(blocks) == file.size_bytes // 4096
    assert not file.holes
    os.close(file.fd)
    assert told == sorted(told) and told[-1] == file.size_bytes


def test_time_ends_the_layout_without_a_tail(tmp_path: Path) -> None:
    file = write_file(tmp_path / "data", 1 << 40, 0.05)
    os.close(file.fd)
    assert (tmp_path / "data").stat().st_size == file.size_bytes < 1 << 40


def test_what_a_file_needs_at_least_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is busy with other writes, for example."""

    def written(mib_a_second: float, **more: float) -> tuple[float, float]:
        now = [0.0]

        def tick(size_bytes: int) -> None:
            now[0] = size_bytes / MIB / mib_a_second

        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: now[0])
            file = write_file(tmp_path / f"data{mib_a_second}{more}", 1 << 30, 2.0, tick, **more)
        os.close(file.fd)
        return file.size_bytes / MIB, now[0]

    assert written(16) == (32, 2)
    size, seconds = written(4)
    assert SMALLEST_BYTES / MIB <= size < SMALLEST_BYTES / MIB + 4
    assert seconds <= 5
    # No write may be so large that it ends long after the time: none can be broken off.
    for rate in (0.3, 0.9, 2.0):
        size, seconds = written(rate)
        assert size < SMALLEST_BYTES / MIB
        assert 5.9 < seconds < 6.3
    assert 0.9 < written(2.0, at_most_seconds=1.0)[1] < 1.1


def test_a_file_with_holes_is_seen(disk_folder: Path) -> None:
    file = disk_folder / "sparse"
    with open(file, "wb") as out:
        out.write(os.urandom(MIB))
        out.flush()
        os.posix_fallocate(out.fileno(), MIB, MIB)
    with open(file, "rb") as sparse:
        if not has_holes(sparse.fileno(), 2 * MIB):
            pytest.skip("the file system of the temporary folder tells nothing of extents")
        assert not has_holes(sparse.fileno(), MIB)


def test_an_existing_file_is_opened_only_if_it_is_one_still(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 3000)
    layout = open_existing(str(file), 1024)
    os.close(layout.fd)
    assert (layout.path, layout.size_bytes) == (str(file), 2048)
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "missing"):
        with pytest.raises(OSError):
            open_existing(str(tmp_path / name), 1024)


def test_direct_reading_is_tried_and_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 8192)
    os.utime(file, ns=(1, 2))
    assert reads_directly(str(file)) in (True, False)
    assert file.stat().st_atime_ns == 1
    assert not reads_directly("/proc/self/status")
    assert not reads_directly(str(tmp_path / "missing"))
