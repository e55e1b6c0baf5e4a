"""``hostprep recommend`` where there is a GPU: its rate is measured, and "enough" is an answer.

The GPU is the CPU, which poses as one (``tests/kit/posing_gpu``): all but the device is real.
"""

from __future__ import annotations

import os

import pytest

from tests.kit.recommending import ROOT, recommend_for

pytestmark = pytest.mark.timed
POSING = ROOT / "tests/kit/posing_gpu"


@pytest.fixture
def gpu() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(POSING), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path}


def test_the_gpus_rate_is_measured_and_is_the_target(gpu: dict[str, str]) -> None:
    status, found, _ = recommend_for("Images", "--batch-size", "4", "--seconds", "20", env=gpu)
    assert status == 0
    evidence = found["evidence"]
    assert evidence["gpu_rate_from"] == (
        "measured: ResNet-50, mixed precision, 128 pixels, batches of 4, on a GPU that poses"
    )
    rate = evidence["gpu_rate_samples_per_s"]
    assert 0 < rate < 250
    # A sample takes three milliseconds: without workers 330/s, which is more than that GPU takes.
    assert found["binding"] == "gpu"
    assert found["num_workers"] <= 1
    assert found["expected_samples_per_s"] >= 0.95 * rate


def test_what_is_no_image_says_nothing_of_the_gpu(gpu: dict[str, str]) -> None:
    status, found, _ = recommend_for("Waiting", "--seconds", "14", env=gpu)
    assert status == 0
    assert found["evidence"]["gpu_rate_samples_per_s"] is None
    assert any("give it with --gpu-rate" in note for note in found["notes"])
