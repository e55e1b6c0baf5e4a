"""How many samples a second the GPU takes: as the user says, or measured if that is meaningful."""

from __future__ import annotations

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.loading.measuring.measure import Measurer
from hostprep.loading.model import SampleCost

# Larger batches give no higher rate, and may not fit.
_LARGEST_BATCH = 256


@dataclass(frozen=True, slots=True)
class GpuRate:
    """Samples a second, None if not known; where the figure is from, and what to note about it."""

    samples_per_s: float | None = None
    origin: str | None = None
    note: str | None = None


def given_rate(samples_per_s: float | None) -> GpuRate:
    """Return the rate that the user gave, if any."""
    return GpuRate(samples_per_s, "--gpu-rate" if samples_per_s else None)


def measured_rate(measurer: Measurer, cost: SampleCost) -> GpuRate:
    """Return the rate of a network for images of the size that the loader gives.

    It says nothing about a GPU that trains on texts, tables or small images: such networks take
    many times as many samples. Nothing that goes wrong here ends the recommendation.
    """
    if measurer.subject is None or not measurer.subject.cuda:
        return GpuRate()
    if cost.image_side is None:
        return GpuRate(
            note="the GPU's rate was not measured, because the batches hold no images of 128"
            " pixels or more: give it with --gpu-rate to learn how many workers are enough"
        )
    try:
        found = measurer.gpu(min(cost.batch_size, _LARGEST_BATCH), cost.image_side)
    except HostprepError as error:
        return GpuRate(note=f"the GPU's rate was not measured: {error.message}")
    words = (
        f"{found['network']}, {found['side']} pixels, batches of {found['batch_size']}, on"
        f" {found['device']}"
    )
    return GpuRate(found["samples_per_s"], f"measured: {words}")
