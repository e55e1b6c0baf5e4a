"""What is in the page cache, getting it out, and what share of reads it answers."""

from __future__ import annotations

import errno
import mmap
import os
import random
from collections import OrderedDict
from pathlib import Path

import pytest

from hostprep.system.page_cache import (
    evict,
    lru_hit_rate,
    resident_pages,
    resident_share,
    write_out,
)
from hostprep.units import MIB


def just_written(folder: Path) -> list[str]:
    """Write some files, of which nothing is on the disk yet, and return their names."""
    names = [str(folder / str(number)) for number in range(20)]
    for name in names:
        Path(name).write_bytes(os.urandom(MIB // 10))
    if resident_share(names) is None:
        pytest.skip("residency is not told here")
    return names


def test_files_leave_the_page_cache_and_come_back(disk_folder: Path) -> None:
    """Also those of which nothing is on the disk yet, which the kernel alone would keep."""
    names = just_written(disk_folder)
    assert resident_share(names) == 1
    for name in names:
        evict(name)
    after = resident_share(names)
    assert after is not None and after < 0.05
    for name in names:
        Path(name).read_bytes()
    assert resident_share(names) == 1


def test_to_ask_and_to_evict_is_no_access(disk_folder: Path) -> None:
    """A mapping counts as one: of a data set that is probed the access times stay."""
    names = just_written(disk_folder)
    for name in names:
        os.utime(name, ns=(1, 2))  # older than the contents, so that relatime would set it anew
    assert resident_share(names) == 1
    for name in names:
        evict(name)
    assert {os.stat(name).st_atime_ns for name in names} == {1}


def test_a_huge_file_does_not_hide_that_the_others_are_in_memory(disk_folder: Path) -> None:
    names = just_written(disk_folder)
    with open(disk_folder / "huge", "wb", buffering=0) as huge:
        huge.truncate(5 << 30)
        share = len(names) / (len(names) + 1)
        assert resident_share([*names, huge.name]) == pytest.approx(share)


def test_a_huge_file_is_sampled(disk_folder: Path) -> None:
    just_written(disk_folder)  # skips where nobody tells
    with open(disk_folder / "huge", "w+b", buffering=0) as huge:
        huge.truncate((1 << 40) + 1)
        os.pwrite(huge.fileno(), b"in the first page of a piece", 1 << 39)
        os.pwrite(huge.fileno(), b"behind it", (1 << 39) + (8 << 20))
        assert resident_pages(huge.fileno()) == (1, (1 << 30) // mmap.PAGESIZE)


def test_what_is_written_out_at_once_can_leave_at_once(disk_folder: Path) -> None:
    names = just_written(disk_folder)
    write_out(str(disk_folder))
    for name in names:
        evict(name, written_out=True)
    after = resident_share(names)
    assert after is not None and after < 0.05


def test_files_of_an_image_leave_too(disk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Squashfs, EROFS and ISO 9660 have nothing to write out, and call it an error to be asked."""
    names = just_written(disk_folder)
    write_out(str(disk_folder))

    def fdatasync(_: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    for name in names:
        evict(name)
    after = resident_share(names)
    assert after is not None and after < 0.05


def test_a_file_that_is_gone_is_no_error(tmp_path: Path) -> None:
    evict(str(tmp_path / "gone"))
    write_out(str(tmp_path / "gone"))
    write_out(str(tmp_path))


@pytest.mark.parametrize(("share", "rate"), [(0.5, 0.15), (0.8, 0.48), (0, 0), (1, 1), (2, 1)])
def test_known_points_of_the_lru_curve(share: float, rate: float) -> None:
    assert lru_hit_rate(share) == pytest.approx(rate, abs=0.005)


@pytest.mark.parametrize("share", [0.25, 0.6, 0.9])
def test_the_curve_is_what_an_lru_cache_does_under_shuffling(share: float) -> None:
    chance, files = random.Random(5), 3000
    room, cache = int(files * share), OrderedDict[int, None]()
    hits = 0
    for epoch in range(6):
        order = list(range(files))
        chance.shuffle(order)
        for name in order:
            if name in cache:
                cache.move_to_end(name)
                hits += epoch > 0
            else:
                cache[name] = None
                if len(cache) > room:
                    cache.popitem(last=False)
    assert hits / (5 * files) == pytest.approx(lru_hit_rate(share), abs=0.015)
