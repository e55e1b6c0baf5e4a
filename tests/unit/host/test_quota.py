"""What a quota leaves, from what the kernel tells; tests/vm has one that does."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hostprep.host import quota
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


@pytest.mark.parametrize(("flags", "holds"), [(0b11, True), (0b01, False), (None, True)])
def test_limits_that_are_switched_off_hold_nobody(
    flags: int | None, holds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an ext4 that has them and is mounted without usrquota, or an XFS with uqnoenforce."""

    def answer(_descriptor: int, command: int, _user: int, size: int) -> bytes | None:
        if command == 0x800007 << 8:
            return _told(8, 0, 3072, 0, 0, 10, 0, 0)
        return None if flags is None else struct.pack("=bxH", 1, flags).ljust(size, b"\0")

    monkeypatch.setattr(quota, "_call", answer)
    monkeypatch.setattr(quota, "has_capability", lambda *_: False)  # as none has but root
    assert quota_left(str(tmp_path)) == (QuotaLeft(5120, None) if holds else None)


def test_where_there_is_no_quota_or_it_is_not_for_us_nothing_is_told(tmp_path: Path) -> None:
    assert quota_left("/proc") is None
    assert quota_left(str(tmp_path / "none")) is None
