"""Sizes, rates and counts as people read them."""

from __future__ import annotations

import pytest

from hostprep.errors import UsageError
from hostprep.units import (
    MOST_BYTES,
    format_bytes,
    format_count,
    format_number,
    format_rate,
    parse_size,
)


def test_a_size_that_the_kernel_would_take_for_less_is_none() -> None:
    assert parse_size(f"000{MOST_BYTES}") == MOST_BYTES
    assert parse_size("8388607T") == 8388607 << 40
    for text in (str(MOST_BYTES + 1), "8388608T", "9" * 5000, "99999999999999999999G"):
        with pytest.raises(UsageError, match="more than Linux can count"):
            parse_size(text)
    with pytest.raises(UsageError, match="more than Linux can count"):
        parse_size("9" * 5000 + "%", ram_bytes=1 << 30)


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (15_000, "", "15,000"),
        (1, "file", "1 file"),
        (0, "file", "0 files"),
        (1_200, "entry", "1,200 entries"),
        (1, "directory", "1 directory"),
        (2, "batch", "2 batches"),
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
        (5 << 40, "5.00 TiB"),
        (2000 << 40, "2000 TiB"),
    ],
)
def test_sizes_have_three_digits(size_bytes: int, words: str) -> None:
    assert format_bytes(size_bytes) == words


@pytest.mark.parametrize(
    ("bytes_per_s", "words"),
    [
        (5, "5 B/s"),
        (1000, "1.00 kB/s"),
        (999_700, "1.00 MB/s"),
        (9_996_000, "10.0 MB/s"),
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
        (4.71, "4.7"),
        (0.333, "0.33"),
        (0.0021, "0.0021"),
        (0, "0"),
    ],
)
def test_what_is_slow_is_not_said_to_be_nothing(number: float, words: str) -> None:
    assert format_number(number) == words
