"""The GPUs, asked in a child process: a driver that hangs takes along who asks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from hostprep.host.gpu import TIMEOUT, UNKNOWN, GpuFacts, Nvml, read_gpus, read_nvml
from hostprep.host.gpu_driver import read_driver
from hostprep.system.bounded import NoAnswerInTime, ask_in_child
from hostprep.system.typed_json import from_json

# Without persistence mode a driver starts each GPU anew when it is asked: seconds for each.
_FIRST_SECONDS, _GPU_SECONDS = 10.0, 7.0


def ask_gpus() -> GpuFacts:
    """Return what ``read_gpus`` does; no GPUs, and why, where the driver does not answer."""
    found, problem, _ = _asked(lambda: asdict(read_gpus()))
    return GpuFacts((), problem) if problem else from_json(GpuFacts, found)


def ask_nvml(*, settle_seconds: float = 0.0) -> Nvml:
    """Return what ``read_nvml`` does; a ``problem`` alone where the driver does not answer."""
    found, problem, code = _asked(lambda: asdict(read_nvml(settle_seconds=settle_seconds)))
    return Nvml(code, problem, None, None, None, ()) if problem else from_json(Nvml, found)


def _asked(question: Callable[[], dict[str, Any]]) -> tuple[Any, str | None, int]:
    """Return the answer, or why there is none, as a sentence and as NVML's code for the like."""
    patience = _FIRST_SECONDS + _GPU_SECONDS * len(read_driver().pci_devices)
    try:
        return ask_in_child(question, patience_seconds=patience), None, 0
    except NoAnswerInTime:
        return None, f"NVML has not answered for {patience:.0f} s: the driver hangs", TIMEOUT
    except ChildProcessError as error:
        return None, f"NVML does not answer: {error}", UNKNOWN
