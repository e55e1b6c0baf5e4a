"""What the GPU takes: measured where the batches hold images, and never the end of everything."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

from hostprep.errors import HostprepError, Inconclusive
from hostprep.loading import failures
from hostprep.loading.child import gpu_step, jobs
from hostprep.loading.child.images import image_side
from hostprep.loading.gpu_rate import GpuRate, given_rate, measured_rate
from hostprep.loading.measuring.measure import Measurer
from tests.unit.loading import making
from tests.unit.loading.test_slow_probes import Silent


@pytest.mark.parametrize(
    ("batch", "side"),
    [
        (torch.zeros(8, 3, 224, 224), 224),
        ({"label": torch.zeros(8), "image": torch.zeros(8, 3, 128, 512)}, 256),
        ((np.zeros((2, 200, 200, 3), np.uint8), [1, 2]), 200),
        (torch.zeros(8, 3, 32, 32), None),  # CIFAR
        (torch.zeros(8, 4, 224, 224), None),
        (torch.zeros(3, 224, 224), None),  # one image, not a batch
        (torch.zeros(8, 100), None),
        ({"text": ["a"] * 8, "tokens": torch.zeros(8, 1024)}, None),
        ([torch.nested.nested_tensor([torch.zeros(3, 200, 200)])], None),  # has no shape
        ([], None),
        (7, None),
    ],
)
def test_batches_of_images_are_told_from_others(batch: Any, side: int | None) -> None:
    assert image_side(batch) == side


class WithGpu(Measurer):
    """Has a GPU that takes 2,000 images a second, or what ``answer`` says."""

    answer: Any = None

    def gpu(self, batch_size: int, side: int) -> dict[str, Any]:
        if isinstance(type(self).answer, HostprepError):
            raise type(self).answer
        return {
            "samples_per_s": 2000.0,
            "batch_size": batch_size,
            "side": side,
            "network": "N",
            "device": "cuda",
        }


def measured(image: int | None, batch_size: int = 32, **subject: Any) -> GpuRate:
    measurer = WithGpu({}, "mine", None, making.share(), time.monotonic() + 60, 1.0, Silent())
    measurer.subject = making.subject(**{"cuda": True, **subject})
    return measured_rate(measurer, making.cost(image_side=image, batch_size=batch_size))


def test_only_images_are_measured_in_batches_that_fit() -> None:
    found = measured(160, batch_size=8192)
    assert found.samples_per_s == 2000
    assert found.origin is not None
    assert "160 pixels, batches of 256, on cuda" in found.origin
    assert found.note is None
    none = measured(None)
    assert none.samples_per_s is None
    assert "--gpu-rate" in (none.note or "")
    assert measured(224, cuda=False) == GpuRate()
    assert given_rate(1500.0) == GpuRate(1500.0, "--gpu-rate")


@pytest.mark.parametrize(
    "error",
    [
        failures.LoaderFailed("the GPU raised."),
        failures.hung("mine", "start", 0, 60),
        Inconclusive("no memory."),
    ],
)
def test_a_gpu_that_cannot_be_timed_is_a_note(
    error: HostprepError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WithGpu, "answer", error)
    found = measured(224)
    assert found.samples_per_s is None
    assert error.message in (found.note or "")


def test_training_steps_that_fail_are_not_the_loaders_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so the step fails, whatever torch this is
    measurer = Measurer({}, "mine", None, making.share(), time.monotonic() + 60, 1.0, Silent())
    measurer.subject = making.subject(cuda=True)
    note = measured_rate(measurer, making.cost(image_side=224, batch_size=4)).note or ""
    assert "a training step failed there: " in note and "mine" not in note


class Events:
    """Keeps what the child tells."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def tell(self, event: str, **fields: Any) -> None:
        self.told.append({"event": event, **fields})


_SHORT = torch.cuda.OutOfMemoryError("CUDA out of memory.")


def memory_for(
    samples: int, monkeypatch: pytest.MonkeyPatch, error: Exception = _SHORT
) -> list[int]:
    """Have a device with memory for batches of so many samples; return what was tried."""
    tried = []

    def short(device: str, batch_size: int, side: int, seconds: float) -> dict[str, Any]:
        tried.append(batch_size)
        if batch_size > samples:
            raise error
        return {"batch_size": batch_size}

    monkeypatch.setattr(gpu_step, "time_steps", short)
    return tried


@pytest.mark.parametrize(
    "error",
    [_SHORT, RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED")],
    ids=lambda error: type(error).__name__,
)
def test_batches_are_halved_until_the_gpu_has_memory_for_them(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = memory_for(2, monkeypatch, error)
    events = Events()
    job = {"device": "cpu", "batch_size": 11, "side": 32, "seconds": 0.05}
    jobs._gpu(job, events)  # type: ignore[arg-type]
    assert tried == [11, 5, 2]
    assert [each["event"] for each in events.told] == ["opened", "result"]
    assert events.told[1]["result"]["batch_size"] == 2


def test_a_gpu_without_memory_for_one_sample_is_inconclusive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory_for(0, monkeypatch)
    job = {"device": "cpu", "batch_size": 2, "side": 32, "seconds": 0.05}
    with pytest.raises(Inconclusive, match="no memory free"):
        jobs._gpu(job, Events())  # type: ignore[arg-type]


def test_another_error_of_the_step_is_not_taken_for_too_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory_for(2, monkeypatch, RuntimeError("CUDA error: unspecified launch failure"))
    job = {"device": "cpu", "batch_size": 8, "side": 32, "seconds": 0.05}
    with pytest.raises(RuntimeError, match="launch failure"):
        jobs._gpu(job, Events())  # type: ignore[arg-type]
