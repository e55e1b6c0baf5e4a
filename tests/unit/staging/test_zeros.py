"""Hashes of holes: those of zeros, and computed once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import xxhash

from hostprep.staging.files import transfer, zeros
from hostprep.staging.model import RANGE_BYTES

MIB = 1 << 20


@pytest.mark.parametrize("count", [0, 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 7 * MIB + 3])
def test_a_hole_hashes_as_its_zeros(count: int) -> None:
    for _ in range(2):
        hasher = zeros.hasher_after(count)
        assert hasher.digest() == xxhash.xxh3_128_digest(bytes(count))
        hasher.update(b"data")
        zeros.add_zeros(hasher, count)
        whole = bytes(count) + b"data" + bytes(count)
        assert hasher.digest() == xxhash.xxh3_128_digest(whole)


def test_a_hole_at_the_beginning_of_a_range_is_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what the zeros are taken from made something else, only what is stored is right."""
    hole, data = 2 * RANGE_BYTES + 4 * MIB, b"x" * 4096
    with open(tmp_path / "sparse", "w+b", buffering=0) as file:
        os.pwrite(file.fileno(), data, hole)
        zeros.hasher_after(RANGE_BYTES)
        monkeypatch.setattr(zeros, "_ZEROS", os.urandom(2 * MIB))
        buffer = transfer.new_buffer()

        def found(offset: int, length: int) -> bytes:
            return transfer.hash_range(file.fileno(), offset, length, buffer, sparse=True)

        for offset in (0, RANGE_BYTES):
            assert found(offset, RANGE_BYTES) == xxhash.xxh3_128_digest(bytes(RANGE_BYTES))
        last = found(2 * RANGE_BYTES, 4 * MIB + len(data))
        assert last == xxhash.xxh3_128_digest(bytes(4 * MIB) + data)
