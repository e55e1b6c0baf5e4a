"""Other programs on the disks that are measured: when they are said to hold a rate up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hostprep.host.block import StorageClass
from hostprep.probing.judge import judge
from hostprep.probing.judgement import Verdict
from hostprep.probing.model import (
    RANDOM_READS,
    SEQUENTIAL_READS,
    SMALL_FILES,
    FioRun,
    Load,
    Measured,
)
from hostprep.probing.needs import parse_need
from hostprep.probing.others import held_up_by_others
from tests.unit.probing.made import (
    MOUNT,
    disk,
    four_runs,
    measured,
    small_files,
    small_run,
    storage,
)

MIB = 1 << 20


def beside(run: Any, *, read: int = 0, written: int = 0, requests: int = 0, **more: int) -> Any:
    """Return a pass of 3 s beside others that read and wrote so many bytes a second."""
    own = run.read_bytes // 4096 if isinstance(run, FioRun) else run.files
    load = Load(0.2, run.read_bytes + 3 * read, None, 3 * written, own + 3 * requests, seconds=3.0)
    return replace(run, load=replace(load, **more))


def of_passes(fio: dict[str, int], small: dict[str, int]) -> Measured:
    """A disk of 150 MiB/s and 90 reads a second; its own small files come at 9 MB/s."""
    runs = tuple(beside(run, **fio) for run in four_runs(150, 90, 180))
    files = small_files(cold=(beside(small_run(1, 90), **small),))
    return measured(fio=runs, small=files)


def about(of: Measured) -> set[str | None]:
    return {reason.of for reason in held_up_by_others(of)}


@pytest.mark.parametrize(
    ("fio", "small", "expected"),
    [
        ({}, {}, set()),
        ({"read": 10 * MIB, "written": 10 * MIB}, {}, set()),  # little of what the disk can do
        ({"read": 100 * MIB}, {}, {SEQUENTIAL_READS, RANDOM_READS}),
        ({"written": 100 * MIB}, {}, {SEQUENTIAL_READS, RANDOM_READS}),
        ({"written": MIB, "requests": 80}, {}, {RANDOM_READS}),  # they move the arm
        ({"requests": 40}, {}, set()),  # a fifth of its moves
        ({"written": 40 * MIB}, {}, set()),  # of 190 MiB that it reads and writes
        ({}, {"written": 60 * MIB}, {SMALL_FILES}),
        # What the kernel reads ahead for our own processes, and of inodes.
        ({}, {"read": 60 * MIB, "asked_bytes": 200 * MIB}, set()),
        # fio itself, which comes from the same disk.
        ({"requests": 80, "read": 2 * MIB, "asked_bytes": 12 * MIB}, {}, set()),
    ],
)
def test_others_that_take_much_of_the_disk_are_told(
    fio: dict[str, int], small: dict[str, int], expected: set[str]
) -> None:
    assert about(of_passes(fio, small)) == expected


def test_files_that_are_read_again_are_no_others() -> None:
    run = small_run(1, 900)
    twice = Load(0.2, 2 * run.read_bytes, None, 0, 2 * run.files, seconds=3.0)
    for again_bytes, expected in ((run.read_bytes, set()), (0, {SMALL_FILES})):
        read = replace(run, again_bytes=again_bytes, load=twice)
        assert about(measured(small=small_files(cold=(read,)))) == expected


def test_where_it_cannot_be_told_whose_reads_they_are_nobody_is_blamed_for_a_few() -> None:
    loop = disk(name="loop0", kind="loop", transport=None)
    image = storage(StorageClass.ARM, (disk(),))
    through_loop = replace(image, devices=(loop, disk()))
    records = replace(image, mount=replace(MOUNT, fstype="zfs"))
    few = of_passes({"read": 400 * MIB, "written": 100 * MIB}, {"read": 40 * MIB})
    many = of_passes({"read": 900 * MIB}, {"read": 400 * MIB})
    for there in (through_loop, records):
        assert about(replace(few, storage=there)) == set()
        # What belongs to each of many small files may be as much as they are.
        many_files = of_passes({}, {"read": 75 * MIB})
        assert about(replace(many_files, storage=there)) == set()
        # A block at random may bring a whole record of a MiB: of those nothing is said.
        assert about(replace(many, storage=there)) == {SEQUENTIAL_READS, SMALL_FILES}
    assert about(measured()) == set()  # nobody counts


def test_beside_others_enough_is_enough_and_too_little_says_nothing() -> None:
    busy = of_passes({}, {"read": 100 * MIB})
    assert judge(busy, parse_need("50")).verdict is Verdict.PASS
    held_up = judge(busy, parse_need("500"))
    assert held_up.verdict is Verdict.INVALID
    assert [reason.code for reason in held_up.invalid] == ["disk_busy"]
    assert "other programs read or wrote 105 MB/s" in held_up.invalid[0].message
