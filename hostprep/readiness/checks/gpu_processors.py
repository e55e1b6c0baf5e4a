"""May this process run on the socket to which a GPU is attached?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hostprep.dataclass import dataclass
from hostprep.host.cpu import allowed_cores, online_cpus
from hostprep.host.gpu import Gpu
from hostprep.host.lists import format_list, parse_list
from hostprep.readiness.checks import _gpus
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_count


@dataclass(frozen=True, slots=True)
class Facts:
    """``near``: by PCI address, the numbers of the processors of the same NUMA node."""

    gpus: _gpus.Facts
    near: Mapping[str, frozenset[int]]
    allowed: frozenset[int]


def look(context: Context) -> Facts:
    """Read which processors are near each GPU, and which ones this process may use."""
    gpus, online = _gpus.look(context), online_cpus(context.root)
    lists = {
        address: context.read(f"sys/bus/pci/devices/{address}/local_cpulist")
        for address in gpus.driver.pci_devices
    }
    return Facts(
        gpus,
        {address: parse_list(listed) & online for address, listed in lists.items()},
        frozenset(number for core in allowed_cores(context.root) for number in core),
    )


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each GPU."""
    return _gpus.for_each(facts.gpus, lambda gpu: _judge_one(gpu, facts))


def _judge_one(gpu: Gpu, facts: Facts) -> Finding:
    near = next((near for at, near in facts.near.items() if _gpus.is_at(gpu, at)), frozenset())
    if not near:
        message = f"the kernel does not say which processors are near the {gpu.name}."
        return Finding(Status.SKIP, _gpus.name(gpu), message)
    usable, listed = near & facts.allowed, format_list(near)
    if usable:
        allowed = format_count(len(facts.allowed), "processor")
        are = "is" if len(usable) == 1 else "are"
        message = f"of the {allowed} that this process may use, {len(usable)} {are} near it."
    else:
        message = (
            f"it is attached to the socket of processors {listed}, but this process may run only on"
            f" {format_list(facts.allowed)}: each batch has to cross to the other socket."
        )
    return Finding(
        Status.PASS if usable else Status.WARN,
        _gpus.name(gpu),
        message,
        Measured(format_count(len(usable), "processor"), len(usable), "processors", "higher"),
        "at least 1 processor",
        f"the kernel: processors {listed} are near (local_cpulist)",
        1,
        None
        if usable
        else Remedy(
            (f"taskset --cpu-list --pid {listed} $$", "nvidia-smi topo -m"),
            "in the shell that starts the training; in Slurm, Cores= of the GPU in gres.conf and"
            " --gpu-bind=closest. If another process uses this GPU, nothing is wrong",
        ),
    )


CHECK = Check(
    code="HP058",
    title="processors near the GPUs may be used",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=_gpus.DRIVER_SECONDS,
    page="""\
On a machine with several sockets, each GPU is attached to one of them, and so is each part of the
memory. A process on another socket reaches the GPU over the link between the sockets, which is
slower and shared. For each GPU that this process sees, the check tests whether the process may run
on any of the processors that the kernel lists as near (`local_cpulist` of the PCI device).

**WARN**: it may run on none of them, because `taskset`, `numactl` or a batch system has put the job
on another socket. The batches of all workers then take the longer path, and so does everything that
the GPU requests from the host.

Move the shell with `taskset --cpu-list --pid LIST $$`, or let Slurm choose: `Cores=` of each GPU in
`gres.conf` (`AutoDetect=nvml` finds them) and `srun --gpu-bind=closest`. `nvidia-smi topo -m` shows
what is near to what.
""",
)
