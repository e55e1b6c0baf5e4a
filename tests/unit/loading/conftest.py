"""A folder of small photographs, and torch as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.loading.making import picture


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for number in range(20):
        folder = tmp_path / f"class{number % 3}"
        folder.mkdir(exist_ok=True)
        picture(number).save(folder / f"{number}.jpg", quality=95)
    (tmp_path / "labels.txt").write_text("0 1 2\n")
    (tmp_path / ".hidden.jpg").write_bytes(b"")
    return tmp_path


@pytest.fixture
def torchs_threads() -> Iterator[None]:
    """The timing ends with torch on one thread: in a process of its own that may stay so."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
