"""Options and live volumes are compared as numbers."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from hostprep.units import GIB, MIB
from hostprep.volumes.model import LiveVolume
from hostprep.volumes.options import compare_options, parse_options
from tests.unit.volumes.made import live_volume

LIVE = live_volume(path="/mnt/v", size_bytes=2 * MIB, inodes=2048, noswap=False)
SAFE = ("nosuid", "nodev", "noexec", "mode=0755")


@pytest.mark.parametrize("size", ["2m", "2M", "2048k", "2097152", "2093057"])
@pytest.mark.parametrize("inodes", ["2k", "2048"])
def test_the_same_in_other_words(size: str, inodes: str) -> None:
    assert compare_options(LIVE, (*SAFE, f"size={size}", f"nr_inodes={inodes}")) == ()


def test_options_for_others_and_defaults_do_not_matter() -> None:
    others = ("defaults", "nofail", "X-hostprep.id=v", "x-systemd.device-timeout=5", "rw")
    assert compare_options(LIVE, (*others, *SAFE)) == ()


def test_defaults_take_back_what_stands_before_them() -> None:
    assert compare_options(LIVE, (*SAFE, "defaults")) == (
        "nosuid is set, and should not be",
        "nodev is set, and should not be",
        "noexec is set, and should not be",
    )


def test_no_limit_of_inodes_and_an_owner_by_name_are_no_differences() -> None:
    unlimited = replace(LIVE, inodes=None)
    assert compare_options(unlimited, (*SAFE, "nr_inodes=0")) == ()
    assert compare_options(LIVE, (*SAFE, "uid=alice", "gid=staff")) == ()


def test_a_whole_page_is_more_than_the_kernel_rounds() -> None:
    one_page_less = 2 * MIB - os.sysconf("SC_PAGE_SIZE")
    (difference,) = compare_options(LIVE, (*SAFE, f"size={one_page_less}"))
    assert difference.startswith("size 2.00 MiB")


@pytest.mark.parametrize(
    ("live", "options", "words"),
    [
        (LIVE, ("size=4m",), "size 2.00 MiB (2097152 bytes) instead of 4.00 MiB (4194304 bytes)"),
        (LIVE, ("size=1m",), "instead of 1.00 MiB"),
        (LIVE, ("size=2097153",), "instead of 2.00 MiB (2097153 bytes)"),  # rounded up, never down
        (LIVE, ("nr_inodes=9",), "nr_inodes 2048 instead of 9"),
        (replace(LIVE, inodes=None), ("nr_inodes=9",), "nr_inodes 0 instead of 9"),
        (LIVE, ("mode=700",), "mode 0755 instead of 0700"),
        (replace(LIVE, uid=5), (), "uid 5 instead of 0"),
        (replace(LIVE, gid=5), ("gid=6",), "gid 5 instead of 6"),
        (LIVE, ("huge=always",), "huge=never instead of huge=always"),
        (LIVE, ("noswap",), "noswap is missing"),
        (replace(LIVE, nodev=False), (), "nodev is missing"),
        (LIVE, ("exec",), "noexec is set, and should not be"),
        (LIVE, ("mode=banana",), "mode 0755"),
    ],
)
def test_each_difference_is_named(live: LiveVolume, options: tuple[str, ...], words: str) -> None:
    differences = compare_options(live, (*SAFE, *options))
    assert len(differences) == 1
    assert words in differences[0]


def test_a_percentage_is_of_the_ram_that_is_given() -> None:
    half = parse_options(("size=50%",), ram_bytes=8 * GIB)
    assert half.size_bytes == 4 * GIB
    assert parse_options(("size=50%",)).size_bytes is None


def test_what_the_kernel_would_not_read_is_not_a_number() -> None:
    assert parse_options(("size=1.5g",)).size_bytes is None
    assert parse_options(("size=5x%",), ram_bytes=8 * GIB).size_bytes is None
    assert parse_options(("uid=alice",)).uid is None


@pytest.mark.parametrize("size", ["²%", "9" * 5000, "9" * 5000 + "%"], ids=len)
def test_what_is_no_number_counts_as_not_given(size: str) -> None:
    """fstab is edited by hand, and its lines are read by every ``status``."""
    assert parse_options((f"size={size}",), ram_bytes=8 * GIB).size_bytes is None


def test_a_size_of_nothing_is_called_no_limit() -> None:
    """As after ``mount -o remount,size=0``: "0 B" would say that the volume holds nothing."""
    open_ended = compare_options(replace(LIVE, size_bytes=0), (*SAFE, "size=2m"))
    assert open_ended == ("size unlimited instead of 2.00 MiB (2097152 bytes)",)
    line = compare_options(LIVE, (*SAFE, "size=0"))
    assert line == ("size 2.00 MiB (2097152 bytes) instead of unlimited",)
