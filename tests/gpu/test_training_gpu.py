"""The end-to-end pass on the device: that it sees a GPU that waits, and leaves no sample files."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import repeat

import torch

from hostprep.cuda import CudaPrefetcher, training
from hostprep.cuda.bench import Bench
from hostprep.system.own_directory import VERIFY_PREFIX
from tests.gpu.transcript import environment

_STEP_SECONDS, _LATE_SECONDS = 0.005, 0.02
_BATCHES = 20


def _late() -> Iterator[torch.Tensor]:
    for _ in range(_BATCHES):
        time.sleep(_LATE_SECONDS)
        yield torch.ones(1 << 20, dtype=torch.uint8).pin_memory()


def test_a_gpu_that_waits_for_its_loader_is_seen_to() -> None:
    bench = Bench(0)

    def step(batch: torch.Tensor) -> None:
        bench.spin(_STEP_SECONDS)

    loader = CudaPrefetcher(_late(), depth=2)
    seconds, first, gaps = training._timed_pass(bench, loader, step)
    expected = (_BATCHES - 3) * (_LATE_SECONDS - _STEP_SECONDS)
    assert 0.8 * expected < gaps < 1.5 * expected, (seconds, first, gaps)


def test_one_that_has_its_batch_is_not() -> None:
    bench = Bench(0)
    batch = torch.ones(1 << 20, device="cuda")
    batches = repeat(batch, _BATCHES)
    _, _, gaps = training._timed_pass(bench, batches, lambda _: bench.spin(_STEP_SECONDS))
    assert gaps < 0.05 * _BATCHES * _STEP_SECONDS


def test_an_interrupt_takes_the_sample_files_along() -> None:
    command = [sys.executable, "-m", "hostprep", "verify", "--quick"]
    left = f"/dev/shm/{VERIFY_PREFIX}*"
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 60
        while not glob.glob(left) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        assert glob.glob(left)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 130
    assert glob.glob(left) == []
