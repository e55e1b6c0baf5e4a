"""The pool of worker processes, at real directories."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hostprep.staging.processes.pool import Pool
from hostprep.staging.processes.worker import Job, Worker

_THREADS, _FOLDERS = 6, 60


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    for number in range(_FOLDERS):
        (tmp_path / f"{number}").mkdir()
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_a_worker_starts_no_thread_that_has_nothing_to_do(source: int) -> None:
    """Each takes its share of the processor from the others, if only to be started."""
    answered: list[str] = []
    before = set(psutil.Process().children())  # of other tests: the tracker of multiprocessing
    with Pool(Job(source), processes=1, threads=_THREADS) as pool:
        pool.readers = 1
        for number in range(_FOLDERS):
            pool.submit("scan", [f"{number}"], lambda result: answered.append(result[0][0]))
        pool.run()
        (child,) = set(psutil.Process().children()) - before
        assert child.num_threads() == 2  # the other one receives the tasks
    assert sorted(answered) == sorted(map(str, range(_FOLDERS)))


def test_tasks_that_wait_are_done_side_by_side(
    source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = threading.Barrier(_THREADS, timeout=20)
    monkeypatch.setattr(Worker, "do", lambda *_: everybody.wait())
    answered: list[int] = []
    with Pool(Job(source), processes=1, threads=_THREADS) as pool:
        for _ in range(3 * _THREADS):
            pool.submit("scan", [], answered.append)
        pool.run()
    assert sorted(answered) == sorted(3 * [*range(_THREADS)])
