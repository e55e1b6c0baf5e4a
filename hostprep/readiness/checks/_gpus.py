"""The GPUs that checks judge, and what is said where there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hostprep.host.gpu import Gpu, Nvml
from hostprep.host.gpu_driver import DriverFacts, read_driver
from hostprep.readiness.context import Context
from hostprep.readiness.model import Finding, Measured, Remedy, Status

# More than the driver is given to answer (host.gpu_bounded): what it then says is a verdict, and
# not that a check hangs.
DRIVER_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What NVML says, and the kernel.

    ``visible`` is CUDA_VISIBLE_DEVICES and ``order`` CUDA_DEVICE_ORDER, None where unset.
    """

    nvml: Nvml
    driver: DriverFacts
    visible: str | None
    order: str | None

    @property
    def no_hardware(self) -> bool:
        """Return whether nothing speaks of an NVIDIA GPU."""
        return not (self.driver.has_gpu or self.driver.module_version or self.nvml.gpus)


def look(context: Context) -> Facts:
    """Ask NVML, then the kernel: starting NVML makes the device nodes."""
    nvml = context.nvml
    environ = context.environ
    return Facts(
        nvml,
        read_driver(context.root),
        environ.get("CUDA_VISIBLE_DEVICES"),
        environ.get("CUDA_DEVICE_ORDER"),
    )


def for_each(facts: Facts, judge: Callable[[Gpu], Finding]) -> Iterator[Finding]:
    """Judge each GPU; where there is none to see, one SKIP says why."""
    if facts.no_hardware:
        yield Finding(Status.SKIP, "GPU", "this host has no NVIDIA GPU.")
    elif not facts.nvml.gpus:
        yield Finding(Status.SKIP, "GPU", "the driver shows no GPU; HP050 says why.")
    for gpu in facts.nvml.gpus:
        yield judge(gpu)


def name(gpu: Gpu) -> str:
    """Return the subject for a GPU, by NVML's number, which is that of nvidia-smi."""
    return f"GPU {gpu.index}"


def says_something(gpu: Gpu) -> bool:
    """Return whether NVML tells the state of a GPU at all; of a lost one it tells nothing."""
    return gpu.total_bytes is not None or gpu.utilisation_percent is not None


def not_told(gpu: Gpu, what: str, section: str) -> Finding:
    """Return the UNKNOWN for what NVML does not say of a GPU."""
    return Finding(
        Status.UNKNOWN,
        name(gpu),
        f"NVML does not say {what} of the {gpu.name}.",
        Measured("not told", None),
        remedy=Remedy(
            (f"nvidia-smi -i {gpu.index} -q -d {section}",),
            "a newer driver may tell; a virtual GPU is for its host to look at",
        ),
    )
