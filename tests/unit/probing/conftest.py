"""A folder in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.probing import small_files


@pytest.fixture
def memory_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Have copies be staged in a folder of this test's: in /dev/shm others probe meanwhile."""
    with tempfile.TemporaryDirectory(prefix="hostprep-test-", dir="/dev/shm") as name:
        monkeypatch.setattr(small_files, "MEMORY_FOLDER", Path(name))
        yield Path(name)
