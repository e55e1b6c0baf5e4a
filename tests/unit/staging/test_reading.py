"""Which readers in which order, from what the kernel says and how the source answered."""

from __future__ import annotations

import pytest

from hostprep.host.block import StorageClass
from hostprep.staging.source.reading import Reading, choose_reading, within_memory
from hostprep.staging.source.sampling import Sample

PROMPT = Sample(24, 0.0, 200e-6, open_seconds=15e-6)
WARM = Sample(24, 1.0, 30e-6)
COLD_FLASH = Sample(24, 0.0, 200e-6)
COLD_FAR = Sample(24, None, 20e-3, 7.5)
COLD_ARM = Sample(4, 0.0, 12e-3)
GIB = 2**30


def choose(
    storage: StorageClass,
    sample: Sample,
    *,
    cpus: int = 4,
    files: int = 10_000,
    size_bytes: int = GIB,
    available_bytes: int = 16 * GIB,
    readers: int | None = None,
    order: str | None = None,
    gentle: bool = False,
) -> Reading:
    reading = choose_reading(
        storage,
        sample,
        cpus=cpus,
        files=files,
        size_bytes=size_bytes,
        available_bytes=available_bytes,
        readers=readers,
        order=order,
        gentle=gentle,
    )
    return reading if readers is not None else within_memory(reading, available_bytes)


@pytest.mark.parametrize("storage", list(StorageClass))
def test_what_is_cached_is_read_by_one_process_a_core(storage: StorageClass) -> None:
    reading = choose(storage, WARM)
    assert (reading.processes, reading.threads, reading.order) == (4, 1, "listed")
    assert not reading.drop_behind and not reading.look_ahead


def test_a_container_with_little_memory_gets_no_more_readers_than_fit() -> None:
    """All 64 would have been killed with 128 MiB, and so would a process for each of 128 cores."""
    little = 128 * 2**20
    for sample in (WARM, COLD_FAR):
        few = choose(StorageClass.NETWORK, sample, cpus=128, available_bytes=little)
        assert (few.processes, few.threads, few.may_grow) == (4, 1, False)
        assert few.reason.endswith("; but memory for 4 only")
        assert choose(StorageClass.NETWORK, sample, cpus=128).processes == 128
    threads = choose(StorageClass.NETWORK, COLD_FAR, cpus=2, available_bytes=little)
    assert (threads.processes, threads.threads) == (2, 3)
    assert choose(StorageClass.NETWORK, COLD_FAR, available_bytes=2**20).readers == 1
    asked = choose(StorageClass.NETWORK, WARM, readers=32, available_bytes=little)
    assert asked.readers == 32, "who asks for them has them"


def test_an_arm_gets_one_reader_in_the_order_of_the_disk() -> None:
    reading = choose(StorageClass.ARM, COLD_ARM)
    assert (reading.readers, reading.order) == (1, "physical")
    assert reading.look_ahead and reading.drop_behind


@pytest.mark.parametrize("share", [0.0, 0.5, 0.98])
def test_an_arm_of_which_not_all_is_cached_is_read_as_one(share: float) -> None:
    """What is not would be sought by several readers, each in a place of its own."""
    reading = choose(StorageClass.ARM, Sample(64, share, 9e-3), size_bytes=8 * GIB)
    assert (reading.readers, reading.order, reading.drop_behind) == (1, "physical", True)
    assert ("only part is in the page cache" in reading.reason) is (share > 0)
    flash = choose(StorageClass.ARM, Sample(64, share, 200e-6))
    assert flash.readers > 1 and flash.order == "listed"


@pytest.mark.parametrize("storage", list(StorageClass))
def test_more_readers_are_tried_where_a_look_at_a_few_files_may_be_wrong(
    storage: StorageClass,
) -> None:
    """What was cached of them may not be of others; and a server may do two things at once."""
    assert choose(storage, WARM).may_grow is (storage is not StorageClass.RAM)
    served = storage in (StorageClass.FUSE, StorageClass.NETWORK)
    serial = choose(storage, Sample(24, 0.0, 12e-3, 1.6))
    assert serial.may_grow is served
    assert not choose(storage, WARM, readers=2).may_grow
    assert not choose(storage, WARM, gentle=True).may_grow


def test_what_claims_an_arm_and_answers_at_once_has_none() -> None:
    reading = choose(StorageClass.ARM, COLD_FLASH)
    assert reading.order == "listed" and reading.readers >= 16


@pytest.mark.parametrize("storage", [StorageClass.VIRTUAL, StorageClass.UNKNOWN])
def test_what_answers_late_and_no_sooner_side_by_side_has_an_arm(storage: StorageClass) -> None:
    serial = Sample(24, 0.0, 12e-3, 1.1)
    assert choose(storage, serial).order == "physical"
    parallel = Sample(24, 0.0, 12e-3, 7.0)
    assert choose(storage, parallel).order == "listed"


SERVED = [StorageClass.NETWORK, StorageClass.FUSE]


@pytest.mark.parametrize("storage", SERVED)
def test_an_arm_behind_a_server_gets_one_reader_and_is_asked_little(storage: StorageClass) -> None:
    """By inodes, for which nothing is opened; without hints, which are answered in any order."""
    serial = Sample(24, None, 12e-3, 1.1, open_seconds=1e-3)
    reading = choose(storage, serial)
    assert (reading.readers, reading.order, reading.look_ahead) == (1, "inode", False)
    assert "hard disk" in reading.reason and "inodes" in reading.reason
    assert choose(storage, serial, readers=2).order == "inode"
    assert not choose(storage, serial, readers=2).look_ahead
    assert choose(storage, serial, order="listed").reason.endswith("as listed")
    parallel = Sample(24, None, 12e-3, 6.0, open_seconds=1e-3)
    assert (choose(storage, parallel).readers, choose(storage, parallel).order) == (64, "listed")


def test_a_disk_reached_over_a_network_that_opens_at_once_is_asked_where_files_lie() -> None:
    serial = Sample(24, 0.0, 12e-3, 1.1, open_seconds=15e-6)
    assert choose(StorageClass.NETWORK, serial).order == "physical"
    assert choose(StorageClass.FUSE, serial).order == "inode"


def test_a_late_source_gets_readers_by_littles_law() -> None:
    assert choose(StorageClass.NETWORK, COLD_FAR).readers == 64
    middle = choose(StorageClass.NETWORK, Sample(24, None, 400e-6)).readers
    assert 16 < middle < 64
    assert choose(StorageClass.NVME, COLD_FLASH).adapts


@pytest.mark.parametrize("storage", list(StorageClass))
def test_small_files_of_a_local_disk_are_asked_for_ahead(storage: StorageClass) -> None:
    reading = choose(storage, PROMPT)
    local = ("arm", "sata_flash", "nvme", "virtual", "overlay")
    assert reading.look_ahead is (storage in local)
    if reading.look_ahead:
        assert (reading.processes, reading.threads, reading.order) == (4, 1, "listed")
        assert reading.task_files > 256


def test_large_files_and_files_that_open_late_want_readers() -> None:
    assert choose(StorageClass.NVME, PROMPT, files=3, size_bytes=3 * GIB).readers >= 16
    late = Sample(24, 0.0, 20e-3, 7.5, open_seconds=10e-3)
    assert not choose(StorageClass.OVERLAY, late).look_ahead


def test_where_nothing_can_be_read_nothing_is_waited_for() -> None:
    """As of a data set of symlinks, or of empty files; a server is asked for each of them."""
    nothing = Sample(0, None, None)
    reading = choose(StorageClass.VIRTUAL, nothing)
    assert (reading.processes, reading.threads) == (4, 1) and "answers after" not in reading.reason
    assert reading.may_grow
    assert choose(StorageClass.NETWORK, nothing).readers >= 16


@pytest.mark.parametrize(
    ("asked", "cpus", "processes", "threads"),
    [(1, 4, 1, 1), (3, 4, 3, 1), (6, 4, 3, 2), (3, 2, 1, 3), (17, 16, 16, 1), (31, 16, 15, 2)],
)
def test_no_more_read_at_once_than_were_asked_for(
    asked: int, cpus: int, processes: int, threads: int
) -> None:
    reading = choose(StorageClass.NETWORK, COLD_FLASH, cpus=cpus, readers=asked)
    assert (reading.processes, reading.threads) == (processes, threads)
    if reading.readers == asked:
        assert reading.reason == "as --readers asks"
    else:
        assert reading.reason.startswith(f"--readers asks for at most {asked}, ")


def test_whatever_is_asked_for_is_had_nearly_and_by_most_cores() -> None:
    for cpus in (1, 2, 3, 4, 6, 16, 96):
        for asked in range(1, 257):
            reading = choose(StorageClass.NVME, COLD_FLASH, cpus=cpus, readers=asked)
            assert 0.8 * asked <= reading.readers <= asked
            assert 2 * reading.processes >= min(asked, cpus)


def test_options_override() -> None:
    assert choose(StorageClass.ARM, COLD_ARM, order="listed").order == "listed"
    assert choose(StorageClass.NVME, COLD_FLASH, order="inode").order == "inode"
    gentle = choose(StorageClass.NVME, COLD_FLASH, gentle=True)
    assert (gentle.processes, gentle.threads) == (1, 1)


def test_much_cold_data_is_dropped_behind() -> None:
    assert not choose(StorageClass.NVME, COLD_FLASH, size_bytes=GIB).drop_behind
    assert choose(StorageClass.NVME, COLD_FLASH, size_bytes=8 * GIB).drop_behind
    assert not choose(StorageClass.NVME, WARM, size_bytes=8 * GIB).drop_behind


def test_every_choice_has_its_reason() -> None:
    for storage in StorageClass:
        for sample in (WARM, PROMPT, COLD_FLASH, COLD_FAR, COLD_ARM, Sample(0, None, None)):
            assert choose(storage, sample).reason
