"""Sizes, rates and counts as people read them."""

from __future__ import annotations

import pytest

from hostprep.units import format_bytes, format_count, format_number


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
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (5 << 40, "5.00 TiB")],
)
def test_sizes_have_three_digits(size_bytes: int, words: str) -> None:
    assert format_bytes(size_bytes) == words


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
