"""The report for people, from made-up measurements."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.cli.probe_text import render
from hostprep.host.block import StorageClass, locate
from hostprep.host.block_health import Health
from hostprep.host.block_link import PcieLink
from hostprep.probing.judge import judge
from hostprep.probing.model import SEQUENTIAL_READS, DataSet, Fewer, Load, Measured
from hostprep.probing.needs import parse_need, profile_need
from hostprep.probing.results import Difference
from tests.unit.probing.made import (
    ARM_RUNS,
    disk,
    fio_run,
    measured,
    small_files,
    small_run,
    storage,
)

HOSTS = Path(__file__).parents[1] / "fixtures/hosts"


def text(of: Measured, need: str | None = None) -> str:
    required = parse_need(need) if need else None
    return render(of, judge(of, required), required, "an-id", ())


def test_the_way_from_the_path_to_the_disks_is_one_line() -> None:
    said = text(measured(storage=locate("/data/x", HOSTS / "sata-workstation")))
    assert "/data/x: hard disk" in said
    chain = (
        "xfs on /data <- vg0-data--sets (lvm) <- md0_crypt (crypt) <- md0 (raid1) <- sda1 <- sda"
    )
    assert chain in said
    assert "scheduler mq-deadline, readahead 128 KiB" in said


def test_link_and_wear() -> None:
    said = text(
        measured(
            link=PcieLink("0000:03:00.0", 8.0, 4, 16.0, 4, 3.94e9),
            health=(("nvme0n1", Health(True, 7, 100, 2, 40, 100)),),
        )
    )
    assert "PCIe under load: 8 GT/s x4 (3.94 GB/s) at 0000:03:00.0; it could do 16 GT/s x4" in said
    whole = text(measured(link=PcieLink("0000:03:00.0", 16.0, 4, 16.0, 4, 7.88e9)))
    assert "16 GT/s x4 (7.88 GB/s) at 0000:03:00.0\n" in whole and "it could do" not in whole
    assert "nvme0n1: SMART passed, 7% of its rated writes used, 2 media errors" in said


def test_bars_grow_with_the_rate() -> None:
    lines = text(measured()).splitlines()
    full = next(line for line in lines if "sequential 1 MiB, depth 1" in line)
    small = next(line for line in lines if "random 4 KiB, depth 1 " in line)
    assert full.count("█") == 24
    assert small.count("█") == 0
    assert "157 MB/s" in full and "90 IOPS" in small and "p99 24.0 ms" in small
    assert "small files give 6% of the sequential rate" in "\n".join(lines)


def test_a_rate_that_did_not_last_is_told_beside_the_one_that_did() -> None:
    cold = (small_run(1, 80), replace(small_run(8, 100), early_files_per_s=170.0))
    lines = text(measured(small=small_files(cold=cold))).splitlines()
    number = next(number for number, line in enumerate(lines) if "cold, 8 at a time" in line)
    assert "100 files/s" in lines[number]
    assert lines[number + 1] == "    at first it was 170 files/s: it did not last"
    assert sum("did not last" in line for line in lines) == 1


def test_a_memory_that_gives_no_more_than_the_storage_is_explained() -> None:
    cold = (small_run(1, 80), small_run(8, 1000))
    for rate, told in ((900, True), (1100, False)):
        said = text(measured(small=small_files(cold=cold, cached=small_run(8, rate), staged=None)))
        assert ("from memory they came no faster" in said) is told
    # Of another number of readers that says nothing.
    said = text(measured(small=small_files(cold=cold, cached=small_run(2, 900), staged=None)))
    assert "came no faster" not in said


def test_what_memory_gave_stands_below_what_the_storage_gave() -> None:
    said = text(measured()).splitlines()
    (cold,) = [number for number, line in enumerate(said) if "  cold, 8 at a time" in line]
    assert said[cold + 1].startswith("  cached, 8 at a time") and "20,000 files/s" in said[cold + 1]
    assert said[cold + 2].startswith("  staged in RAM, 8 at a time")
    assert "15,000 files/s" in said[cold + 2]


def test_empty_files_are_told_of_where_there_are_any() -> None:
    said = text(measured(small=small_files(empty=3)))
    assert "left out, because nothing is in them to be read: 3 empty files" in said
    assert "empty" not in text(measured())
    assert "1 file could not be read" in text(measured(small=small_files(unreadable=1)))
    assert "could not be read" not in text(measured())
    failing = text(measured(small=small_files(unreadable=1, fault="Input/output error")))
    told = "fails: there are files that could not be read (Input/output error)\n  -> `d"
    assert told in failing
    too_slow = text(measured(small=small_files(fault="Input/output error")), "1000000")
    assert "FAIL: " in too_slow and told in too_slow


def test_inodes_in_memory_are_a_word_against_a_disk_and_none_against_memory() -> None:
    known = {"small": small_files(metadata_cold=False)}
    assert "inodes were in memory" in text(measured(**known))
    memory = measured(storage=storage(StorageClass.RAM, ()), **known)
    assert "inodes were in memory" not in text(memory)


def test_what_there_was_no_time_for_is_told_once() -> None:
    words = "sequential reads were only made 8 at a time: 32 at a time need at least 7.4 s"
    fewer = (Fewer(SEQUENTIAL_READS, 32, 8, words),)
    harmless = text(measured(fio=(*ARM_RUNS, fio_run("read", 8, 150)), fio_fewer=fewer))
    assert f"\n  {words}\n" in harmless and "INVALID" not in harmless
    left_out = text(measured(fio=ARM_RUNS[:1] + ARM_RUNS[2:], fio_fewer=fewer))
    assert left_out.count(words) == 1
    assert "INVALID: these are too few numbers to say" in left_out
    assert "  -> give it more time: --seconds" in left_out
    assert "name a folder" not in left_out


def test_a_folder_that_somebody_moved_is_told_and_the_figures_stand() -> None:
    note = "somebody moved /data/\x1b[2J, which held the test files"
    said = text(measured(folder_note=note))
    assert "somebody moved /data/" in said and "\x1b" not in said
    assert "INVALID" not in said and "somebody" not in text(measured())


def test_the_epoch_and_the_band_of_the_page_cache() -> None:
    half = measured(dataset=DataSet(10_000, True, 1_000_000_000), memory_bytes=500_000_000)
    said = text(half)
    assert "10,000 files, 954 MiB; 8 at a time" in said
    assert "50% fits into memory; the page cache serves 15% (plain LRU) to 50% (pinned)" in said
    assert "1 min 40 s" in said
    dropped = text(replace(half, small=small_files(cached=None, stays_in_memory=False)))
    assert "what was read does not stay in memory: every epoch is as slow as the first" in dropped
    assert "page cache" not in dropped
    assert "from memory" not in said
    unread = text(replace(half, small=small_files(cached=None, staged=None)))
    assert "from memory                 not predicted: no files of such sizes" in unread
    assert "serves 15% (plain LRU) to 50% (pinned) of an epoch" in unread
    assert "later epochs" in said and "later epochs" not in unread


def test_a_failure_lists_what_would_help() -> None:
    said = text(measured(), "1000")
    assert (
        "FAIL: small files give 100 samples/s, 10% of the required 1,000 samples/s; 90% of it"
        in said
    )
    helps = [line for line in said.splitlines() if line.strip()[:2] in ("1.", "2.", "3.", "4.")]
    assert "pack the files into shards: enough" in helps[0]
    assert "stage to RAM (hostprep stage --to-tmpfs): enough" in helps[1]


def test_invalid_gives_its_reasons_first() -> None:
    said = text(measured(small=small_files(cached_share=0.4)), "10")
    assert "INVALID: these numbers do not say what the storage gives" in said
    assert "40% of the small files stayed in memory" in said
    assert "PASS" not in said


def test_a_reason_about_several_rates_is_told_once() -> None:
    said = text(measured(file_cached_share=0.5))
    assert said.count("50% of the file that was read stayed in memory") == 1


def test_what_was_not_there_to_be_read_is_no_word_against_the_rest() -> None:
    """As of somebody's small files in a folder that one may only read."""
    closed = measured(file_source=None, file_note="nothing can be written here", fio=())
    said = text(closed)
    assert "INVALID: these are too few numbers to say what the storage gives" in said
    assert "-> name a folder on the same storage that you may write to" in said
    assert "->" not in text(closed, "100000")
    empty = text(replace(closed, small=None, dataset=DataSet(0, True, 0)))
    assert "  -> name a folder on the same storage that you may write to\n" in empty
    held_back = replace(closed, small=small_files(cached_share=0.4))
    assert "INVALID: these numbers do not say what the storage gives" in text(held_back)
    assert "->" not in text(held_back)


def test_a_full_disk_wants_room_and_no_other_folder() -> None:
    """Who may write there is not sent elsewhere."""
    full = measured(file_source=None, file_note="only 0 B may be used here", fio=())
    said = text(full)
    assert "-> give it room, or more time: --seconds, or say what is required" in said
    small_note = "fewer than 32 files are here, and there is no room, or no time, to make some"
    said = text(replace(full, small=None, small_note=small_note, dataset=DataSet(0, True, 0)))
    assert "  -> give it room, or more time: --seconds\n" in said and "may write" not in said


def test_a_verdict_in_spite_of_a_doubt_tells_of_it() -> None:
    busy = small_files(cold=(small_run(8, 5000, load=Load(0.99, None)),))
    said = text(measured(small=busy), "1800")
    assert "PASS: small files give 5,000 samples/s" in said
    assert "the processors were 99% busy during small files (8 at a time)" in said
    assert "INVALID" not in said


def test_profiles_name_their_source() -> None:
    need = profile_need("unet3d-h100")
    one = measured()
    said = render(one, judge(one, need), need, None, ())
    assert "MLPerf Storage" in said and "(unet3d-h100); 90% of it" in said


def test_changes_and_what_was_not_measured() -> None:
    one = measured(
        fio=(), small=None, small_note="no room", storage=storage(StorageClass.NETWORK, ())
    )
    changes = (
        Difference("sequential.bytes_per_s", 2e9, 1e9),
        Difference("random_4k.iops", 100, 150),
        Difference("small_files.files_per_s", 4000, 4000),
    )
    said = render(one, judge(one, None), None, None, changes, earlier_valid=False)
    assert "since the earlier probe, whose figures do not all say what the storage gave" in said
    said = render(one, judge(one, None), None, None, changes)
    assert "since the earlier probe\n" in said
    assert "sequential 1 MiB            2.00 GB/s -> 1.00 GB/s (-50%)" in said
    assert "random 4 KiB                100 IOPS -> 150 IOPS (+50%)" in said
    assert "whole small files           4,000 files/s -> 4,000 files/s (+0%)" in said
    assert "█" not in said
    assert "no room" in said


def test_files_that_are_no_part_of_the_figures_are_counted() -> None:
    said = text(measured(small=small_files(unreadable=1, empty=1200)))
    assert "1 file could not be read" in said
    assert "left out, because nothing is in them to be read: 1,200 empty files" in said


def test_folders_that_were_not_looked_into_are_counted() -> None:
    said = text(measured(dataset=DataSet(60, True, 3_000_000, mounts=1, closed=2)))
    assert "not counted: 1 folder in which something else is mounted\n" in said
    assert "not counted: 2 folders that could not be listed\n" in said
    assert "not counted" not in text(measured())


def test_names_of_strangers_cannot_rewrite_the_terminal() -> None:
    one = measured(storage=storage(disks=(disk(model="Evil\x1b[2J"),)))
    assert "\x1b" not in text(one)


def test_bars_are_of_what_the_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    said = text(measured())
    assert said.isascii() and "########" in said
    terminal.close()
