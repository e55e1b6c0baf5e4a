"""What a quota leaves, from what the kernel tells; tests/vm has one that does."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hostprep.host.quota import QuotaLeft, parse, quota_left

NOW = 1_000_000.0
PAST, COMING = 900_000, 1_100_000


def _told(*words: int) -> bytes:
    return struct.pack("=8QI4x", *words, 0)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ((8, 4, 3072, 100, 50, 10, 0, 0), QuotaLeft(5120, 90)),
        ((8, 4, 6144, 100, 50, 60, COMING, COMING), QuotaLeft(2048, 40)),
        ((8, 4, 6144, 100, 50, 60, PAST, PAST), QuotaLeft(0, 0)),  # their grace is over
        ((0, 4, 3072, 0, 0, 10, 0, 0), QuotaLeft(None, None)),
        ((1, 0, 2048, 5, 0, 9, 0, 0), QuotaLeft(0, 0)),  # set when more was there
    ],
)
def test_the_limits_that_hold_are_what_is_left(words: tuple[int, ...], left: QuotaLeft) -> None:
    assert parse(_told(*words), NOW) == left


def test_where_there_is_no_quota_or_it_is_not_for_us_nothing_is_told(tmp_path: Path) -> None:
    assert quota_left("/proc") is None
    assert quota_left(str(tmp_path / "none")) is None
