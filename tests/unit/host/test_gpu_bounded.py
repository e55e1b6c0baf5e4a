"""NVML that answers, hangs or dies, asked in a process that can be left."""

from __future__ import annotations

import os
import time

import pytest

from hostprep.host import gpu_bounded
from hostprep.host.gpu import TIMEOUT, UNKNOWN, Gpu, GpuProcess, Nvml

_GPU = Gpu(
    index=1,
    name="H200",
    uuid="GPU-1",
    pci_bus_id="0000:01:00.0",
    total_bytes=1 << 37,
    used_bytes=None,
    utilisation_percent=3,
    link_generation=5,
    link_width=16,
    max_link_generation=5,
    max_link_width=16,
    clock_reasons=("idle",),
    persistence=True,
    ecc=None,
    ecc_uncorrected=None,
    processes=(GpuProcess(7, None),),
)
_NVML = Nvml(None, None, "570.1", "570.1", (12, 8), (_GPU,), closed=1)


def test_what_is_answered_arrives_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_bounded, "read_nvml", lambda settle_seconds: _NVML)
    assert gpu_bounded.ask_nvml() == _NVML


def test_a_driver_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(**_: float) -> Nvml:
        time.sleep(60)
        return _NVML

    monkeypatch.setattr(gpu_bounded, "_FIRST_SECONDS", 0.3)
    monkeypatch.setattr(gpu_bounded, "_GPU_SECONDS", 0.0)
    monkeypatch.setattr(gpu_bounded, "read_nvml", hang)
    began = time.monotonic()
    found = gpu_bounded.ask_nvml()
    assert time.monotonic() - began < 30
    assert found.code == TIMEOUT and found.gpus == ()
    assert "the driver hangs" in (found.problem or "")


def test_a_library_that_ends_its_process_does_not_end_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_bounded, "read_nvml", lambda settle_seconds: os.abort())
    found = gpu_bounded.ask_nvml()
    assert found.code == UNKNOWN and "does not answer" in (found.problem or "")
