"""What data sets use, wherever they use it: threads that end, programs, files and shared memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hostprep.loading.child import processes, timing
from hostprep.loading.child.timing import time_loader
from hostprep.units import MIB
from tests.unit.loading.test_timing import job, opened, silent

pytestmark = pytest.mark.usefixtures("torchs_threads")

SIZE_BYTES = 256 << 20


class Busy:
    """Samples that take processor time; ``spent`` is how much, by sample, as they say it."""

    def __init__(self) -> None:
        self.spent: list[float] = []

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        self.spent.append(self.work())
        return torch.zeros(10)

    def work(self) -> float:
        """Do it, and return the processor seconds that it took."""
        raise NotImplementedError


class Threaded(Busy):
    """Compresses in a thread of its own, which then ends, as video readers do."""

    noise = os.urandom(1 << 20)

    def work(self) -> float:
        spent = []

        def compress() -> None:
            zlib.compress(self.noise)
            spent.append(time.thread_time())

        thread = threading.Thread(target=compress)
        thread.start()
        thread.join()
        return spent[0]


class Programs(Busy):
    """Runs a program for each sample, as who calls ffmpeg does."""

    def work(self) -> float:
        def children() -> float:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            return used.ru_utime + used.ru_stime

        before = children()
        subprocess.run([sys.executable, "-S", "-c", "sum(range(1_000_000))"], check=True)
        return children() - before


@pytest.mark.timed
@pytest.mark.parametrize("data", [Threaded(), Programs()])
def test_work_of_threads_and_programs_that_ended_is_no_waiting(data: Busy) -> None:
    found, _ = time_loader(opened(data), job(0, batch_size=2, seconds=1.0), silent)
    cost = found["cost"]
    spent = sum(data.spent) / len(data.spent)
    assert cost["cpu_seconds"] > 0.8 * spent
    # The time of programs that ended is counted in hundredths of a second.
    assert cost["waiting_seconds"] <= max(0.0, cost["worker_seconds"] - cost["cpu_seconds"])
    probe = found["probe"]
    assert probe["own_cpus"] > 0.8 * spent * probe["samples_per_s"]


def test_programs_that_still_run_count() -> None:
    before = processes.usage(())
    spinning = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.05)
            after = processes.usage(())
            if after.own_cpu - before.own_cpu > after.main_cpu - before.main_cpu + 0.2:
                return
    finally:
        spinning.kill()
        spinning.wait()
    raise AssertionError("what it used was not seen")


def test_others_on_processors_that_the_scheduler_gives_nobody_take_nothing_from_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are pinned to what isolcpus= keeps from us, though it is in our affinity."""
    stat = "cpu0 1 0 0 9 0 0 0 0 0 0\ncpu1 500 0 0 9 0 0 0 0 0 0\n"
    monkeypatch.setattr(processes, "_read", lambda path: stat)
    monkeypatch.setattr(processes, "scheduled_cpus", lambda: frozenset({0}))
    assert processes._everybody() == 1 / os.sysconf("SC_CLK_TCK")


class Read:
    """Every sample reads all of ``data``."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(self.data[::1024].sum()))


class Counted(Read):
    """Every sample counts references to all objects in ``data``."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(sum(1 for each in self.data if each is not None)))


def held_by_a_worker(data: Any) -> int:
    """Return the bytes that a worker is said to hold that was forked; others hold all anew."""
    forking = DataLoader(data, num_workers=1, multiprocessing_context="fork")
    found, keep = time_loader(
        opened(data, forking), job(2, batch_size=1, seconds=0.2, limit_seconds=60.0), silent
    )
    del keep
    held: int = found["probe"]["worker_memory_bytes"]
    return held


@pytest.mark.parametrize("folder", ["disk", "memory"])
def test_mapped_files_are_not_held_by_each_worker(folder: str, tmp_path: Path) -> None:
    path = (tmp_path if folder == "disk" else Path("/dev/shm")) / f"hostprep-test-{os.getpid()}"
    try:
        if folder == "memory":
            path.write_bytes(bytes(SIZE_BYTES))
        else:
            with path.open("wb") as file:
                file.truncate(SIZE_BYTES)
        mapped = np.memmap(path, np.uint8, "r")
        assert held_by_a_worker(Read(mapped)) < SIZE_BYTES / 4
    finally:
        path.unlink(missing_ok=True)


def test_an_array_of_the_parent_is_not_held_by_each_worker() -> None:
    assert held_by_a_worker(Read(np.ones(SIZE_BYTES, np.uint8))) < SIZE_BYTES / 4


def test_objects_of_the_parent_that_workers_copy_by_counting_references_are_held() -> None:
    objects = [float(number) for number in range(2_000_000)]  # 24 bytes each
    assert held_by_a_worker(Counted(objects)) > 2_000_000 * 24


def test_of_processes_that_are_gone_nothing_is_known() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert processes.own_memory(gone.pid) is None
    assert processes.threads_and_affinity(gone.pid) == (None, None)
    before = processes.usage([gone.pid])
    assert processes.usage([gone.pid]).own_cpu >= before.own_cpu


@pytest.mark.parametrize(("grown_mib", "growth_mib"), [(-18, 0), (27, 0), (54, 27)])
def test_what_a_worker_has_in_hand_is_no_growth(
    grown_mib: int, growth_mib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At batches of 18 MiB: a slow loader that keeps all makes no more than three in a probe."""
    monkeypatch.setattr(processes, "own_memory", lambda pid: (100 + grown_mib) * MIB)
    found = timing._worker([os.getpid()], 100 * MIB, 2.0, 18 * MIB)
    assert found["worker_growth_bytes_per_s"] == growth_mib * MIB
