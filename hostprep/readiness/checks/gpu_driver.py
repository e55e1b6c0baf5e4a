"""Is NVIDIA's driver running, and does it answer?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.cuda.starting import driver_trouble
from hostprep.readiness.checks._gpus import DRIVER_SECONDS, Facts, look
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.system.python import pip_line


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge whether the GPUs on the bus have a working driver."""
    nvml = facts.nvml
    wanted = ("NVML starts and answers", "NVML; the PCI devices of class display, vendor 10de")
    if facts.no_hardware:
        yield Finding(Status.SKIP, "driver", "this host has no NVIDIA GPU, and no driver.")
        return
    if nvml.problem is None:
        cuda = nvml.cuda_version
        knows = "" if cuda is None else f", and supports CUDA {cuda[0]}.{cuda[1]}"
        message = f"driver {nvml.driver_version} answers{knows}."
        measured = Measured(f"driver {nvml.driver_version}", nvml.driver_version)
        yield Finding(Status.PASS, "driver", message, measured, *wanted)
        return
    if facts.withheld is not None:
        yield Finding(
            Status.SKIP,
            "driver",
            f"{facts.withheld}, and none can be opened here, so the driver was not judged. Run the"
            " check outside the job or container.",
        )
        return
    if nvml.code is None:
        yield Finding(
            Status.UNKNOWN,
            "driver",
            f"the driver cannot be asked: {nvml.problem}.",
            remedy=Remedy((pip_line("nvidia-ml-py"),), "in the environment of hostprep"),
        )
        return
    reason, cure = driver_trouble(nvml, facts.driver) or (
        nvml.problem,
        "nvidia-smi; dmesg | grep -iE 'nvrm|xid'; then reinstall the driver",
    )
    yield Finding(
        Status.FAIL,
        "driver",
        f"{reason}.",
        Measured(nvml.problem, nvml.code),
        *wanted,
        remedy=Remedy(("nvidia-smi", "dmesg | grep -iE 'nvrm|nvidia'"), cure),
    )


CHECK = Check(
    code="HP050",
    title="driver of the GPUs answers",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=DRIVER_SECONDS,
    page="""\
Checks whether NVML, the driver's library, starts; and if not, why. The reason comes from the loaded
kernel module (`/proc/driver/nvidia/version`), the device nodes `/dev/nvidia*` and the PCI devices.

**FAIL**: there is a GPU and its driver does not answer. The usual reasons: the module is not loaded
(a kernel upgrade without DKMS, Secure Boot, nouveau); the libraries were upgraded while the old
module keeps running until the reboot; this user may not open the nodes; a container was started
without `--gpus all`; a GPU has fallen off the bus; or the driver hangs, which is reported after 10
seconds plus 7 for each GPU, because a GPU that is starting up may take that long.
**UNKNOWN**: the Python package nvidia-ml-py is missing.
**SKIP**: the bus has no NVIDIA GPU, or only GPUs that are passed through to virtual machines; or no
GPU can be opened here and none is wanted: in a Slurm job that was given none, or if
NVIDIA_VISIBLE_DEVICES (`void`, `none`) or CUDA_VISIBLE_DEVICES (empty, `-1`) says so.
""",
)
