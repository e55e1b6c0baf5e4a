"""What the tests of the measuring code share: CUDA in virtual time, and small batches for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hostprep.cuda import bench as bench_module
from hostprep.cuda import delivery, training
from hostprep.units import KIB, MIB
from tests.unit.cuda.virtual_cuda import VirtualCuda


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Have torch compute here: its threads would wait for each other, spinning, for so little.

    On few processors, which other tests use meanwhile, that takes several times the time.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> VirtualCuda:
    return VirtualCuda(monkeypatch)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, files and sizes that a CPU copies in no time."""
    monkeypatch.setattr(delivery, "_SIDE", 32)
    monkeypatch.setattr(training, "_SIDE", 16)
    monkeypatch.setattr(training, "_SAMPLE_BYTES", 3 * 16 * 16)
    monkeypatch.setattr(training, "_BATCH", 8)
    monkeypatch.setattr(training, "_QUICK_BATCHES", 4)
    monkeypatch.setattr(bench_module, "QUICK_SWEEP", (4 * KIB, MIB, 4 * MIB))
