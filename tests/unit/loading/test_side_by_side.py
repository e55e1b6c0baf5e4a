"""What several readers get of storage, as one reader cannot tell."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.loading.child import jobs
from hostprep.loading.files import side_by_side, stages
from hostprep.loading.files.model import SideBySide, Stage, Stages
from hostprep.loading.files.side_by_side import may_bind, read_side_by_side

NAMES = [f"{number}.jpg" for number in range(10_000)]
READ_SECONDS = 0.01


class Storage:
    """Takes a while for each file, and as many requests at once as it has ``arms``."""

    def __init__(self, arms: int) -> None:
        self.asked: list[str] = []
        self._free = threading.BoundedSemaphore(arms)

    def read_whole(self, name: str) -> bytes:
        self.asked.append(name)
        with self._free:
            time.sleep(READ_SECONDS)
        return b""


def reading(arms: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Storage, SideBySide]:
    storage = Storage(arms)
    monkeypatch.setattr(side_by_side, "read_whole", storage.read_whole)
    found = read_side_by_side(NAMES, 8, 0.4)
    assert found is not None
    return storage, found


def test_one_arm_gives_no_more_to_eight_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, found = reading(1, monkeypatch)
    assert found.readers == 8
    assert found.files_per_s <= 1 / READ_SECONDS
    assert found.cpus < 0.8
    assert len(storage.asked) == found.files
    assert set(storage.asked) == set(NAMES[: found.files])  # each once


def test_storage_that_takes_eight_at_once_gives_each_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, found = reading(8, monkeypatch)
    assert found.files_per_s > 2 / READ_SECONDS  # nearly 8 on a machine that has nothing else to do


def test_too_few_files_are_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "read_whole", Storage(8).read_whole)
    assert read_side_by_side(NAMES[:15], 8, 0.4) is None
    assert read_side_by_side([], 8, 0.4) is None


def test_what_cannot_be_read_counts_for_nothing() -> None:
    assert read_side_by_side([f"/nowhere/{name}" for name in NAMES], 8, 0.4) is None


def timed(read: float, decode: float) -> Stages:
    parts = {"read_as_is": (read, 1e-5), "decode": (decode, decode)}
    parts |= {"resize": (1e-6, 1e-6), "collate": (1e-6, 1e-6)}
    stages = tuple(Stage(name, *times) for name, times in parts.items())
    return Stages("image", "pillow", 100, 0, "", 1e5, 600_000, stages, "flash", "")


@pytest.mark.parametrize(
    ("read", "decode", "binds"), [(0.01, 0.002, True), (2e-5, 0.002, False), (2e-5, 1e-6, True)]
)
def test_storage_is_asked_only_where_it_may_bind(read: float, decode: float, binds: bool) -> None:
    assert may_bind(timed(read, decode), 2) is binds


@pytest.mark.parametrize(("processors", "asked"), [(1, False), (64, True)])
def test_whether_it_may_bind_is_a_matter_of_the_processors_that_the_scheduler_gives(
    processors: int, asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that isolcpus= keeps from a process decode nothing for it."""
    listed = {"names": NAMES, "kind": "image", "decoder": "pillow", "side": 32, "directory": "/"}
    (tmp_path / "listed").write_text(json.dumps(listed))
    monkeypatch.setattr(jobs, "scheduled_cpus", lambda: frozenset(range(processors)))
    monkeypatch.setattr(stages, "time_stages", lambda *_: timed(0.01, 0.03))
    read: list[int] = []
    monkeypatch.setattr(
        side_by_side, "read_side_by_side", lambda names, readers, _: read.append(readers)
    )
    job = {"files": str(tmp_path / "listed"), "batch_size": 1, "seconds": 1.0, "readers": 8}
    events: Any = SimpleNamespace(tell=lambda *_, **__: None)
    jobs._stages(job, events)
    assert (read == [8]) is asked
