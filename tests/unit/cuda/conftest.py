"""What the tests of the measuring code share: CUDA in virtual time, and small batches for it."""

from __future__ import annotations

import pytest

from hostprep.cuda import bench as bench_module
from hostprep.cuda import delivery, training
from hostprep.units import KIB, MIB
from tests.unit.cuda.virtual_cuda import VirtualCuda


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
