"""Are the GPUs' clocks limited right now?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.cuda.judge_device import SOFT_REASONS
from hostprep.host.gpu import HARD_REASONS, Gpu
from hostprep.readiness.checks._gpus import (
    DRIVER_SECONDS,
    Facts,
    for_each,
    look,
    name,
    not_told,
    says_something,
)
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each GPU."""
    return for_each(facts, _judge_one)


def _judge_one(gpu: Gpu) -> Finding:
    if gpu.clock_reasons is None and says_something(gpu):
        message = (
            f"NVML does not say what holds the clocks of the {gpu.name} down, as is usual for a"
            " virtual GPU: run nvidia-smi -q -d PERFORMANCE on the machine that has the card."
        )
        return Finding(Status.SKIP, name(gpu), message, Measured("not reported", None))
    if gpu.clock_reasons is None:
        return not_told(gpu, "what holds the clocks down", "PERFORMANCE")
    hard = [reason for reason in gpu.clock_reasons if reason in HARD_REASONS]
    soft = [reason for reason in gpu.clock_reasons if reason in SOFT_REASONS]
    status = Status.FAIL if hard else Status.WARN if soft else Status.PASS
    found = ", ".join(hard + soft)
    message = f"the clocks are held down: {found}."
    if status is Status.PASS:
        message = f"nothing is wrong with the clocks ({', '.join(gpu.clock_reasons) or 'full'})."
    return Finding(
        status,
        name(gpu),
        message,
        Measured(", ".join(gpu.clock_reasons) or "none", ", ".join(gpu.clock_reasons)),
        "no thermal slowdown, hardware slowdown or power brake",
        "NVML's clocks event reasons",
        remedy=None
        if status is Status.PASS
        else Remedy(
            (f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE,TEMPERATURE,POWER",),
            "check the fans, dust and the room's temperature; for a power brake or a hardware"
            " slowdown while idle, check the cables and the power supply",
        ),
    )


CHECK = Check(
    code="HP053",
    title="clocks of the GPUs are free",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=DRIVER_SECONDS,
    page="""\
Checks why the clocks of each GPU are below what they could be, according to NVML. Idle clocks,
clocks that somebody set, a power cap and a screen are not faults. Neither is the brake that NVIDIA
reports for a moment when the clocks change: a brake counts only if it lasts over most of five
readings within 0.4 s.

**FAIL**: the hardware itself slows the GPU down: it is too hot, or the power supply or the board
sends an external signal (power brake). The GPU then runs at half its clocks or less, and so does
every other GPU that waits for it.
**WARN**: the driver lowers the clocks because of the temperature. `hostprep verify` checks the same
under load.
**UNKNOWN**: NVML reports neither this nor anything else about the GPU. If only this is missing, as
for virtual GPUs, the result is SKIP: run the check on the machine that has the card.
""",
)
