"""The synthetic training step: the network it claims to be, and the same code run on the CPU."""

from __future__ import annotations

from hostprep.loading.child.gpu_step import _resnet50, time_steps


def test_it_is_the_size_of_a_resnet50() -> None:
    assert sum(weights.numel() for weights in _resnet50().parameters()) == 25_557_032


def test_steps_are_counted_on_any_device() -> None:
    found = time_steps("cpu", 2, 32, 0.05)
    assert found["steps"] >= 1
    assert found["samples_per_s"] > 0
    assert found["device"] == "the CPU"
