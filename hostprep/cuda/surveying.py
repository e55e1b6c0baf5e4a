"""The survey, in the smoke test's process: imports torch, queries NVML, starts CUDA.

Each step is announced before it begins, because each may hang, or take minutes, for its own reason:
the disk that torch is read from, the driver, one device.
"""

from __future__ import annotations

import os
from typing import Any

from hostprep.cuda.others import SETTLE_SECONDS
from hostprep.cuda.starting import Survey, TorchFacts
from hostprep.cuda.telling import tell
from hostprep.cuda.torch_errors import in_a_line
from hostprep.host.gpu import nvml_held, read_nvml
from hostprep.host.gpu_driver import read_driver


def import_torch() -> tuple[Any, str | None]:
    """Return torch, or None and why it cannot be imported (None if it is not installed)."""
    tell("step", name="import")
    try:
        import torch
    except ModuleNotFoundError as error:
        return None, None if error.name == "torch" else f"torch cannot be imported: {error}"
    except (ImportError, OSError) as error:
        return None, f"torch cannot be imported: {error}"
    return torch, None


def survey(torch: Any, problem: str | None, asked: int | None) -> Survey:
    """Query NVML, then make torch start CUDA on the device ``asked``, or on all.

    ``torch`` and ``problem`` are what ``import_torch`` returned.
    """
    tell("step", name="nvml")
    with nvml_held():  # until torch holds the devices, which would otherwise be started twice
        # Before CUDA, so that this process is not on the devices yet.
        nvml = read_nvml(settle_seconds=SETTLE_SECONDS)
        none = TorchFacts(None, None, None, 0, problem)
        facts = none if torch is None else _start(torch, asked)
    return Survey(facts, nvml, read_driver(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def _start(torch: Any, asked: int | None) -> TorchFacts:
    built_for = torch.version.cuda
    if built_for is None:
        # ROCm answers to torch.cuda as well, but none of these measurements is made for it.
        return TorchFacts(torch.__version__, None, torch.version.hip, 0, None)
    major, minor = built_for.split(".")[:2]
    devices, unusable, problem = 0, [], None
    tell("step", name="start")
    try:
        torch.cuda.init()
        devices = torch.cuda.device_count()
    except Exception as error:  # torch has several kinds; why it does not start is judged later
        problem = in_a_line(error)
    wanted = [index for index in range(devices) if asked in (None, index)]
    for index in wanted:
        tell("step", name="start")
        try:
            torch.zeros(1, device=f"cuda:{index}").add_(1).item()
        except Exception as error:  # one that does not start says nothing about the others
            unusable.append((index, f"cuda:{index}: {in_a_line(error)}"))
    if unusable and len(unusable) == len(wanted):
        problem = unusable[0][1]
    return TorchFacts(
        version=torch.__version__,
        cuda_version=(int(major), int(minor)),
        hip_version=torch.version.hip,
        devices=devices,
        problem=problem,
        unusable=tuple(unusable),
    )
