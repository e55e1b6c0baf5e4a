"""The GPUs that checks judge, and the SKIP if there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hostprep.dataclass import dataclass
from hostprep.host.gpu import Gpu, Nvml
from hostprep.host.gpu_driver import DriverFacts, read_driver
from hostprep.readiness.context import Context
from hostprep.readiness.model import Finding, Measured, Remedy, Status

# Longer than the driver gets to answer (host.gpu_bounded), so that a driver that hangs is reported
# as that, and not as a check that hangs.
DRIVER_SECONDS = 180.0
# The values of these variables if no GPU is wanted (NVIDIA Container Toolkit; CUDA, older Slurm).
_NO_DEVICES = {
    "NVIDIA_VISIBLE_DEVICES": ("none", "void"),
    "CUDA_VISIBLE_DEVICES": ("", "-1", "NoDevFiles"),
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What NVML and the kernel say.

    ``visible`` is CUDA_VISIBLE_DEVICES and ``order`` CUDA_DEVICE_ORDER, None if unset.
    ``withheld`` says who keeps all GPUs from this process on purpose, None if nobody does.
    """

    nvml: Nvml
    driver: DriverFacts
    visible: str | None
    order: str | None
    withheld: str | None

    @property
    def no_hardware(self) -> bool:
        """Return whether there is no sign of an NVIDIA GPU."""
        return not (self.driver.has_gpu or self.driver.module_version or self.nvml.gpus)


def look(context: Context) -> Facts:
    """Ask NVML, then the kernel: starting NVML makes the device nodes."""
    nvml = context.nvml
    driver = read_driver(context.root)
    environ = context.environ
    return Facts(
        nvml,
        driver,
        environ.get("CUDA_VISIBLE_DEVICES"),
        environ.get("CUDA_DEVICE_ORDER"),
        _withheld(nvml, driver, environ),
    )


def _withheld(nvml: Nvml, driver: DriverFacts, environ: Mapping[str, str]) -> str | None:
    """Return who wants this job or container to have no GPU, if it has none.

    The environment has to say so; otherwise a container that was started without ``--gpus`` by
    mistake, or a user who may not open the device nodes, would look the same.
    """
    closed = bool(nvml.closed) and not nvml.gpus and not nvml.lost
    not_passed = driver.module_version is not None and not driver.nodes
    if not (closed or not_passed):
        return None
    for name, none in _NO_DEVICES.items():
        if environ.get(name) in none:
            return f"{name}={environ[name]!r} asks for no GPU"
    given = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
    if closed and "SLURM_JOB_ID" in environ and not any(name in environ for name in given):
        return "Slurm gave this job no GPU"
    return None


def for_each(facts: Facts, judge: Callable[[Gpu], Finding]) -> Iterator[Finding]:
    """Judge each GPU; if none can be seen, one SKIP says why."""
    if facts.no_hardware:
        yield Finding(Status.SKIP, "GPU", "this host has no NVIDIA GPU.")
    elif not facts.nvml.gpus:
        yield Finding(Status.SKIP, "GPU", "the driver shows no GPU; HP050 says why.")
    for gpu in facts.nvml.gpus:
        yield judge(gpu)


def name(gpu: Gpu) -> str:
    """Return the subject for a GPU, by its number in NVML and nvidia-smi."""
    return f"GPU {gpu.index}"


def is_at(gpu: Gpu, address: str) -> bool:
    """Return whether a GPU has this sysfs PCI address; NVML's domain has more digits."""
    return (gpu.pci_bus_id or "").endswith(address)


def says_something(gpu: Gpu) -> bool:
    """Return whether NVML reports any state of a GPU; it reports none of a lost one."""
    return gpu.total_bytes is not None or gpu.utilisation_percent is not None


def not_told(gpu: Gpu, what: str, section: str) -> Finding:
    """Return the UNKNOWN for something that NVML does not report of a GPU."""
    return Finding(
        Status.UNKNOWN,
        name(gpu),
        f"for the {gpu.name}, NVML does not report {what}.",
        Measured("not reported", None),
        remedy=Remedy(
            (f"nvidia-smi -i {gpu.index} -q -d {section}",),
            "a newer driver may report it; for a virtual GPU, look on its host",
        ),
    )
