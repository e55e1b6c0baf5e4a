"""What Slurm did with the processors of the tasks that it started side by side (srun(1))."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hostprep.host.cpu import allowed_cores

STEP_TASKS = "SLURM_STEP_TASKS_PER_NODE"
_SAME_ON_EACH_NODE = re.compile(r"(?a:(\d{1,6})(\(x\d+\))?)")  # `4`, `4(x2)`, and not `4,3`


def step_tasks() -> int | None:
    """Return how many tasks srun has started side by side on this node; None if unknown.

    In a batch script `-n 8` does not mean that yet: many use it to ask for eight processors for one
    process.
    """
    match = _SAME_ON_EACH_NODE.fullmatch(os.environ.get(STEP_TASKS, ""))
    return int(match[1]) if match is not None else None


def has_own_processors(ranks: int, root: Path = Path("/")) -> bool:
    """Return whether Slurm bound this process, and each of ``ranks`` tasks, to separate processors.

    Then the affinity is what one rank has; otherwise all of them share it. Whatever a task starts
    inherits the variables: they count if the affinity is still one of the masks.
    """
    if os.environ.get("SLURM_CPU_BIND_TYPE") != "mask_cpu:":
        return False
    masks = os.environ.get("SLURM_CPU_BIND_LIST", "").split(",")
    try:
        bound = [int(mask, 16) for mask in masks]
    except ValueError:
        return False
    mine = sum(1 << number for core in allowed_cores(root) for number in core)
    others = [mask for mask in bound if mask != mine]
    apart = not any(mask & mine for mask in others)
    return 1 < len(bound) == ranks == len(others) + 1 and apart
