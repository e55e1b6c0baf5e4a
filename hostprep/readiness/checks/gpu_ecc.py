"""Has the memory of a GPU lost data?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.host.gpu import Gpu
from hostprep.readiness.checks._gpus import DRIVER_SECONDS, Facts, for_each, look, name, not_told
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_count


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each GPU that has ECC enabled."""
    return for_each(facts, _judge_one)


def _judge_one(gpu: Gpu) -> Finding:
    if gpu.ecc is None:
        return Finding(Status.SKIP, name(gpu), f"the {gpu.name} has no ECC.")
    if not gpu.ecc:
        message = f"ECC of the {gpu.name} is switched off: errors go unnoticed."
        return Finding(Status.SKIP, name(gpu), message, Measured("ECC off", False))
    errors = gpu.ecc_uncorrected
    if errors is None:
        return not_told(gpu, "how many errors could not be corrected", "ECC")
    return Finding(
        Status.FAIL if errors else Status.PASS,
        name(gpu),
        f"since the driver was loaded, {format_count(errors, 'memory error')} could not be"
        " corrected.",
        Measured(format_count(errors, "error"), errors, "errors", "lower"),
        "0",
        "NVML's volatile uncorrected ECC errors; NVIDIA, GPU memory error management",
        0,
        Remedy(
            (
                f"nvidia-smi -i {gpu.index} -q -d ECC,ROW_REMAPPER",
                f"nvidia-smi -i {gpu.index} --gpu-reset",
            ),
            "end what uses it first; if errors come again after the reset, have the card replaced",
        )
        if errors
        else None,
    )


CHECK = Check(
    code="HP054",
    title="GPU memory is sound",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=DRIVER_SECONDS,
    page="""\
Counts the memory errors of each GPU that ECC detected but could not correct since the driver was
loaded. Such an error ends the program that used the page (Xid 48, 94, 95), and the row is replaced
at the next reset.

**FAIL**: there was at least one such error. Reset the GPU, or reboot, so that the row is replaced;
if errors return, or `nvidia-smi` shows that remapping failed, have the card replaced.
**UNKNOWN**: NVML does not report the number. Cards without ECC, such as gaming cards, are a SKIP,
and so are cards with ECC switched off.
""",
)
