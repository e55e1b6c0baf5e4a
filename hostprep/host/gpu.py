"""The NVIDIA GPUs of this host, by NVML; the only module that imports ``pynvml``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The GPUs' names in NVML's order; ``problem`` says why there are none to see."""

    names: tuple[str, ...]
    problem: str | None

    @property
    def count(self) -> int:
        """Return how many GPUs there are."""
        return len(self.names)


def read_gpus() -> GpuFacts:
    """Ask NVML for the GPUs; without a driver or the library there are none, and the reason."""
    try:
        import pynvml
    except ImportError:
        return GpuFacts((), "nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuFacts((), f"NVML does not start: {error}")
    try:
        names = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))
            names.append(name.decode() if isinstance(name, bytes) else str(name))
        return GpuFacts(tuple(names), None)
    except pynvml.NVMLError as error:
        return GpuFacts((), f"NVML does not answer: {error}")
    finally:
        pynvml.nvmlShutdown()
