"""Sources whose files take fewer blocks than their copies will: they have no holes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.compare import differences
from tests.kit.compressing import compressing_fs
from tests.kit.stagecraft import hostprep

MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def source(safe_dir: Path) -> Iterator[Path]:
    real = safe_dir / "real"
    real.mkdir()
    for number in range(4):
        (real / f"{number}.npy").write_bytes(os.urandom(100_000))
    (real / "shard.tar").write_bytes(os.urandom(70 * MIB))  # over 64 MiB: in ranges, by all workers
    with compressing_fs(real, safe_dir / "data") as point:
        assert sum(8 * os.lstat(path).st_blocks for path in point.iterdir()) < 2 * MIB
        yield point


def test_what_is_compressed_needs_all_of_its_size(source: Path, safe_dir: Path) -> None:
    words = ("stage", source, "--to-tmpfs", "40M", "--at", safe_dir / "v", "--reserve", "0")
    for extra in (("--dry-run",), ()):
        error = hostprep(*words, *extra, expect=5)["error"]
        assert "does not fit" in error["message"]
    assert not (safe_dir / "v").exists()


def test_it_is_copied_as_any_other(source: Path, safe_dir: Path) -> None:
    words = ("stage", source, "--to-tmpfs", "100M", "--at", safe_dir / "v", "--reserve", "0")
    staged = hostprep(*words)
    assert (staged["files"], staged["verified"]) == (5, True)
    assert staged["copied_hole_bytes"] == 0
    assert differences(safe_dir / "real", safe_dir / "v/data", owners=True) == []
    copy = os.lstat(safe_dir / "v/data/shard.tar")
    assert 512 * copy.st_blocks >= copy.st_size
