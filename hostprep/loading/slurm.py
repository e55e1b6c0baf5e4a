"""What Slurm did with the processors of the tasks that it started side by side (srun(1))."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hostprep.host.cpu import allowed_cores

STEP_TASKS = "SLURM_STEP_TASKS_PER_NODE"
_SAME_ON_EACH_NODE = re.compile(r"(?a:(\d{1,6})(\(x\d+\))?)")  # `4`, `4(x2)`, and not `4,3`


def step_tasks() -> int | None:
    """Return how many tasks srun has started side by side on this node; None where unknown.

    Of a batch script `-n 8` says nothing yet: many ask for eight processors so, for one process.
    """
    match = _SAME_ON_EACH_NODE.fullmatch(os.environ.get(STEP_TASKS, ""))
    return int(match[1]) if match is not None else None


def has_own_processors(ranks: int, root: Path = Path("/")) -> bool:
    """Return whether Slurm bound this process, and each of ``ranks`` tasks, to other processors.

    Then the affinity is what one rank has, where it is otherwise what all of them share. The
    variables are inherited by whatever a task starts: they count where the affinity is one of the
    masks still.
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
