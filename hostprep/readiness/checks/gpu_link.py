"""Do the GPUs use all the lanes that both card and slot support?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.host.gpu import BUSY_PERCENT, Gpu
from hostprep.readiness.checks._gpus import DRIVER_SECONDS, Facts, for_each, look, name
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each GPU's width; an idle link lowers its speed, but keeps its width."""
    return for_each(facts, _judge_one)


def _judge_one(gpu: Gpu) -> Finding:
    width, most = gpu.link_width, gpu.max_link_width
    if not width or not most:
        message = f"the {gpu.name} reports no PCIe link: it is built into the board, or virtual."
        return Finding(Status.SKIP, name(gpu), message)
    now, best = gpu.link_generation, gpu.max_link_generation
    slower = now is not None and best is not None and now < best
    asleep = slower and (gpu.utilisation_percent or 0) < BUSY_PERCENT
    fine = width >= most and (not slower or asleep)
    wanted = f"{best}.0 x{most}" if slower and not asleep else f"x{most}"
    message = f"PCIe {now or '?'}.0 x{width}"
    if not fine:
        message += f", although {best or '?'}.0 x{most} is possible"
    elif asleep:
        message += f": the link is idle, and runs at {best}.0 when it is used"
    # CUDA may number the GPUs in another order than NVML.
    only = f"CUDA_VISIBLE_DEVICES={gpu.uuid} " if gpu.uuid else ""
    return Finding(
        Status.PASS if fine else Status.WARN,
        name(gpu),
        f"{message}.",
        Measured(f"{now or '?'}.0 x{width}", width, "lanes", "higher"),
        wanted,
        "NVML: the width and generation that card and slot can both do",
        most,
        None
        if fine
        else Remedy(
            (f"{only}hostprep verify --quick", f"nvidia-smi -i {gpu.index} -q"),
            "verify reads the link under load; then reseat the card, and look for risers and for"
            " lanes that the slot shares with an NVMe drive",
        ),
    )


CHECK = Check(
    code="HP056",
    title="links of the GPUs are whole",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=DRIVER_SECONDS,
    page="""\
Compares the PCIe lanes that the link of each GPU uses now with the number that both the card and
the slot can do, according to NVML. With half the lanes, batches arrive at half the rate.

An idle link saves power by falling back to an older generation, never by dropping lanes. The
generation is therefore judged only while the GPU is busy; `hostprep verify` reads it under load.

**WARN**: the link has fewer lanes than it could have, because of a card that has slipped in its
slot, a riser, dirt, or a slot that shares its lanes. Or it runs at a lower generation although the
GPU is busy.
""",
)
