"""A folder of small photographs, workers that are forked, and torch as it was."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.loading.making import picture


@pytest.fixture(autouse=True)
def forked_workers() -> Iterator[None]:
    """Have workers forked where a loader says nothing else, as it was up to Python 3.13.

    Since then each of them imports torch, and what pytest was started with, before its first batch:
    that takes longer than most tests here give all of a probe.
    """
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


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
