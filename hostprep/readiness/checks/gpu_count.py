"""Does the driver show every GPU that is on the bus and assigned to us?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.gpu_driver import driver_of
from hostprep.readiness.checks import _gpus
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_count


@dataclass(frozen=True, slots=True)
class Facts:
    """``on_bus`` are the addresses of the GPUs that belong to NVIDIA's driver.

    ``nodes`` is the number of GPU device nodes. ``job``: a batch system assigns GPUs.
    """

    gpus: _gpus.Facts
    on_bus: tuple[str, ...]
    nodes: int
    job: bool


def look(context: Context) -> Facts:
    """Read the bus and the nodes; a GPU held by another driver, such as vfio, does not count."""
    gpus = _gpus.look(context)
    devices = context.root / "sys/bus/pci/devices"
    on_bus = tuple(
        address
        for address in gpus.driver.pci_devices
        if driver_of(devices / address) in ("", "nvidia")
    )
    nodes = sum(node[-1].isdigit() for node in gpus.driver.nodes)
    return Facts(gpus, on_bus, nodes, "SLURM_JOB_ID" in context.environ)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the number; a container or a job only has the GPUs assigned to it."""
    nvml = facts.gpus.nvml
    shown = len(nvml.gpus)
    if facts.gpus.no_hardware:
        yield Finding(Status.SKIP, "GPUs", "this host has no NVIDIA GPU.")
        return
    if nvml.problem is not None and not shown:
        yield Finding(Status.SKIP, "GPUs", "the driver does not answer; HP050 says why.")
        return
    expected, by = _expected(facts)
    names = ", ".join(sorted({gpu.name for gpu in nvml.gpus}))
    enough = shown >= expected
    message = f"the driver shows {format_count(shown, 'GPU')}: {names}."
    if enough and nvml.closed:
        message = f"{message[:-1]}, and {nvml.closed} more that this process may not open."
    elif not enough:
        message = f"the driver shows only {shown} of {expected} GPUs; the others do not answer it."
    yield Finding(
        Status.PASS if enough else Status.FAIL,
        "GPUs",
        message,
        Measured(f"{shown} GPUs", shown, "GPUs", "higher"),
        f"{expected} GPUs",
        by,
        expected,
        None
        if enough
        else Remedy(
            ("dmesg | grep -iE 'nvrm|xid'", "lspci -d 10de: -nnk"),
            "power the machine off and on (a reboot may not be enough); then check power cables and"
            " slots",
        ),
    )


def _expected(facts: Facts) -> tuple[int, str]:
    """Return how many GPUs should be visible here, and who says so."""
    nvml = facts.gpus.nvml
    ours = max(0, len(facts.on_bus) - nvml.closed)
    counted = len(nvml.gpus) + nvml.lost
    if facts.job:
        return counted, "the batch system, which gave this job its share"
    if nvml.lost:
        return max(counted, ours), "the PCI devices, and what NVML counts"
    if 0 < facts.nodes < ours:
        return facts.nodes, "the /dev/nvidia* nodes given to this container"
    if nvml.closed:
        return ours, f"the PCI devices, except {nvml.closed} that this process may not open"
    return ours, "the PCI devices"


CHECK = Check(
    code="HP051",
    title="all GPUs are seen",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=_gpus.DRIVER_SECONDS,
    page="""\
Compares the number of GPUs that NVML shows with the number of NVIDIA's PCI devices that belong to
the driver: those bound to `nvidia` or to no driver. GPUs passed through to a virtual machine, or
used by nouveau, do not count. In a container, only the `/dev/nvidia*` nodes that it was given are
expected, and in a Slurm job only its share. GPUs that this process may not open are left to others,
and counted separately.

**FAIL**: the bus has more GPUs than the driver shows. A GPU has fallen off the bus (Xid 79), or it
failed to start (`RmInitAdapter failed` in the kernel's log). `torchrun` with one process per GPU
then fails, or leaves a process without a GPU. Power the machine off and on; check cables and slots.
""",
)
