"""Sizes, rates and counts as people read them."""

from __future__ import annotations

from pathlib import Path

import pytest

import hostprep
from hostprep.errors import UsageError
from hostprep.units import (
    GIB,
    MIB,
    MOST_BYTES,
    PAGE_BYTES,
    SIZE_FORMS,
    format_age,
    format_bytes,
    format_count,
    format_number,
    format_rate,
    format_seconds,
    is_plain_number,
    lost_unit,
    parse_size,
    size_argument,
)

# Without regard to case these are k and i to Python: the sign of the kelvin, and Turkish letters.
LIKE_ASCII = ("1\u212a", "1G\u0131B", "1G\u0130B", "\u0661G")


def test_a_size_that_the_kernel_would_take_for_less_is_none() -> None:
    assert parse_size(f"000{MOST_BYTES}") == MOST_BYTES
    assert parse_size("8388607T") == 8388607 << 40
    for text in (str(MOST_BYTES + 1), "8388608T", "9" * 5000, "99999999999999999999G"):
        with pytest.raises(UsageError, match="more than Linux can count"):
            parse_size(text)
    with pytest.raises(UsageError, match="more than Linux can count"):
        parse_size("9" * 5000 + "%", ram_bytes=1 << 30)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1048576", 1048576),
        ("30G", 30 << 30),
        ("30g", 30 << 30),
        ("30GiB", 30 << 30),
        ("30gib", 30 << 30),
        ("30GB", 30 * 10**9),
        ("5K", 5 << 10),
        ("5kB", 5000),
        ("7M", 7 << 20),
        ("7MB", 7 * 10**6),
        ("2T", 2 << 40),
        ("2TB", 2 * 10**12),
        (" 1G ", 1 << 30),
        ("50%", 3 * PAGE_BYTES),  # of seven pages, in whole ones
        ("100%", 7 * PAGE_BYTES),
    ],
)
def test_a_size_is_what_it_is_to_mount_and_b_is_decimal(text: str, size_bytes: int) -> None:
    assert parse_size(text, ram_bytes=7 * PAGE_BYTES) == size_bytes


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (64 * MIB, "64M"),
        (30 * GIB, "30G"),
        (1536 * MIB, "1536M"),
        (1 << 40, "1T"),
        (4096, "4K"),
        (10**9 + 1, "1000000001"),
        (0, "0"),
    ],
)
def test_a_size_to_be_typed_is_short_and_exact(size_bytes: int, words: str) -> None:
    assert size_argument(size_bytes) == words
    assert parse_size(words) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "G", "1.5G", "-1G", "1 G", "1X", "1B", "1iB", "1GBB", "1G%", *LIKE_ASCII]
)
def test_what_is_no_size_says_which_forms_are(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size") as caught:
        parse_size(text, ram_bytes=1)
    assert caught.value.hint == f"accepted: {SIZE_FORMS}"


def test_a_percentage_of_nothing_that_is_known_is_no_size() -> None:
    with pytest.raises(UsageError, match="is a percentage"):
        parse_size("50%")


def test_next_to_nothing_is_likely_a_unit_that_was_forgotten() -> None:
    assert "30 B is next to nothing" in (lost_unit(30) or "")
    assert lost_unit(MIB - 1) is not None and lost_unit(MIB) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.045, "45 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (59 * 60 + 59, "59 min 59 s"),
        (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (4200, "1 h 10 min"),
        (100 * 3600, "100 h 00 min"),
    ],
)
def test_durations_go_over_into_the_next_unit_as_they_are_rounded(
    seconds: float, words: str
) -> None:
    assert format_seconds(seconds) == words


@pytest.mark.parametrize(
    ("text", "plain"), [("12", True), ("1.5e3", True), ("1_000", False), ("\u0661\u0662", False)]
)
def test_a_number_as_python_alone_writes_it_is_not_plain(text: str, plain: bool) -> None:
    assert is_plain_number(text) is plain


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (59.9, "just now"),
        (60, "1 minute ago"),
        (3599, "59 minutes ago"),
        (2 * 3600, "2 hours ago"),
        (86399, "23 hours ago"),
        (30 * 86400, "30 days ago"),
    ],
)
def test_an_age_has_one_unit_and_is_not_rounded_up(seconds: float, words: str) -> None:
    assert format_age(seconds) == words


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (15_000, "", "15,000"),
        (1, "file", "1 file"),
        (0, "file", "0 files"),
        (1_200, "entry", "1,200 entries"),
        (1, "directory", "1 directory"),
        (2, "batch", "2 batches"),
        (2, "process", "2 processes"),
        (2, "day", "2 days"),
        (3, "hard link", "3 hard links"),
    ],
)
def test_a_count_goes_with_its_noun(number: int, noun: str, words: str) -> None:
    assert format_count(number, noun) == words


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1000 << 10, "1000 KiB"),
        (1023.6 * 1024, "1.00 MiB"),
        (9.99 * 1024, "9.99 KiB"),
        (9.996 * 1024, "10.0 KiB"),
        (99.9 * 1024, "99.9 KiB"),
        (99.96 * 1024, "100 KiB"),
        (5 << 40, "5.00 TiB"),
        (2000 << 40, "2000 TiB"),
    ],
)
def test_sizes_have_three_digits(size_bytes: float, words: str) -> None:
    assert format_bytes(size_bytes) == words


@pytest.mark.parametrize(
    ("bytes_per_s", "words"),
    [
        (5, "5 B/s"),
        (1000, "1.00 kB/s"),
        (999_400, "999 kB/s"),
        (999_700, "1.00 MB/s"),
        (9_990_000, "9.99 MB/s"),
        (9_996_000, "10.0 MB/s"),
        (99_900_000, "99.9 MB/s"),
        (99_960_000, "100 MB/s"),
        (2e12, "2000 GB/s"),
    ],
)
def test_rates_have_three_digits(bytes_per_s: float, words: str) -> None:
    assert format_rate(bytes_per_s) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (3420.4, "3,420"),
        (12.4, "12"),
        (9.96, "10"),
        (9.94, "9.9"),
        (4.71, "4.7"),
        (0.333, "0.33"),
        (0.0021, "0.0021"),
        (0, "0"),
    ],
)
def test_what_is_slow_is_not_said_to_be_nothing(number: float, words: str) -> None:
    assert format_number(number) == words


def test_per_cents_are_written_in_one_way() -> None:
    """As `{share:.0%}` writes them, which is what most do: `18%`, and not `18 %` beside it."""
    sources = Path(hostprep.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if b"} %" in path.read_bytes()] == []
