"""Does the driver stay loaded between two programs?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.gpu import Gpu
from hostprep.readiness.checks import _gpus
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status


@dataclass(frozen=True, slots=True)
class Facts:
    """``with_screen``: the PCI addresses of the GPUs that drive a screen."""

    gpus: _gpus.Facts
    with_screen: tuple[str, ...]


def look(context: Context) -> Facts:
    """Read the mode, and which GPUs drive a screen: their driver is never unloaded."""
    gpus = _gpus.look(context)
    devices = context.root / "sys/bus/pci/devices"
    with_screen = tuple(
        address
        for address in gpus.driver.pci_devices
        for enabled in (devices / address).glob("drm/card*/card*-*/enabled")
        if enabled.read_text().strip() == "enabled"
    )
    return Facts(gpus, with_screen)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each GPU; the result is never worse than WARN."""
    return _gpus.for_each(facts.gpus, lambda gpu: _judge_one(gpu, facts.with_screen))


def _judge_one(gpu: Gpu, with_screen: tuple[str, ...]) -> Finding:
    if gpu.persistence is None:
        message = f"NVML does not say whether the driver stays loaded for the {gpu.name}."
        return Finding(Status.SKIP, _gpus.name(gpu), message)
    screen = any(_gpus.is_at(gpu, address) for address in with_screen)
    fine = gpu.persistence or screen
    if gpu.persistence:
        message = "persistence mode is on: the driver stays loaded."
    elif screen:
        message = "persistence mode is off, but a screen keeps the driver loaded."
    else:
        message = (
            "persistence mode is off: the driver starts again for each program, which takes"
            " seconds."
        )
    return Finding(
        Status.PASS if fine else Status.WARN,
        _gpus.name(gpu),
        message,
        Measured("on" if gpu.persistence else "off", gpu.persistence),
        "on",
        "NVIDIA, driver persistence",
        remedy=None
        if fine
        else Remedy(
            ("systemctl enable --now nvidia-persistenced", "nvidia-smi -pm 1"),
            "the second lasts until the next boot; it is the one that helps if there is no such"
            " service, or if the service runs with --no-persistence-mode, as Ubuntu's does: to make"
            " it permanent, remove that option (systemctl edit --full nvidia-persistenced). In a"
            " container, do this on its host",
        ),
    )


CHECK = Check(
    code="HP057",
    title="the driver stays loaded",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=_gpus.DRIVER_SECONDS,
    page="""\
Checks persistence mode. Without it, the driver releases a GPU when the last program ends, and the
next program waits until the GPU is started again: seconds per GPU, a minute on a machine with
eight. Settings such as clocks, and the error counters, are lost as well.

**WARN**: persistence mode is off. It is never worse than WARN, because a long training run does not
notice. If a GPU drives a screen, the screen keeps the driver loaded, and the check passes.

`nvidia-persistenced`, which comes with the driver, keeps the mode on; but Ubuntu starts it with
`--no-persistence-mode`, and `nvidia-smi -pm 1` is then needed after each boot.
""",
)
